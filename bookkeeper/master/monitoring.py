"""The source of a master's monitor: an observation of its parts, and the files that its collector retains.

Arrives: a master process. Leaves: :class:`Observation` and :class:`RetainedFile` values for :mod:`bookkeeper.monitor`.
It reads the same data as clients' calls, holds a lock of the master only for the time of a copy, and writes nothing.
Runs in the monitor's threads: ``hosts``, ``tablets`` and ``tablet`` in one, the rest in the other.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_tree import ClusterConfig, PeerCluster, read_config
from bookkeeper.coordination.coordination_protocol import Coordination, Leader
from bookkeeper.errors import BookkeeperError, TransientError, UnavailableError
from bookkeeper.master.calls.process_watch import Processes
from bookkeeper.master.index.shipments import Shipments, Shipped
from bookkeeper.master.index.snapshot import Snapshot
from bookkeeper.master.leadership import Leadership
from bookkeeper.master.process import MasterProcess
from bookkeeper.master.queries.causes import PEER_KINDS, ROUTINE_KINDS, Causes, Now
from bookkeeper.master.queries.queries import status_message, table_names
from bookkeeper.master.queries.retained_files import retained_files
from bookkeeper.master.queries.target_states import TargetState, all_states, most_lag_first, target_state
from bookkeeper.master.queries.waits import Wait, Waits
from bookkeeper.master.queries.why import Directory, described, seconds_since, why_lacks
from bookkeeper.master.replication_changes import replication_configs
from bookkeeper.master.status_report import (
    OPERATIONS_SHOWN_MAX,
    failures,
    operation_infos,
    operation_text,
    wait_problems,
)
from bookkeeper.model import TargetKey
from bookkeeper.monitor.observation import (
    Age,
    Books,
    Cycles,
    LagSums,
    LeaderInfo,
    Observation,
    PeerInfo,
    ReplayInfo,
    RetainedFile,
    Stall,
    TableInfo,
    TServerInfo,
)
from bookkeeper.rpc.contract.messages import HostInfo, TabletReplicas, TargetStatus, WaitCause

STATUSES_MAX = 5_000
"""Most pairs of a file and a target that are shown one by one, by lag; sums count all."""

LEADER_TIMEOUT_MS = 2_000
"""ms that a standby master waits for the leader's monitor address."""


