"""The parts and threads of a leading master: how they are assembled, started and ended.

Arrives: a reign. Leaves: the threads of the cycle, the recovery, the collector, automatic splits and FATE operations. A
thread that dies ends the process. So does a lost lease, because this master may decide nothing after it. Rules: R6, R8
and R15.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct, field

from bookkeeper.clock import Clock, SteadyWall
from bookkeeper.config.file import left_out
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_tree import ClusterConfig
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.host_names import directories
from bookkeeper.coordination.masters import MasterFinder
from bookkeeper.errors import BookkeeperError, LeaseLostError
from bookkeeper.file_locks import is_supervised
from bookkeeper.log_homes.opening import open_homes, open_logs
from bookkeeper.master.automatic_splits import AutomaticSplits
from bookkeeper.master.books import books_watch
from bookkeeper.master.books.books_cycle import Books
from bookkeeper.master.books.books_watch import BooksWatch
from bookkeeper.master.books.tserver_recovery import TServerRecovery, read_claim
from bookkeeper.master.calls.keyed_executors import KeyedExecutors
from bookkeeper.master.calls.peer_masters import PeerMasters
from bookkeeper.master.calls.process_watch import Processes, ProcessWatch
from bookkeeper.master.calls.tserver_calls import TServerCalls
from bookkeeper.master.calls.tservers import LOG_TIMEOUT_MS, TServers
from bookkeeper.master.cycle.check_ins import CheckIns
from bookkeeper.master.cycle.cycle import Cycle, CycleTiming
from bookkeeper.master.cycle.event_queue import EventQueue
from bookkeeper.master.cycle.header_times import HeaderTimes
from bookkeeper.master.cycle.knowledge import Knowledge, knowledge_of
from bookkeeper.master.cycle.replicate_file import KIND, ReplicateFiles
from bookkeeper.master.cycle.work_dispatch import DispatchSettings, WorkDispatcher
from bookkeeper.master.fate.engine import FateEngine
from bookkeeper.master.fate.fate_store import FateStore
from bookkeeper.master.gc.gc_pace import GcPace
from bookkeeper.master.gc.gc_runner import GcRunner
from bookkeeper.master.gc.orphan_files import OrphanFiles
from bookkeeper.master.index.shipments import Shipments
from bookkeeper.master.operation_kinds import all_operations
from bookkeeper.master.operations.context import Context, MasterHooks, OperationSettings
from bookkeeper.master.operations.hosts.change_store import change_store_args
from bookkeeper.master.operations.hosts.replica_moves import MOVE_KIND, move_args, moves_under_way
from bookkeeper.master.operations.quarantine import range_args
from bookkeeper.master.operations.split_merge import STORE_KIND, claimed_rows, merging_rows
from bookkeeper.master.origins.origin_parts import OriginParts
from bookkeeper.master.placement.placement import Placement
from bookkeeper.master.quarantine.quarantined_ranges import Quarantine
from bookkeeper.master.queries.causes import CYCLES_MAX, Away, Lack, LocalFacts, Now
from bookkeeper.master.queries.host_queries import HostQueries
from bookkeeper.master.queries.quarantine_admin import QuarantineAdmin
from bookkeeper.master.queries.queries import Queries
from bookkeeper.master.queries.waits import RecentWaits, Wait, Waits, waits_at
from bookkeeper.master.queries.why import older_waits, quarantined_waits, unread_waits
from bookkeeper.master.reign.books_proof import Rounds
from bookkeeper.master.reign.leader import Reign
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.master.replicas.away_hosts import AwayHosts
from bookkeeper.master.replicas.failover import LogFailover
from bookkeeper.master.replicas.leader_choice import LeaderChoice
from bookkeeper.master.replicas.repair_state import RepairLimits
from bookkeeper.master.replicas.repairer import Repairer
from bookkeeper.metadata.flight import books_flight_ms
from bookkeeper.metadata.metadata_table import MetadataTable, Probed
from bookkeeper.model import HostIdentity, Target
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.runtime.threads import start_thread
from bookkeeper.security.file_roots import FileRoots
from bookkeeper.storage.volume.opening import open_volume

LOG = logging.getLogger(__name__)

FATE_THREADS = 6
SESSIONS_POLL_MS = 200
"""ms between looks at the sessions: the delay beyond its lease until a dead tserver is noticed."""

QUIET_SESSIONS_MS = 1_000
"""ms between them while a store on other machines has told of no new and no ended session, and no lease is over: each
look is a call.
"""


class GarbageCollection(Struct, frozen=True):
    """The collectors: of files that have marks, and of segments that no tablet names."""

    runner: GcRunner
    orphan_files: OrphanFiles


class Watches(Struct, frozen=True):
    """The looks at others: which processes of this cluster live, whether peers came back older, and whether the store
    of the books takes writes; None: it can't tell.
    """

    processes: ProcessWatch
    peers: CheckIns
    books: BooksWatch | None = None


class Leadership(Struct):
    """The parts of one reign. Call ``start`` and ``stop`` once each."""

    settings: Settings
    clock: Clock
    coordination: Coordination
    reign: Reign
    cycle: Cycle
    fate: FateEngine
    gc: GarbageCollection
    queries: Queries
    quarantine: QuarantineAdmin
    origins: OriginParts
    splits: AutomaticSplits
    watches: Watches
    errors: dict[str, str] = field(default_factory=dict)
    """The last error of each thread whose latest round failed; read by any thread."""
    _recent: RecentWaits = field(default_factory=RecentWaits)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def tservers(self) -> TServers:
        """The tservers of this cluster."""
        return self.cycle.calls.tservers

    @property
    def hosts(self) -> HostQueries:
        """The answers about hosts and replicas."""
        states = self.queries.states
        return HostQueries(
            self.queries.table,
            self.tservers,
            self.queries.read_config,
            self.cycle.repairer.away,
            lambda: self.cycle.books.snapshot.tablets,
            {} if states is None else states.problems,
            {} if states is None else states.warnings,
            self.cycle.repairer.leaving,
            self.clock,
        )

    def start(self) -> None:
        """Start the threads."""
        self._begin("cycle", lambda: self.cycle.run(self._stop))
        self._begin("recovery", self._watch_sessions)
        self._begin("collector", self._collect)
        self._begin("splits", self._split)
        if self.watches.books is not None:
            self._begin("books", partial(self._watch_books, self.watches.books))
        for number in range(FATE_THREADS):
            self._begin(f"fate-{number}", self.fate.serve)

    def stop(self, timeout_ms: int = 5_000) -> None:
        """End the threads; waits at most ``timeout_ms`` for each one's present call."""
        self._stop.set()
        self.cycle.event_queue.wake()
        self.fate.stop()
        self.cycle.calls.lanes.stop()
        self.watches.peers.lanes.stop()
        for thread in self._threads:
            thread.join(timeout_ms / 1000)

    def knowledge(self) -> Knowledge:
        """The age of this master's view of the outstanding files."""
        return knowledge_of(self.cycle.health, self.settings.master.scan_interval_ms, self.clock.boot_ns())

    def moment(self) -> Now:
        """The clocks and live sessions for an answer now. Raises TransientError."""
        seen = self.watches.processes.look()
        live = seen.tservers
        return Now(
            self.clock.boot_ns(),
            self.clock.wall_ms(),
            lambda name: (session := self.tservers.session_of(name)) is not None and session not in live,
            self.cycle.books.snapshot.held_back,
            self._local_facts(seen),
        )

    def _local_facts(self, seen: Processes) -> LocalFacts:
        """The parts of this cluster that do not work now."""
        no_tserver_ns, no_replay_ns = seen.no_tserver_since_ns, seen.no_replay_since_ns
        away = {
            session: Away(home.host, self.cycle.repairer.away.noticed_ns(home.host))
            for session, home in self.cycle.books.homes_read.items()
            if session not in seen.tservers and HostIdentity(home.host, home.incarnation) not in seen.hosts
        }
        is_missing = no_tserver_ns is not None or no_replay_ns is not None or away
        return LocalFacts(
            no_books=self._no_books(),
            no_tserver=None if no_tserver_ns is None else Lack(no_tserver_ns, seen.silent_words),
            no_replay=None if no_replay_ns is None else Lack(no_replay_ns, seen.replay_words),
            away=away,
            unrecoverable=dict(self.cycle.recovery.problems),
            homes={session: home.host for session, home in self.cycle.books.homes_read.items()},
            supervised=[place for place in self._places() if is_supervised(Path(place))] if is_missing else (),
            apart=[(place, kind) for place in self._places() for kind in left_out(Path(place))] if is_missing else (),
        )

    def _places(self) -> list[str]:
        """The directories of this cluster's hosts on this machine."""
        if self.settings.storage.volume == "none":
            return [str(self.settings.directory)]
        hosts = {} if self.cycle.config is None else self.cycle.config.hosts
        root = self.settings.cluster_directory
        return sorted({str(root), *directories(root, hosts).values()})

    def _no_books(self) -> Lack | None:
        """Since when the books can't be written, or read: their store is silent, or too many cycles have failed."""
        silence = None if self.watches.books is None else self.watches.books.silence()
        if silence is not None:
            return Lack(silence.since_ns, silence.words)
        health = self.cycle.health
        return Lack(health.known_ns, health.last_error) if health.failures_in_row >= CYCLES_MAX else None

    def waits(self) -> Waits:
        """The waits of all tables and peers, as they were a moment ago; nothing before the first read of the books.
        Raises TransientError.
        """
        now_ns = self.clock.boot_ns()
        known = self._recent.get(now_ns)
        if known is not None or self.knowledge().age_ms is None:
            return known or Waits()
        found = waits_at(
            self.cycle.books.snapshot.files,
            self.cycle.dispatcher.shipping,
            self.moment(),
            self.settings.replication.quarantine_tries,
        )
        self.note_waits(found, now_ns)
        return found

    def other_waits(
        self, config: ClusterConfig, targets: Sequence[tuple[str, Target]], now: Now, file: str = ""
    ) -> list[Wait]:
        """The waits of ranges in quarantine, of one file or of all (""), and those of no file: for what older peers
        lack, and for books that do not answer. Raises TransientError.
        """
        quarantined = self.cycle.dispatcher.quarantine.ranges
        ranges = {key: value for key, value in quarantined.items() if file in ("", key.file)}
        older = [] if file else self.watches.peers.older_states(config, self.cycle.books.snapshot.files)
        unread = [] if file else unread_waits(targets, now)
        return quarantined_waits(ranges, targets, now) + older_waits(older, targets, now) + unread

    def note_waits(self, found: Waits, began_ns: int) -> None:
        """These are all waits, from a look at all files that began then."""
        self._recent.note(found, began_ns, self.clock.boot_ns())

    def _begin(self, name: str, body: Callable[[], None]) -> None:
        self._threads.append(start_thread(name, body))

    # ---- threads

    def _watch_sessions(self) -> None:
        known: frozenset[tuple[str, bool]] = frozenset()
        replays: frozenset[str] = frozenset()
        looked_ns = self.clock.boot_ns() - QUIET_SESSIONS_MS * 1_000_000
        while not self.clock.wait(self._stop, SESSIONS_POLL_MS):
            now_ns = self.clock.boot_ns()
            if now_ns - looked_ns < QUIET_SESSIONS_MS * 1_000_000 and not self.coordination.has_session_news():
                continue
            looked_ns = now_ns
            with self._recorded("recovery"):
                seen = self.watches.processes.look()
                recovered = self.cycle.recovery.run_once(seen.sessions)
                self.cycle.placement.leaders.watch()
                sessions = frozenset((info.session_id, info.alive) for info in seen.sessions)
                if recovered or sessions != known:
                    self.cycle.event_queue.ask_full()
                known = sessions
                if seen.replays - replays:
                    self.cycle.event_queue.replay_started()
                replays = seen.replays
                if self.cycle.config is not None:
                    self.watches.peers.begin(
                        self.cycle.config, self.cycle.dispatcher.shipping.shipped, self.cycle.books.snapshot.files
                    )

    def _watch_books(self, books: BooksWatch) -> None:
        while not self.clock.wait(self._stop, books_watch.POLL_MS):
            books.run_once()

    def _collect(self) -> None:
        pace = GcPace(self.clock, self.settings.master.gc_interval_ms)
        while not self.clock.wait(self._stop, pace.pause_ms):
            with pace.measured(), self._recorded("collector"):
                self.gc.runner.run_once()
            with self._recorded("orphan files"):
                self.gc.orphan_files.run_once()

    def _split(self) -> None:
        while not self.clock.wait(self._stop, self.settings.master.scan_interval_ms):
            with self._recorded("splits"):
                self.splits.run_once(list(self.cycle.books.snapshot.tablets.values()))

    def _recorded(self, name: str) -> _RecordedErrors:
        return _RecordedErrors(self.errors, name)


