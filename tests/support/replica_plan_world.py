"""Hosts with replicas of tablets, in memory: states are made, copied and named, hosts die, return and are wiped.

The plans of the master are real; books, hosts and leaders are as small as the laws need: cells with ranks, and for each
host the states that each placement holds. :meth:`PlanWorld.plan` notes each breach of a law in ``broken``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from msgspec.structs import replace

from bookkeeper.master.index.tablet_replicas import TabletReplica
from bookkeeper.master.replicas import repair_plan
from bookkeeper.master.replicas.balance_plan import plan_balance
from bookkeeper.master.replicas.election import Candidate, candidates, newest, newest_in_order
from bookkeeper.master.replicas.held_states import HeldState
from bookkeeper.master.replicas.leader_balance import plan_leaders
from bookkeeper.master.replicas.meeting_plan import with_meetings
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
from bookkeeper.master.replicas.zone_plan import plan_zones
from bookkeeper.metadata.values import JOINING, VOTER, ReplicaCell
from bookkeeper.model import HostIdentity

LIMITS = RepairLimits(repair_after_ms=300, joins_max=2, flight_ms=100, lead_min_ms=150)
TICK_MS = 60.0


@dataclass(slots=True)
class Host:
    """A host: its disk, and since when it has been away (None: it lives)."""

    disk: int = 1
    away_since: float | None = None
    draining: bool = False
    zone: str = ""
    held: dict[tuple[bytes, str], set[int]] = field(default_factory=dict)
    """Tablet and placement to the states on this disk."""

    @property
    def incarnation(self) -> str:
        """The name of the disk."""
        return f"disk-{self.disk}"


@dataclass(slots=True)
class Tablet:
    """A tablet's row: cells with their ranks (None: deleted), the named state, and the leading host with its voters."""

    row: bytes
    cells: dict[str, tuple[int, ReplicaCell | None]]
    wanted: int
    copies_needed: int
    size_bytes: int = 0
    named: int = 0
    newest: int = 0
    leader: str | None = None
    chosen: frozenset[str] = frozenset()
    """The hosts to which an operation moves it."""
    joining_since: dict[tuple[str, str], float] = field(default_factory=dict)
    led_since: float = 0.0

    def replicas(self) -> tuple[TabletReplica, ...]:
        """The visible cells."""
        return tuple(TabletReplica(host, cell) for host, (_, cell) in sorted(self.cells.items()) if cell is not None)

    def write(self, host: str, cell: ReplicaCell | None, rank: int) -> None:
        """A put, or a delete; a lower rank is hidden."""
        if host not in self.cells or self.cells[host][0] <= rank:
            self.cells[host] = rank, cell