class MasterSource(Struct):
    """The source of one master's monitor."""

    process: MasterProcess
    settings: Settings
    coordination: Coordination
    clock: Clock
    _known: tuple[Leader, str] | None = None

    def observe(self) -> Observation:
        """See :class:`bookkeeper.monitor.observation.Source`. ``problem`` names a store that can't be read."""
        process, instance = self.process, self.settings.instance
        lead = process.leadership
        leads = lead is not None and lead.reign.is_valid()
        leader: Leader | None = None
        books: Books | None = None
        problem = ""
        try:
            leader = self.coordination.leader()
            if lead is not None and leads:
                known = lead.knowledge()
                books = None if known.age_ms is None else self._books(lead, known.age_ms)
                problem = known.problem if books is None else ""
            else:
                problem = "this master stands by" if leader is not None else "no master of this cluster leads now"
        except BookkeeperError as error:
            problem = error.message
        return Observation(
            at_ms=self.clock.wall_ms(),
            cluster=instance.name,
            instance_id=instance.instance_id,
            session=process.session.session_id,
            address=process.address,
            is_alive=process.session.is_valid(),
            leads=leads,
            leader=None if leader is None else LeaderInfo(leader.address, leader.epoch, self._pages_of(leader, leads)),
            books=books,
            problem=problem,
        )

    def _pages_of(self, leader: Leader, is_own: bool) -> str:
        """The address of the leader's monitor; read once a reign."""
        if is_own:
            return self.process.service.monitor_url()
        if self._known is None or self._known[0] != leader:
            try:
                facts = self.process.pool.master(leader.address, LEADER_TIMEOUT_MS).status()
            except TransientError:
                return ""
            self._known = leader, facts.get("monitor", "")
        return self._known[1]

    def _books(self, lead: Leadership, age_ms: float) -> Books:
        config = read_config(self.coordination)
        names = table_names(config.tables.values())
        snapshot, shipping = lead.cycle.books.snapshot, lead.cycle.dispatcher.shipping
        sums = LagSums((names[key.source_table_id], key.cluster) for key in configured(config))
        now = lead.moment()
        tries = lead.settings.replication.quarantine_tries
        waits, began_ns = Waits(), now.boot_ns
        states = waits.counted(all_states(snapshot.files, shipping, now, lambda _target: True, tries))
        most = heapq.nsmallest(STATUSES_MAX, counted(states, sums, names), key=most_lag_first)
        lead.note_waits(waits, began_ns)
        directory = Directory.of(lead.settings, config)
        every = waits.all() + lead.other_waits(config, directory.targets, now)
        causes = described(every, directory, now)
        held = lead.cycle.dispatcher.quarantine.ranges  # a page waits for no books that do not answer
        quarantined = lead.quarantine.statuses(None, names, held)
        for status in quarantined:
            add_status(sums, status)
        processes = lead.watches.processes.look()
        return Books(
            tservers=tserver_infos(lead.tservers.live(), snapshot),
            tables=table_infos(config, snapshot),
            peers=tuple(peer_info(peer, shipping, causes) for _, peer in sorted(config.clusters.items())),
            targets=tuple(replication_configs(sorted(config.tables.values(), key=lambda table: table.name))),
            statuses=(*(status_message(state, names) for state in most), *quarantined),
            lags=sums.lags(),
            quarantined=tuple(lead.quarantine.list_ranges(names, held)),
            cycles=cycles_of(lead),
            age_ms=age_ms,
            files_outstanding=len(snapshot.files),
            files_deleted=lead.gc.runner.deleted,
            tablets_split=lead.splits.begun,
            operations=tuple(operation_text(shown) for shown in operation_infos(lead)[:OPERATIONS_SHOWN_MAX]),
            problems=tuple(f"{where}: {what}" for where, what in (failures(lead) | wait_problems(causes)).items()),
            causes=tuple(causes),
            stalls=tuple(stalls_of(every, names, now)),
            replicas=lead.cycle.repairer.progress,
            tablets_without_logs=len(lead.cycle.failover.losses),
            replays=replay_infos(processes),
            replay_problem=processes.replay_words,
            under_way={
                (state.file, state.target.key): state.under_way for state in most if state.under_way is not None
            },
        )

    def retained(self) -> tuple[RetainedFile, ...]:
        """See :class:`bookkeeper.monitor.observation.Source`; reads in the collector's order."""
        lead = self.process.leadership
        if lead is None or not lead.reign.is_valid():
            return ()
        names = table_names(read_config(self.coordination).tables.values())
        return tuple(retained_files(lead.gc.runner.stores.table, lead.tservers, names, lacks_at(lead)))

    def hosts(self) -> tuple[HostInfo, ...]:
        """See :class:`bookkeeper.monitor.observation.Source`."""
        return tuple(self._lead().hosts.hosts())

    def tablets(self, table: str) -> tuple[TabletReplicas, ...]:
        """See :class:`bookkeeper.monitor.observation.Source`."""
        return tuple(self._lead().hosts.replicas(self._table_id(table), False))

    def tablet(self, table: str, directory: str) -> TabletReplicas:
        """See :class:`bookkeeper.monitor.observation.Source`."""
        return self._lead().hosts.tablet(self._table_id(table), directory)

    def _lead(self) -> Leadership:
        lead = self.process.leadership
        if lead is None or not lead.reign.is_valid():
            raise UnavailableError("this master does not lead: ask the one that does")
        return lead

    def _table_id(self, name: str) -> str:
        return read_config(self.coordination).table_named(name).table_id


def configured(config: ClusterConfig) -> Iterator[TargetKey]:
    """The keys of all targets."""
    for table in config.tables.values():
        for target in table.targets:
            yield target.key


def counted(states: Iterable[TargetState], sums: LagSums, names: dict[str, str]) -> Iterator[TargetState]:
    """The same states; adds each to the sums."""
    for state in states:
        key = state.target.key
        table = names.get(key.source_table_id, key.source_table_id)
        age = Age(state.lag_seconds, state.age_max_s)
        sums.add(table, key.cluster, state.phase, state.lag_records, state.lag_bytes, age)
        yield state