class _RecordedErrors(Struct):
    """Records the last error of a thread's round for the status; the thread goes on. LeaseLostError passes through."""

    errors: dict[str, str]
    name: str

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None:
            self.errors.pop(self.name, None)
            return False
        if isinstance(error, BookkeeperError) and not isinstance(error, LeaseLostError):
            LOG.warning("the %s failed and runs again: %s: %s", self.name, error.code, error.message)
            self.errors[self.name] = f"{error.code}: {error.message}"
            return True
        return False


def assemble(
    settings: Settings,
    coordination: Coordination,
    table: MetadataTable,
    pool: RpcPool,
    peer_pool: RpcPool,
    reign: Reign,
    clock: Clock,
    rng: random.Random,
) -> Leadership:
    """Build the parts of a reign and take over the operations of earlier masters. ``pool`` calls the processes of this
    cluster, ``peer_pool`` those of others. The proof that the books are this cluster's comes before the first write.
    Raises TransientError.
    """
    own_id, flight_ms = settings.instance.instance_id, books_flight_ms(settings)
    stores = ReignStores(table, reign, coordination)
    rounds = Rounds(table, coordination, reign, own_id, settings.metadata_url)
    rounds.begin()
    event_queue, volume = EventQueue(), open_volume(settings)
    homes = open_homes(table, volume)
    logs = open_logs(volume, homes, coordination, partial(pool.tserver, timeout_ms=LOG_TIMEOUT_MS), clock)
    tservers = TServers(coordination, pool, logs, homes)
    calls = TServerCalls(tservers, KeyedExecutors())
    peers = PeerMasters(peer_pool, own_id, FileRoots.of(settings), MasterFinder(clock))
    store = FateStore(table, reign)
    books = Books(stores, logs, homes)
    recovery = TServerRecovery(tservers, reign, partial(read_claim, table, stores.config), clock)
    failover = LogFailover(stores, clock, homes.all, is_loaded=lambda session, row: placement.is_loaded(session, row))
    placement = Placement(
        stores,
        calls,
        clock,
        changed=event_queue.ask_place,
        note_assigned=books.note_assigned,
        leaders=leader_choice(settings, coordination, table, calls, event_queue),
        claimed=lambda: claimed_rows(fate.pending()),
        unrecoverable=recovery.problems,
        waiting=recovery.waiting,
        losses=lambda: failover.losses,
    )
    limits = RepairLimits(settings.replicas.repair_after_ms, settings.replicas.joins_max, flight_ms)
    away = AwayHosts(coordination, clock)
    repairer = Repairer(
        stores,
        clock,
        placement.leaders.held,
        limits,
        placement.request_leader,
        moves=lambda: moves_under_way(fate.pending()),
        rewrite=lambda name, view: fate.submit(
            MOVE_KIND, move_args(name, [view.extent.end_row], [one.host for one in view.replicas])
        ),
        away=away,
        change_store=lambda table: begin_store_change(fate, table),
        meetings=lambda: merging_rows(fate.pending()),
    )
    hooks = MasterHooks(
        wake=event_queue.ask_full,
        repair=event_queue.ask_place,
        tablets_changed=event_queue.tablets_changed,
        let_go=placement.let_go,
        begin=lambda kind, args: fate.submit(kind, args),
    )
    age_clock = SteadyWall(clock)
    context = Context(stores, tservers, peers, clock, age_clock, OperationSettings.of(settings), hooks)
    fate = FateEngine(store, all_operations(context), clock, rng)
    shipping = Shipments(settings.master.backoff_base_ms, settings.master.backoff_max_ms, rng)
    replicating = ReplicateFiles(store, clock)
    quarantine = Quarantine(
        table, reign, clock, settings.replication, lambda key: fate.submit("skip_range", range_args(key))
    )
    headers = HeaderTimes(table, logs, clock, shipping, quarantine, calls.lanes, lambda: books.snapshot.files)
    dispatcher = WorkDispatcher(
        DispatchSettings.of(settings),
        clock,
        reign,
        calls,
        event_queue,
        replicating,
        shipping,
        quarantine,
        headers.begin,
    )
    timing = CycleTiming(clock, rng, settings.master)
    cycle = Cycle(timing, calls, books, placement, repairer, failover, recovery, dispatcher, event_queue)
    origins = OriginParts.of(stores, clock, age_clock, tservers, peers, fate, own_id, settings.tserver.paths_apart_ms)
    splits = AutomaticSplits(stores, tservers, fate, clock, rng)
    watch = BooksWatch(table.probe, clock) if isinstance(table, Probed) else None
    records = store.load()
    replicating.adopt(records)
    fate.resume([record for record in records if record.op.type != KIND])  # the cycle drives the others
    return Leadership(
        settings=settings,
        clock=clock,
        coordination=coordination,
        reign=reign,
        cycle=cycle,
        fate=fate,
        gc=GarbageCollection(
            GcRunner(stores, rounds, clock, tservers, fate, origins.gc, flight_ms),
            OrphanFiles(stores, rounds, clock, volume, tservers.live, flight_ms),
        ),
        queries=Queries(
            table,
            tservers,
            stores.config,
            clock,
            placement,
            placement.hurry,
            splits.problems,
            are_books_away=lambda: watch is not None and watch.silence() is not None,
        ),
        quarantine=QuarantineAdmin(
            table, reign, clock, fate, event_queue, shipping, settings.replication.quarantine_tries
        ),
        origins=origins,
        splits=splits,
        watches=Watches(
            ProcessWatch(coordination.sessions, clock),
            CheckIns(coordination, peers, KeyedExecutors(), clock, logs),
            watch,
        ),
    )


def begin_store_change(fate: FateEngine, table: str) -> None:
    """Begin to move the tablets of a table, unless an operation on the table runs: the next cycle asks again."""
    args = change_store_args(table)
    locks = set(fate.kinds[STORE_KIND].locks(args))
    if not any(locks & set(running.locks) for running in fate.pending() if not running.ended):
        fate.submit(STORE_KIND, args)


def leader_choice(
    settings: Settings, coordination: Coordination, table: MetadataTable, calls: TServerCalls, event_queue: EventQueue
) -> LeaderChoice:
    """The elections that ``replicas.election`` names."""
    if settings.replicas.election == "coordination":
        return LeaderChoice.by_coordination(table, calls, event_queue.ask_place, coordination)
    return LeaderChoice.by_master(table, calls, event_queue.ask_place)