@dataclass(slots=True)
class PlanWorld:
    """Tablets on hosts, and a clock."""

    hosts: dict[str, Host]
    tablets: dict[bytes, Tablet]
    now_ms: float = 0.0
    rank: int = 1_000
    steps: Counter[str] = field(default_factory=Counter)
    history: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    meetings: list[list[bytes]] = field(default_factory=list)
    """The rows of tablets that are to merge."""
    in_order: bool = False
    """Whether leaders are elected through coordination."""
    limits: RepairLimits = LIMITS

    @classmethod
    def of(
        cls, hosts: int, tablets: int, replicas: int, copies_needed: int, sizes: tuple[int, ...] = (100,)
    ) -> PlanWorld:
        """A cluster whose tablets lie on the first hosts, which hold their first state."""
        world = cls({f"h{n}": Host() for n in range(hosts)}, {})
        for number in range(tablets):
            row, names = b"1;%d" % number, [f"h{n}" for n in range(replicas)]
            cells = {name: (1, ReplicaCell("p0", "disk-1", VOTER)) for name in names}
            tablet = Tablet(row, dict(cells), replicas, copies_needed, sizes[number % len(sizes)], 1, 1)
            for name in names:
                world.hosts[name].held[row, "p0"] = {1}
            world.tablets[row] = tablet
        world.elect()
        return world

    # ---- hosts

    def kill(self, name: str) -> None:
        """A host goes away; its leaderships end."""
        host = self.hosts[name]
        if host.away_since is None:
            host.away_since = self.now_ms
        for tablet in self.tablets.values():
            if tablet.leader == name:
                tablet.leader = None

    def start(self, name: str) -> None:
        """A host returns."""
        self.hosts[name].away_since = None

    def wipe(self, name: str) -> None:
        """A host loses its disk, and returns with another one."""
        self.kill(name)
        self.hosts[name].disk += 1
        self.hosts[name].held.clear()
        self.start(name)

    # ---- leaders and their data

    def elect(self) -> None:
        """Each tablet without a leader gets one, if any host may lead."""
        for tablet in self.tablets.values():
            if tablet.leader is None:
                able = candidates(tablet.replicas(), self.sessions(), self.held(tablet), tablet.named, {})
                if able:
                    self.take_over(tablet, self.elected(able).host)

    def elected(self, able: list[Candidate]) -> Candidate:
        """The choice of the master, or that of the coordination: hosts stand in the order of their names, backwards."""
        if not self.in_order:
            return newest(able)
        places = {f"s-{name}": place for place, name in enumerate(sorted(self.hosts, reverse=True))}
        return newest_in_order(able, places)

    def take_over(self, tablet: Tablet, host: str) -> None:
        """A host leads from the named state: its term begins with a new state (N5)."""
        tablet.leader, tablet.led_since = host, self.now_ms
        self.make_state(tablet)

    def make_state(self, tablet: Tablet) -> None:
        """The leader makes a state; nobody else has it."""
        cell = tablet.cells.get(tablet.leader or "", (0, None))[1]
        if cell is not None:
            tablet.newest += 1
            self.hosts[tablet.leader or ""].held.setdefault((tablet.row, cell.placement), set()).add(tablet.newest)

    def copy(self, tablet: Tablet, host: str) -> None:
        """A host of the row gets the leader's newest state."""
        cell = tablet.cells.get(host, (0, None))[1]
        root = self.leader_root(tablet)
        if cell is not None and root and self.is_here(host, cell):
            self.hosts[host].held.setdefault((tablet.row, cell.placement), set()).add(root)

    def leader_root(self, tablet: Tablet) -> int:
        """The newest state on the leader's disk."""
        cell = tablet.cells.get(tablet.leader or "", (0, None))[1]
        held = set() if cell is None else self.hosts[tablet.leader or ""].held.get((tablet.row, cell.placement), set())
        return max(held, default=0)

    def name(self, tablet: Tablet) -> None:
        """N3: the leader names its newest state that enough voters hold; hosts collect what is older (N4)."""
        if tablet.leader is None:
            return
        for state in range(self.leader_root(tablet), tablet.named, -1):
            holding = [host for host in self.copies(tablet, state) if self.hosts[host].away_since is None]
            if len(holding) >= tablet.copies_needed:
                tablet.named = state
                break

    def copies(self, tablet: Tablet, state: int) -> list[str]:
        """The voters whose disks hold a state."""
        return [
            one.host
            for one in tablet.replicas()
            if one.is_voter
            and self.hosts[one.host].incarnation == one.cell.incarnation
            and state in self.hosts[one.host].held.get((tablet.row, one.cell.placement), set())
        ]

    # ---- the plan

    def is_here(self, name: str, cell: ReplicaCell) -> bool:
        """Whether a host lives with the disk of a cell."""
        host = self.hosts[name]
        return host.away_since is None and host.incarnation == cell.incarnation

    def sessions(self) -> dict[str, tuple[str, HostIdentity]]:
        """Live hosts and their sessions."""
        return {
            name: (f"s-{name}", HostIdentity(name, host.incarnation))
            for name, host in self.hosts.items()
            if host.away_since is None
        }

    def held(self, tablet: Tablet) -> dict[str, HeldState]:
        """The answers of live hosts about the placements of a row."""
        found = {}
        for one in tablet.replicas():
            states = self.hosts[one.host].held.get((tablet.row, one.cell.placement))
            if states is not None and self.is_here(one.host, one.cell):
                found[one.host] = HeldState(
                    one.cell.placement,
                    one.cell.incarnation,
                    max(states, default=0),
                    frozenset(states),
                    one.host == tablet.leader,
                    tablet.size_bytes,
                )
        return found

    def host_states(self) -> dict[str, HostState]:
        """The hosts as the plan sees them."""
        replicas: Counter[str] = Counter()
        size_bytes: Counter[str] = Counter()
        for tablet in self.tablets.values():
            for one in tablet.replicas():
                replicas[one.host] += 1
                size_bytes[one.host] += tablet.size_bytes
        return {
            name: HostState(
                name,
                host.incarnation if host.away_since is None else None,
                0 if host.away_since is None else self.now_ms - host.away_since,
                host.draining,
                replicas[name],
                size_bytes[name],
                host.zone,
            )
            for name, host in self.hosts.items()
        }

    def states(self) -> list[TabletState]:
        """The tablets as the plan sees them."""
        found = []
        for tablet in self.tablets.values():
            joining = {(one.host, one.cell.placement) for one in tablet.replicas() if not one.is_voter}
            since = {key: tablet.joining_since.get(key, self.now_ms) for key in joining}
            tablet.joining_since = since
            found.append(
                TabletState(
                    tablet.row,
                    tablet.replicas(),
                    tablet.wanted,
                    tablet.copies_needed,
                    tablet.named,
                    tablet.leader,
                    self.held(tablet),
                    {host: self.now_ms - begun for (host, _), begun in since.items()},
                    self.now_ms - tablet.led_since,
                    tablet.chosen,
                )
            )
        return found

    def plan(self, limit: int | None = None) -> list[Step]:
        """Plan, and write at most ``limit`` steps (a crash cuts the others); returns all steps of the plan."""
        hosts = self.host_states()
        by_row = {state.row: state for state in self.states()}
        states = list(with_meetings(by_row, self.meetings, hosts, self.limits).values())
        steps: list[Step] = list(repair_plan.plan_repair(states, hosts, self.limits))
        if not self.meetings:
            for plan in (plan_zones, plan_balance, plan_leaders):
                steps = steps or [*plan(states, hosts, self.limits)]
        for step in steps[:limit]:
            self.rank += 1
            self.apply(step, self.rank)
        return steps

    def apply(self, step: Step, rank: int) -> None:
        """Write a step, and check what it leaves."""
        tablet = self.tablets[step.row]
        before = len(self.in_sync(tablet))
        copies = len(self.copies(tablet, tablet.named))
        match step:
            case Join():
                tablet.write(step.host, ReplicaCell(f"p{rank}", step.incarnation, JOINING, step.in_place_of), rank)
            case Finalize():
                tablet.write(step.replica.host, replace(step.replica.cell, role=VOTER), rank)
            case Demote():
                tablet.write(step.replica.host, replace(step.replica.cell, role=JOINING), rank)
            case Leave():
                tablet.write(step.replica.host, None, rank)
                self.hosts[step.replica.host].held.pop((tablet.row, step.replica.cell.placement), None)
            case Lead():
                self.take_over(tablet, step.host)
        self.note(step, before, copies)

    def note(self, step: Step, before: int, copies: int) -> None:
        """The laws of one step: enough voters in sync are left, and enough copies of the named state."""
        tablet = self.tablets[step.row]
        self.steps[type(step).__name__] += 1
        self.history.append(f"{self.now_ms:.0f} ms {step}")
        after = len(self.in_sync(tablet))
        if after < min(before, tablet.copies_needed):
            self.broken.append(
                f"after {type(step).__name__} tablet {step.row!r} has {after} voters in sync, "
                f"{tablet.copies_needed} are needed"
            )
        left = len(self.copies(tablet, tablet.named))
        if left < min(copies, tablet.copies_needed):
            self.broken.append(f"after {type(step).__name__} the named state of {step.row!r} is on {left} disks only")
        leader = tablet.cells.get(tablet.leader or "", (0, None))[1]
        if tablet.leader is not None and (leader is None or leader.role != VOTER):
            self.broken.append(f"after {type(step).__name__} the leader {tablet.leader} of {step.row!r} is no voter")

    def in_sync(self, tablet: Tablet) -> list[str]:
        """The live voters that hold the named state."""
        return [host for host in self.copies(tablet, tablet.named) if self.hosts[host].away_since is None]

    # ---- rounds

    def round(self) -> list[Step]:
        """A healthy moment: leaders are elected, states copied and named, and the plan is carried out."""
        self.now_ms += TICK_MS
        self.elect()
        for tablet in self.tablets.values():
            for one in tablet.replicas():
                self.copy(tablet, one.host)
            self.name(tablet)
        return self.plan()

    def settle(self, rounds: int = 400) -> int:
        """Rounds until nothing is left to do for longer than any wait; returns how many steps that took."""
        steps, quiet = 0, 0
        for _ in range(rounds):
            found = self.round()
            steps += len(found)
            quiet = 0 if found else quiet + 1
            if quiet * TICK_MS > 2 * (self.limits.repair_after_ms + self.limits.flight_ms):
                return steps
        self.broken.append(f"the plan does not end: {self.history[-6:]}")
        return steps
