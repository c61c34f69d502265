"""The master's thread: one loop that reads the books, places tablets and hands out work.

Arrives: events (``event_queue``), the clock. Leaves: full cycles at their interval and after changes beyond one
tserver's logs; quick cycles, which read only the tablets of nudging tservers and tablets that changed; ranges for
workers. Reports of finished ranges start no cycle, unless another range may leave behind them. Each stage may be
repeated or cut at any point. A TransientError ends its cycle; the next one starts over, and the status shows why.
Rules: R6-R10 and R24.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Collection, Iterable

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.config.processes import MasterSettings
from bookkeeper.coordination.config_tree import ClusterConfig, TableConfig
from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.errors import BookkeeperError, LeaseLostError
from bookkeeper.master.books.books_cycle import Books, Owners, View
from bookkeeper.master.books.tserver_recovery import TServerRecovery, unsealed_sessions
from bookkeeper.master.calls.tserver_calls import TServerCalls
from bookkeeper.master.calls.tservers import TSERVER_KIND
from bookkeeper.master.cycle.event_queue import EventQueue, News
from bookkeeper.master.cycle.header_times import HEADERS_LANE
from bookkeeper.master.cycle.work_dispatch import WorkDispatcher, work_lane
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.shipments import retry_after_ns
from bookkeeper.master.placement.placement import ClusterState, Placement
from bookkeeper.master.placement.tablet_orders import order_lanes
from bookkeeper.master.replicas.failover import LogFailover
from bookkeeper.master.replicas.repairer import Repairer
from bookkeeper.storage.volume.names import log_directory

LOG = logging.getLogger(__name__)

FAILURE_WAIT_MAX_MS = 2_000


class Health(Struct):
    """The health of the thread; others read it."""

    full_cycles: int = 0
    quick_cycles: int = 0
    failures: int = 0
    failures_in_row: int = 0
    last_error: str = ""
    full_ms: float = 0.0
    quick_ms: float = 0.0
    known_ns: int | None = None
    """Boot clock at the start of the scan behind the current snapshot; None until the first full cycle of the reign."""

    def succeed(self) -> None:
        """A cycle is complete."""
        self.last_error, self.failures_in_row = "", 0

    def fail(self, error: BookkeeperError) -> None:
        """A cycle ended with an error."""
        self.failures += 1
        self.failures_in_row += 1
        self.last_error = f"{error.code}: {error.message}"

    def note_full(self, took_ms: float) -> None:
        """The duration of a full cycle."""
        self.full_cycles += 1
        self.full_ms = took_ms

    def note_quick(self, took_ms: float) -> None:
        """The duration of a quick cycle."""
        self.quick_cycles += 1
        self.quick_ms = took_ms

    def note_snapshot(self, began_ns: int) -> None:
        """A snapshot is current whose scan began at this time."""
        self.known_ns = began_ns


class Pacer(Struct):
    """At most one cycle in ``interval_ns`` on average; up to ``burst`` may follow each other at once, so that a nudge,
    the report after it and another tserver's nudge do not wait for each other.
    """

    interval_ns: int
    burst: int = 3
    _earned_ns: int = 0

    def hold_ns(self, began_ns: int, now_ns: int) -> int:
        """The wait from now until the next cycle, ns, after a cycle that began at ``began_ns``."""
        self._earned_ns = max(self._earned_ns, began_ns) + self.interval_ns
        return max(0, self._earned_ns - self.burst * self.interval_ns - now_ns)


class CycleTiming:
    """The times of cycles: full ones at their interval, quick ones at most so often, failed ones after a pause."""

    def __init__(self, clock: Clock, rng: random.Random, settings: MasterSettings) -> None:
        self.clock = clock
        self.rng = rng
        self.settings = settings
        self._pacer = Pacer(settings.cycle_min_interval_ms * 1_000_000)

    def next_full_ns(self) -> int:
        """The time at which the next full cycle is due, after one that begins now."""
        return self.clock.boot_ns() + self.settings.scan_interval_ms * 1_000_000

    def pause_after_failures(self, stop: threading.Event, failures: int) -> None:
        """Pause after so many failures in a row."""
        base_ms = self.settings.cycle_min_interval_ms
        self.clock.wait(stop, retry_after_ns(failures, base_ms, FAILURE_WAIT_MAX_MS, self.rng) / 1e6)

    def hold_back(self, stop: threading.Event, began_ns: int) -> None:
        """Wait when there were too many cycles lately; the last one began at ``began_ns``."""
        wait_ms = self._pacer.hold_ns(began_ns, self.clock.boot_ns()) / 1e6
        if wait_ms > 0:
            self.clock.wait(stop, wait_ms)

    def wait_until(self, due_ns: int, event: threading.Event) -> None:
        """Wait for an event, at most until ``due_ns``."""
        due_ms = (due_ns - self.clock.boot_ns()) / 1e6
        if due_ms > 0:
            self.clock.wait(event, due_ms)


class Cycle(Struct):
    """One reign's thread. All methods but :meth:`run` are stages; tests call them one by one."""

    timing: CycleTiming
    calls: TServerCalls
    books: Books
    placement: Placement
    repairer: Repairer
    failover: LogFailover
    recovery: TServerRecovery
    dispatcher: WorkDispatcher
    event_queue: EventQueue
    config: ClusterConfig | None = None
    health: Health = field(default_factory=Health)
    live: dict[str, str] = field(default_factory=dict)
    _full_at_ns: int = 0
    _full_read_ns: int = 0
    _reads_ns: dict[str, int] = field(default_factory=dict)
    """When the last quick read of a session's tablets began, since the last full one (boot clock)."""

    # ---- the loop

    def run(self, stop: threading.Event) -> None:
        """Loop until ``stop`` is set. Raises LeaseLostError when the reign is over."""
        while not stop.is_set():
            began_ns = self.timing.clock.boot_ns()
            self.run_once()
            self._pause(stop, began_ns)

    def run_once(self) -> None:
        """One cycle, full or quick. An error is shown in the status, and the next cycle is a full one."""
        began_ns = self.timing.clock.boot_ns()
        news = self.event_queue.take()
        try:
            self._cycle(news, began_ns)
        except LeaseLostError:
            raise
        except BookkeeperError as error:
            self._failed(error)
        else:
            self.health.succeed()

    def _cycle(self, news: News, began_ns: int) -> None:
        self.dispatcher.absorb(news.reports, news.returned, self.books.snapshot.files)
        if news.has_only_progress and began_ns < self._due_ns() and not self._may_assign():
            return
        if news.fresh_replay:
            self.dispatcher.retry_now()
        self.dispatcher.press(news.retries, self.books.snapshot.files)
        if news.full or began_ns >= self._full_at_ns or self._config_changed():
            self.full()
            self.health.note_full((self.timing.clock.boot_ns() - began_ns) / 1e6)
        else:
            self._place_news(news)
            self.quick(news.sessions | self.unsafe_sessions())
            self.health.note_quick((self.timing.clock.boot_ns() - began_ns) / 1e6)

    def _failed(self, error: BookkeeperError) -> None:
        self.health.fail(error)
        self._full_at_ns = 0
        LOG.warning("the cycle failed, and a full one follows: %s", self.health.last_error)

    def _config_changed(self) -> bool:
        """Whether the present configuration requires a full cycle (rule R6)."""
        if self.config is None:
            return True
        stores = self.books.stores
        if stores.coordination.generation() == self.config.generation:
            return False
        config = stores.config()
        if not concerns_tablets_only(self.config, config):
            return True
        self.config = config
        self.books.adopt(config)
        return False

    def _place_news(self, news: News) -> None:
        """Place tablets that are new or changed; the cost grows with these alone."""
        rows = sorted(news.rows.union(*(self.books.refresh_tablets(*part) for part in news.parts)))
        due_ns = self.placement.due_ns()
        if news.place or (due_ns is not None and self.timing.clock.boot_ns() >= due_ns):
            self.place()
        elif rows:
            self.placement.place_some(self.books.snapshot.tablets, rows, self._cluster(self.calls.tservers.sessions()))

    def _pause(self, stop: threading.Event, began_ns: int) -> None:
        """Wait for events or for the next due time, and pause when there were too many cycles lately."""
        failures = self.health.failures_in_row
        if failures:
            self.timing.pause_after_failures(stop, failures)
            return
        self.timing.hold_back(stop, began_ns)
        self.timing.wait_until(self._due_ns(), self.event_queue.event)

    def _due_ns(self) -> int:
        """The time at which the next cycle has to run, with or without events."""
        if self.unsafe_sessions():
            return 0
        due = (self._full_at_ns, self.dispatcher.next_try_ns(), self.placement.due_ns())
        return min(due_ns for due_ns in due if due_ns is not None)

    # ---- a full cycle

    def full(self) -> None:
        """One full cycle: read, close, make work, remove, check the quarantine, place, assign."""
        began_ns = self.timing.clock.boot_ns()
        view = self.books.read()
        self._full_at_ns = self.timing.next_full_ns()
        self.books.close(view, self.owners)
        self.books.keep(view)
        self.dispatcher.note_write_times(self.books.growths(view), self._full_read_ns)
        self.dispatcher.note_full_look(began_ns)
        self._full_read_ns = began_ns
        self._reads_ns.clear()
        self.settle(view, self.books.remove(view))
        self.health.note_snapshot(began_ns)
        self.dispatcher.refresh_quarantine(view.configured)
        self.place()
        self.dispatcher.refill(view.behind, view.snapshot.files)
        self.assign()

    def settle(self, view: View, removed: Outstanding) -> None:
        """Make the view the current one."""
        self.books.publish(view, removed)
        self.config = view.config
        self.dispatcher.drop_ended(view.snapshot.files)
        if removed:
            LOG.info("%d files are replicated everywhere; their books are removed", len(removed))
        for problem in view.snapshot.problems:
            LOG.error("a cell of the books does not parse: %s", problem)
        if len(self.books.unsafe()) > 0 and not self.unsafe_sessions():
            # files of dead sessions: only a second full scan makes them safe
            self._full_at_ns = self.timing.clock.boot_ns()

    def owners(self) -> Owners:
        """The live sessions, read now; ranges in flight at a dead tserver are free again."""
        live = self.calls.tservers.live()
        for session in [session for session in self.live if session not in live]:
            self.dispatcher.shipping.session_ended(session)
        self.live = live
        lanes = {lane for session in live for lane in (work_lane(session), *order_lanes(session))}
        self.calls.lanes.retain(lanes | {HEADERS_LANE})
        return Owners(self.calls.tservers.session_of, live)

    def place(self) -> None:
        """Place tablets, and forget dead tservers without logs."""
        if self.config is None:
            return
        tablets, found = self.books.snapshot.tablets, self.calls.tservers.sessions_of_all_kinds()
        sessions = [info for info in found if info.kind == TSERVER_KIND]
        self.failover.run(tablets, self.config, sessions, self.placement.claimed())
        self.placement.place(tablets, self._cluster(sessions))
        self.repairer.run(tablets, self.config, sessions, self.placement.busy_rows())
        for session in self.recovery.forget(sessions, tablets.counts.total.keys()):
            LOG.info("dead session %s has no log and no tablet: its record is removed", session)
        self.recovery.forget_others(found)

    def _cluster(self, sessions: Collection[SessionInfo]) -> ClusterState:
        tables = {} if self.config is None else self.config.tables
        return ClusterState(
            live={info.session_id: info.address for info in sessions if info.alive},
            unsealed=unsealed_sessions(sessions, self.calls.tservers),
            deleted=[table_id for table_id, table in tables.items() if table.state == "deleting"],
            hosts={info.session_id: info.host for info in sessions if info.alive and info.host is not None},
            released=self.failover.released,
        )

    # ---- a quick cycle

    def quick(self, sessions: Iterable[str]) -> None:
        """Read the tablets of these sessions, then assign. A second read makes the offsets of the first one safe to
        ship, so work leaves in the cycle of its nudge.
        """
        live = sorted(session for session in sessions if session in self.live)
        for _ in range(2):
            for session in live:
                prefix, began_ns = f"{log_directory(session)}/".encode(), self.timing.clock.boot_ns()
                growths = self.books.refresh(session, prefix)
                self.dispatcher.note_growth(growths, self._reads_ns.get(session, self._full_read_ns))
                self._reads_ns[session] = began_ns
            if not self.unsafe_sessions():
                break
        self.assign()

    def unsafe_sessions(self) -> set[str]:
        """Live sessions with records that are not safe to ship yet."""
        owners = {self.calls.tservers.session_of(entry.name()) for entry in self.books.unsafe()}
        return {session for session in owners if session is not None and session in self.live}

    def _may_assign(self) -> bool:
        return self.dispatcher.may_assign(self.books.snapshot.files, self.live)

    def assign(self) -> None:
        """Hand out the ranges that may be shipped now."""
        if self.config is not None:
            self.dispatcher.assign(self.books.snapshot.files, self.live, self.config.clusters)


def concerns_tablets_only(before: ClusterConfig, after: ClusterConfig) -> bool:
    """Whether two configurations have the same targets for every file: only states, properties or groups of tables, or
    users differ. Removed tables and changed targets or peers need a full cycle.
    """
    gone = [id_ for id_, table in before.tables.items() if id_ not in after.tables or has_begun_to_go(table, after)]
    targets = {id_: table.targets for id_, table in before.tables.items() if table.targets}
    return (
        not gone
        and targets == {id_: table.targets for id_, table in after.tables.items() if table.targets}
        and before.clusters == after.clusters
        and before.instance == after.instance
    )


def has_begun_to_go(table: TableConfig, after: ClusterConfig) -> bool:
    """Whether the deletion of a table began between the two configurations."""
    return table.state != "deleting" and after.tables[table.table_id].state == "deleting"
