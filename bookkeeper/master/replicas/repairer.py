"""Carries out the plans of repair, zones, balance and balance of leaders, a few steps in each full cycle.

Arrives: tablets with several replicas, sessions, the configuration, what hosts hold. Leaves: one cell for each step, at
ranks of this reign, and requests to move a leader. Before each step the tablet's row is read again, so a plan never
works on a row that has changed since. A crash loses only the times that this master has measured, and they begin anew.
Rules: R1, R4.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set

from msgspec import Struct, field
from msgspec.structs import replace

from bookkeeper.clock import Clock
from bookkeeper.config.table_properties import TableProperties, parse_properties
from bookkeeper.coordination.config_tree import ClusterConfig
from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.master.index.snapshot import TabletView, tablet_view
from bookkeeper.master.index.tablet_index import TabletIndex
from bookkeeper.master.index.tablet_replicas import TabletReplica
from bookkeeper.master.operations.hosts.replica_moves import Moves
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.master.replicas.away_hosts import AwayHosts
from bookkeeper.master.replicas.balance_plan import plan_balance
from bookkeeper.master.replicas.held_states import HeldStates, tablet_key
from bookkeeper.master.replicas.leader_balance import plan_leaders
from bookkeeper.master.replicas.leader_choice import named_state
from bookkeeper.master.replicas.meeting_plan import with_meetings
from bookkeeper.master.replicas.repair_plan import is_healthy, leaving_by_row, plan_repair, spare_copies, why_bad
from bookkeeper.master.replicas.repair_state import (
    Demote,
    Finalize,
    HostState,
    Join,
    Lead,
    Leave,
    RepairLimits,
    Step,
    TabletState,
)
from bookkeeper.master.replicas.store_plan import tables_elsewhere
from bookkeeper.master.replicas.zone_plan import plan_zones
from bookkeeper.master.splits.split_rules import shares_files
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, RowPut
from bookkeeper.metadata.values import JOINING, VOTER, ReplicaCell
from bookkeeper.monitor.observation import ReplicaHealth

LOG = logging.getLogger(__name__)

ROW_FAMILIES = ("tablet", "location", keys.REPLICA_FAMILY)

READS_MAX = 256
"""Most rows that one cycle reads again, so that a cycle stays short when many tablets need a repair."""


class Repairer(Struct):
    """The repair of one reign. Used by the master's thread alone; any thread reads ``progress`` and ``leaving``."""

    stores: ReignStores
    clock: Clock
    held: HeldStates
    limits: RepairLimits
    lead: Callable[[TabletView, str], None]
    """Requests that a tablet moves to the host of this name."""
    moves: Callable[[], Moves]
    """The moves that operations have ordered."""
    rewrite: Callable[[str, TabletView], object]
    """Begins an operation after which a tablet of the table of this name shares no file with another tablet."""
    away: AwayHosts
    change_store: Callable[[str], None]
    """Begins the operation that moves the tablets of the table of this name; does nothing while one runs."""
    meetings: Callable[[], Collection[Collection[bytes]]]
    """The rows of tablets that are to be on the same hosts, because they merge."""
    progress: ReplicaHealth = field(default_factory=ReplicaHealth)
    leaving: Mapping[bytes, Set[str]] = field(default_factory=dict)
    """By row, the hosts whose replica goes; of the latest cycle."""
    _turns: int = 0
    _zones: dict[str, str] = field(default_factory=dict)
    """The zone of each host that has had a session in this reign: a host keeps its zone while it is away."""
    _joining_ns: dict[tuple[bytes, str, str], int] = field(default_factory=dict)
    _led_ns: dict[bytes, tuple[str | None, int]] = field(default_factory=dict)
    """Row to its leader, and since when this master knows it."""

    def run(
        self, tablets: TabletIndex, config: ClusterConfig, sessions: Collection[SessionInfo], skipped: Collection[bytes]
    ) -> int:
        """Plan, and write the steps; returns how many. Puts changed views into ``tablets``. ``skipped``: rows that move
        or that an operation has claimed. Raises TransientError, LeaseLostError.
        """
        known = {info.host.name: info.host for info in sessions if info.host is not None}
        self._zones.update((name, host.zone) for name, host in known.items())
        live = {info.host.name for info in sessions if info.alive and info.host is not None}
        named = {one.host for view in tablets.values() for one in view.replicas}
        self.away.note(sorted({*config.hosts, *known, *named}), live)
        properties = {id_: parse_properties(table.properties) for id_, table in config.tables.items()}
        self._begin_moves(tablets, config, properties, live)
        views = [view for view in tablets.values() if view.replicas and view.extent.table_id in properties]
        if not views:
            self.progress, self.leaving = ReplicaHealth(), {}
            return 0
        hosts = self._hosts(views, config, sessions)
        leaders = {info.session_id: info.host.name for info in sessions if info.alive and info.host is not None}
        moves = self.moves()
        states = {view.row: self._state(view, properties[view.extent.table_id], leaders) for view in views}
        go = {view.row for view in views if properties[view.extent.table_id].replicas == 1}
        for row, state in states.items():
            # Tablets that go to the Volume get no replica, but lose those of lost hosts: they count in a majority, and
            # without it no state could be named and no tablet could go.
            states[row] = (
                replace(state, wanted=max(1, sum(why_bad(one, hosts, self.limits) is None for one in state.replicas)))
                if row in go
                else replace(state, chosen=moves.chosen.get(row, frozenset()))
            )
        self._retain_times(states)
        meetings = self.meetings()
        states = with_meetings(states, meetings, hosts, self.limits)
        ill = [row for row, state in states.items() if not is_healthy(state, hosts, self.limits)]
        read = self._turn(ill)
        states.update((row, self._read_again(states[row]) if row in read else _unread(states[row])) for row in ill)
        self.leaving = leaving_by_row([states[row] for row in ill], hosts, self.limits)
        self.progress = progress_of(states.values(), hosts, self.leaving)
        ready = [state for row, state in states.items() if row not in skipped]
        steps: list[Step] = list(plan_repair(ready, hosts, self.limits))
        if not steps and not skipped and not moves.are_prepared and not meetings:
            stay = [state for state in ready if state.row not in go]
            joins = plan_zones(stay, hosts, self.limits) or plan_balance(stay, hosts, self.limits)
            steps = self._unshared(joins, tablets, config) if joins else [*plan_leaders(stay, hosts, self.limits)]
        for step in steps:
            self._carry_out(step, tablets)
        return len(steps)

    def _begin_moves(
        self,
        tablets: TabletIndex,
        config: ClusterConfig,
        properties: Mapping[str, TableProperties],
        live: Collection[str],
    ) -> None:
        """Begin the operations that move tablets between the Volume and hosts. They begin here, so that no cycle with
        an older configuration repairs a tablet that moves.
        """
        online = {id_: table for id_, table in properties.items() if config.tables[id_].state == "online"}
        for id_ in sorted(tables_elsewhere(tablets.values(), online, len(set(live) - config.draining))):
            self.change_store(config.tables[id_].name)

    # ---- the input of a plan

    def _hosts(
        self, views: Collection[TabletView], config: ClusterConfig, sessions: Collection[SessionInfo]
    ) -> dict[str, HostState]:
        """Every host of a row or a session."""
        live = {info.host.name: info.host for info in sessions if info.alive and info.host is not None}
        known = {info.host.name for info in sessions if info.host is not None}
        replicas: Counter[str] = Counter()
        size_bytes: Counter[str] = Counter()
        for view in views:
            held = self.held.of_tablet(tablet_key(view), view.replicas)
            size = max((one.size_bytes for one in held.values()), default=0)
            for replica in view.replicas:
                replicas[replica.host] += 1
                size_bytes[replica.host] += size
        known |= replicas.keys()
        return {
            name: HostState(
                name,
                live[name].incarnation if name in live else None,
                self.away.away_ms(name),
                name in config.draining,
                replicas[name],
                size_bytes[name],
                self._zones.get(name, ""),
            )
            for name in sorted(known)
        }

    def _state(self, view: TabletView, table: TableProperties, leaders: Mapping[str, str]) -> TabletState:
        """A tablet as the snapshot has it."""
        held = self.held.of_tablet(tablet_key(view), view.replicas)
        leader = leaders.get(view.session or "")
        leader = leader if leader in held and held[leader].is_leader else None
        return TabletState(
            row=view.row,
            replicas=view.replicas,
            wanted=table.replicas,
            copies_needed=table.copies_needed,
            named=view.flush_rank,
            leader=leader,
            held=held,
            joining_ms={
                one.host: (self.clock.boot_ns() - self._joining_since(view.row, one.host, one.cell.placement)) / 1e6
                for one in view.replicas
                if not one.is_voter
            },
            led_ms=(self.clock.boot_ns() - self._led_since(view.row, leader)) / 1e6,
        )

    def _read_again(self, state: TabletState) -> TabletState:
        """The tablet as its row is now, with the named state; without a leader, so without a step, if its replicas have
        changed since the snapshot.
        """
        row = self.stores.table.get(state.row, ROW_FAMILIES)
        if row is None or tablet_view(row).replicas != state.replicas:
            return _unread(state)
        return replace(state, named=named_state(row))

    def _turn(self, rows: Sequence[bytes]) -> set[bytes]:
        """The rows to read in this cycle: all take turns."""
        start = self._turns * READS_MAX % max(len(rows), 1)
        self._turns += 1
        return {*rows[start : start + READS_MAX], *rows[: max(0, start + READS_MAX - len(rows))]}

    def _joining_since(self, row: bytes, host: str, placement: str) -> int:
        return self._joining_ns.setdefault((row, host, placement), self.clock.boot_ns())

    def _led_since(self, row: bytes, leader: str | None) -> int:
        """Since when a tablet has this leader; a tablet without one begins anew."""
        known, since = self._led_ns.get(row, (None, 0))
        if known is None or known != leader:
            since = self.clock.boot_ns()
            self._led_ns[row] = leader, since
        return since

    def _retain_times(self, states: Mapping[bytes, TabletState]) -> None:
        self._led_ns = {row: known for row, known in self._led_ns.items() if row in states}
        joining = {
            (row, one.host, one.cell.placement)
            for row, state in states.items()
            for one in state.replicas
            if not one.is_voter
        }
        for key in self._joining_ns.keys() - joining:
            del self._joining_ns[key]

    def _unshared(self, joins: Sequence[Join], tablets: TabletIndex, config: ClusterConfig) -> list[Step]:
        """The joins of tablets that share no file with another one. Each other tablet writes files of its own first, so
        that a host gets the rows of its tablet and no others.
        """
        found: list[Step] = []
        for join in joins:
            row = self.stores.table.get(join.row, ("tablet", "segment"))
            if row is None or not shares_files(row):
                found.append(join)
            else:
                view = tablets[join.row]
                self.rewrite(config.table(view.extent.table_id).name, view)
        return found

    # ---- steps

    def _carry_out(self, step: Step, tablets: TabletIndex) -> None:
        """One step: a cell at a rank of its own, or a request to move the leader."""
        LOG.info("%s %s: %s", type(step).__name__, step.row, step.reason)
        view = tablets[step.row]
        if isinstance(step, Lead):
            self.lead(view, step.host)
            return
        self.stores.reign.check()
        rank = self.stores.reign.next_rank()
        if isinstance(step, Leave):
            cell = keys.replica_column(step.replica.host)
            self.stores.table.delete([CellKey(step.row, cell)], rank)
            others = tuple(one for one in view.replicas if one.host != step.replica.host)
            tablets.put(replace(view, replicas=others))
            return
        changed = replica_after(step, rank)
        self.stores.table.put([RowPut(step.row, {keys.replica_column(changed.host): changed.cell.encode()})], rank)
        others = tuple(one for one in view.replicas if one.host != changed.host)
        tablets.put(replace(view, replicas=tuple(sorted((*others, changed), key=lambda one: one.host))))