def add_status(sums: LagSums, status: TargetStatus) -> None:
    """Add a range in quarantine to the sums: its target lacks it."""
    cluster, known = status.target.cluster, status.lag_seconds
    age = Age(known, inf if known is None else known)
    sums.add(status.table, cluster, status.phase, status.lag_records, status.lag_bytes, age)


def tserver_infos(live: dict[str, str], snapshot: Snapshot) -> tuple[TServerInfo, ...]:
    """Live tservers by address, with the number of their tablets."""
    tablets = Counter(view.session for view in list(snapshot.tablets.values()))
    return tuple(
        TServerInfo(session, address, tablets[session])
        for session, address in sorted(live.items(), key=lambda item: (item[1], item[0]))
    )


def replay_infos(found: Processes) -> tuple[ReplayInfo, ...]:
    """Live replay processes by address."""
    return tuple(
        ReplayInfo(info.session_id, info.address, info.session_id in found.warm)
        for info in sorted(found.live_replays, key=lambda info: (info.address, info.session_id))
    )


def table_infos(config: ClusterConfig, snapshot: Snapshot) -> tuple[TableInfo, ...]:
    """Tables by name, with the tablets of the last cycle's snapshot."""
    views = list(snapshot.tablets.values())
    tablets = Counter(view.extent.table_id for view in views)
    unassigned = Counter(view.extent.table_id for view in views if view.session is None)
    return tuple(
        TableInfo(
            table.name,
            table.table_id,
            table.state,
            tablets[table.table_id],
            unassigned[table.table_id],
            table.group_names(),
        )
        for table in sorted(config.tables.values(), key=lambda table: table.name)
    )


def stalls_of(waits: Iterable[Wait], names: Mapping[str, str], now: Now) -> Iterator[Stall]:
    """The waits, each with its age; one for each table, peer and kind. One in the course of things has a known age, or
    is left out.
    """
    found: dict[tuple[str, str, str], float] = {}
    for wait in waits:
        seconds = seconds_since(wait.cause, now)
        if seconds is not None or wait.cause.kind not in ROUTINE_KINDS:
            key = wait.target.key
            pair = names.get(key.source_table_id, key.source_table_id), key.cluster, wait.cause.kind
            found[pair] = max(found.get(pair, 0.0), seconds or 0.0)
    return (Stall(*pair, seconds) for pair, seconds in sorted(found.items()))


def lacks_at(lead: Leadership) -> Callable[[str, TargetKey], str | None]:
    """For a file and target, why the target lacks records now; None = it lacks none, "" = not known. Raises
    TransientError.
    """
    files, shipping, now = lead.cycle.books.snapshot.files, lead.cycle.dispatcher.shipping, lead.moment()
    tries = lead.settings.replication.quarantine_tries
    causes = Causes(files, shipping, now, tries)

    def lacks(file: str, key: TargetKey) -> str | None:
        entry = files.get(file.encode())
        index = None if entry is None else entry.index_of(key)
        if entry is None or index is None:
            return ""
        target, progress = entry.scope.targets[index], entry.progress_at(index)
        return why_lacks(target_state(entry, target, progress, files, shipping, now, tries, causes))

    return lacks


def peer_info(peer: PeerCluster, shipping: Shipments, causes: Iterable[WaitCause]) -> PeerInfo:
    """A peer, the failures at it, and the records shipped to it in this reign. A failure on this cluster is none of
    its.
    """
    shipped = shipping.shipped.get(peer.alias) or Shipped()
    at_peer = [cause for cause in causes if cause.cluster == peer.alias and cause.kind in PEER_KINDS]
    worst = max(at_peer, key=lambda cause: cause.tries, default=None)
    return PeerInfo(
        cluster=peer.alias,
        quorum=peer.quorum,
        instance_id=peer.instance_id,
        failures=0 if worst is None else max(1, worst.tries),
        last_error=None if worst is None else worst.text,
        next_try_in_ms=None if worst is None else worst.next_try_in_ms,
        records=shipped.records,
        sent_bytes=shipped.sent_bytes,
        resends=shipped.resends,
    )


def cycles_of(lead: Leadership) -> Cycles:
    """The health of the master's thread."""
    health = lead.cycle.health
    return Cycles(
        full=health.full_cycles,
        quick=health.quick_cycles,
        failed=health.failures,
        failed_in_row=health.failures_in_row,
        full_ms=health.full_ms,
        quick_ms=health.quick_ms,
    )