def _unread(state: TabletState) -> TabletState:
    """The same tablet without a leader, so without a step."""
    return replace(state, leader=None)


def replica_after(step: Join | Finalize | Demote, rank: int) -> TabletReplica:
    """The replica that a step writes. The name of a new placement is the rank of its write, which is unique for ever:
    a reign writes one thing at a rank.
    """
    if isinstance(step, Join):
        return TabletReplica(step.host, ReplicaCell(f"p{rank:x}", step.incarnation, JOINING, step.in_place_of))
    role = VOTER if isinstance(step, Finalize) else JOINING
    return replace(step.replica, cell=replace(step.replica.cell, role=role))


def progress_of(
    states: Collection[TabletState], hosts: Mapping[str, HostState], leaves: Mapping[bytes, Set[str]]
) -> ReplicaHealth:
    """The progress of the repair, for operators. ``leaves``: by row, the hosts whose replica goes. Pure."""
    spare = {state.row: spare_copies(state, hosts) for state in states}
    joins = [join_bytes(state, leaves.get(state.row, frozenset())) for state in states]
    return ReplicaHealth(
        under_replicated=sum(spare[state.row] + state.copies_needed < state.wanted for state in states),
        in_danger=sum(value < 0 for value in spare.values()),
        joining=sum(
            not one.is_voter and one.host not in leaves.get(state.row, ()) for state in states for one in state.replicas
        ),
        lacking_segments=max(
            (lacking for state in states for held in state.held.values() for lacking in held.lacking.values()),
            default=0,
        ),
        damaged_files=sum(held.damaged for state in states for held in state.held.values()),
        lacking_bytes=sum(sum(held.lacking_bytes.values()) for state in states for held in state.held.values()),
        joining_bytes=sum(wanted for wanted, _ in joins),
        joined_bytes=sum(there for _, there in joins),
    )


def join_bytes(tablet: TabletState, leaves: Set[str]) -> tuple[int, int]:
    """The bytes that the joining replicas of a tablet will have, as far as its leader says so, and those that are
    there. ``leaves``: the hosts whose replica goes.
    """
    leader = tablet.held.get(tablet.leader or "")
    wanted = there = 0
    for one in tablet.replicas:
        if one.is_voter or one.host in leaves or leader is None or one.host not in leader.lacking_bytes:
            continue
        to_come, held = leader.lacking_bytes[one.host], tablet.held.get(one.host)
        durable, incoming = (0, 0) if held is None else (held.size_bytes, held.incoming_bytes)
        wanted += durable + to_come
        there += durable + min(incoming, to_come)
    return wanted, there
