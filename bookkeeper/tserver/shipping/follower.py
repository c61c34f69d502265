"""The open streams of one lane, shipped by a replay task that stays: it asks for ranges and brings their results.

Arrives: polls of the task. Leaves: ranges of the open streams, as soon as there are some; what they came to goes to
:class:`LaneBooks`. One batch is under way at a time, at one task. The next task begins before the last one ends,
because a change of tasks costs as much as a run; the last one ends behind its batch. While no task asks, the lane ships
the open streams in runs.

A result counts only for a range that is under way at a living task: ids of ranges and names of tasks never repeat. So
late results, and those for a tserver that had this address before, change nothing. A task that died, or brings no
results in time, loses its ranges: what it still sends, the peer drops. After minutes without a record the task ends,
and its thread and its slot are free; the next record begins another one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.errors import BookkeeperError, IncompatibleError
from bookkeeper.replay.ranges import (
    RANGE_SCHEMA,
    RESULT_SCHEMA,
    TASK_FAILED_CODE,
    Range,
    RangeError,
    RangeResult,
    decode_table,
    encode_table,
    ranges_to_table,
    results_from_table,
    unshipped,
)
from bookkeeper.rpc.contract.messages import WorkItem
from bookkeeper.runtime.threads import SELDOM_MS, guarded_thread
from bookkeeper.tserver.shipping.lane_books import LaneBooks
from bookkeeper.tserver.shipping.older_peers import OlderPeers
from bookkeeper.tserver.shipping.open_streams import OpenStreams
from bookkeeper.tserver.shipping.worker_lane_tools import LaneTools
from bookkeeper.tserver.shipping.worker_plan import (
    LanePlan,
    Outcome,
    Queued,
    StreamId,
    StreamProgress,
    behind_earlier_log,
    failed,
    must_read_books,
    outcome_of,
    ranges_of,
    stream_of,
)

LOG = logging.getLogger(__name__)

FOLLOW_MS = 60_000
OVERLAP_MS = 5_000
"""How long a task gets ranges, and how much earlier the next one begins."""

SILENT_MS = 2_000
"""After so long without a poll, and with nothing under way, the lane ships the streams in runs."""

QUIET_MS = 300_000
"""After so long without a record the task ends, and the next record begins one."""

RECORDS_MAX = 100_000
"""More records of a stream are a backlog, which a run ships faster."""

PAUSE_BASE_MS, PAUSE_MAX_MS = 2_000, 60_000
"""After a task that failed, and at most after many in a row: an earlier version of the replay process has none."""

ENDED = b""


class Task(Struct):
    """A task whose end is not known. ``polls``: a poll may wait here when its task has asked again, or is dead."""

    number: int
    polls: int = 0


class Batch(Struct, frozen=True):
    """Ranges at a task, each with the progress before, since a time (boot clock). ``ranges``: those to ship, by their
    index; the task has them with ids from ``first_id`` on. ``known`` and ``checked_in``: see :class:`OlderPeers`.
    """

    run: str
    queued: list[Queued]
    before: list[StreamProgress]
    ranges: dict[int, Range]
    known: Mapping[StreamId, StreamProgress]
    checked_in: Mapping[str, int]
    first_id: int
    since_ns: int

    def results_of(self, rows: Iterable[RangeResult]) -> dict[int, RangeResult]:
        """The rows that are about these ranges, by their index."""
        found = {row.range_id - self.first_id: row for row in rows}
        return {n: replace(row, range_id=n) for n, row in found.items() if n in self.ranges}


class Follower:
    """The tasks of one lane, one after the other."""

    def __init__(
        self,
        cluster: str,
        tools: LaneTools,
        streams: OpenStreams,
        lane: LanePlan,
        changed: threading.Condition,
        lock: threading.Lock,
        books: LaneBooks,
    ) -> None:
        """``lane``: the plan of the lane's runs, ``lock`` its lock, and ``changed`` where its thread waits."""
        self._cluster = cluster
        self._tools = tools
        self._streams = streams
        self._lane = lane
        self._lane_changed = changed
        self._plan = LanePlan(lane.ranges_max, progress_of=lane.progress_of)
        self._lock = lock
        self._books = books
        self._ends = threading.Condition(lock)
        """Polls wait here for records, and for a later task."""
        self._older = OlderPeers(tools.coordination, tools.clock)
        self._out: Batch | None = None
        self._next_id = 0
        self._numbers = 0
        self._tasks: dict[str, Task] = {}
        self._latest = 0
        """The number of the latest task that asked."""
        self._polled_ns: int | None = None
        self._waiting = 0
        """Polls that wait for records."""
        self._next_task_ns = 0
        self._record_ns = self._now_ns()
        """When records were shipped last, by a task or beside it."""
        self._failures = 0
        self._stopped = False

    # ---- for the lane, under its lock

    def give_up_overdue(self) -> None:
        """Take ranges back from a task that does not come with their results."""
        replay = self._tools.settings.replay
        patience_ms = replay.message_timeout_ms + replay.run_budget_ms
        if self._out is not None and self._now_ns() - self._out.since_ns > patience_ms * 1_000_000:
            LOG.warning("a task that follows for %s brought no results in %d ms", self._cluster, patience_ms)
            self._end_task(self._out.run, f"the task brought no results in {patience_ms} ms")

    @property
    def is_active(self) -> bool:
        """Whether a task asks for ranges, or ships some."""
        if self._plan.running or self._waiting:
            return True
        return self._polled_ns is not None and self._now_ns() - self._polled_ns < SILENT_MS * 1_000_000

    def follows(self, item: WorkItem) -> bool:
        """Whether a range of the master starts no run: a task ships its stream. The master gets a report."""
        key = stream_of(item)
        progress = self._plan.progress_of.get(key)
        if not self.is_active or key not in self._streams.items or progress is None:
            return False
        if is_for_runs(item, progress.offset):
            return False
        self._books.owe(item, progress)
        return True

    def take_over(self) -> None:
        """Ranges that wait for a run and need none. Without this a run under load never is the last one: while it
        ships, the master hands out the records behind it.
        """
        queue = self._lane.queue
        for key in [key for key, queued in queue.items() if not self._lane.waits_for_books(queued)]:
            if self.follows(queue[key].item):
                del queue[key]

    def wake(self) -> None:
        """Records became durable, or the lane has shipped some."""
        self._ends.notify_all()

    def note_record(self) -> None:
        """Runs ship records of open streams."""
        self._record_ns = self._now_ns()

    def begin_due(self) -> None:
        """Begin a task in a thread of its own, if it is time for one."""
        if self._stopped or self._now_ns() < self._next_task_ns or self._is_quiet():
            return
        if self._streams.may_be_followed():
            self._numbers += 1
            run = f"{self._tools.own_logs.session_id}/{self._cluster}/{self._numbers}"
            self._tasks[run] = Task(self._numbers)
            if self._polled_ns is None:
                self._polled_ns = self._now_ns()  # a run would take as long to begin, and hold up its streams
            self._next_task_ns = self._now_ns() + (FOLLOW_MS - OVERLAP_MS) * 1_000_000
            guarded_thread(f"follow-{self._cluster}-{self._numbers}", partial(self._keep_task, run)).start()

    @property
    def wait_ms(self) -> float:
        """The time until the lane has to look again whether a task is due, or silent."""
        if self._is_quiet() and not self._tasks:
            return SELDOM_MS
        due_ms = -(-(self._next_task_ns - self._now_ns()) // 1_000_000)
        return min(SILENT_MS, due_ms) if due_ms > 0 else SILENT_MS

    @property
    def busy(self) -> Collection[StreamId]:
        """The streams that a task ships now, or that have to go on there."""
        return self._plan.running.keys() | self._plan.queue.keys()

    def stop(self) -> None:
        """End the task at its next poll."""
        self._stopped = True
        self._ends.notify_all()

    # ---- polls

    def poll(self, run: str, results: bytes, wait_ms: int) -> bytes:
        """Take the results of a task's last ranges, and return its next ones: see the contract."""
        rows = results_from_table(decode_table(results, RESULT_SCHEMA))
        with self._lock:
            task = self._tasks.get(run)
            out = self._out
        if task is None:
            return ENDED
        if out is not None and out.run == run:
            self._take_results(out, rows)
        with self._lock:
            if task.number > self._latest:
                self._latest = task.number
                self._ends.notify_all()
            batch = self._next(run, task, wait_ms)
        if batch is None:
            return ENDED
        return encode_table(ranges_to_table(self._hand_out(run, batch)).to_batches() if batch else [], RANGE_SCHEMA)

    def _take_results(self, out: Batch, rows: Sequence[RangeResult]) -> None:
        """Settle a batch; before that, and before a later record goes to the peer, note that the peer is older."""
        results = out.results_of(rows)
        try:
            is_older = self._older.note(out.ranges.values(), results, out.before, out.known, out.checked_in)
        except BookkeeperError as error:
            with self._lock:
                self._settle(out, {}, f"the result could not be noted: {error.message}", error)
            return
        with self._lock:
            if is_older:
                self._plan.confirm_nothing()
            self._settle(out, results, "the task came back without results")

    def _next(self, run: str, task: Task, wait_ms: int) -> list[Queued] | None:
        """The next ranges; none when the time is over, None when the task is."""
        task.polls = poll = task.polls + 1
        until_ns = self._now_ns() + wait_ms * 1_000_000
        while True:
            self.begin_due()
            is_over = self._stopped or self._is_quiet() or not self._streams.newest
            if is_over or task.number < self._latest or run not in self._tasks:
                return None
            if task.polls != poll:
                return []
            self._polled_ns = now_ns = self._now_ns()
            if not self._plan.running:
                self._offer_due()
                if self._plan.queue:
                    self._record_ns = now_ns
                    return self._plan.take()
            if now_ns >= until_ns:
                return []
            limit_ms = SELDOM_MS if self._plan.running else self._streams.wait_ms()
            self._wait(min(until_ns - now_ns, limit_ms * 1_000_000))

    def _offer_due(self) -> None:
        """Queue what may be shipped now. Streams that the books have to know first wait for them, and no other does."""
        self.take_over()
        for item in self._streams.due(self._plan, self._lane.queue.keys() | self._lane.running.keys()):
            if is_for_runs(item, item.first_offset - 1):
                continue
            if must_read_books(self._plan.progress_of.get(stream_of(item)), item):
                self._books.open_soon([item])
            else:
                self._plan.offer(item)
        if self._streams.must_look:
            self._books.look_soon()

    def _wait(self, limit_ns: float) -> None:
        self._waiting += 1
        try:
            self._ends.wait(limit_ns / 1e9)
        finally:
            self._waiting -= 1

    def _hand_out(self, run: str, batch: list[Queued]) -> list[Range]:
        """The ranges of a batch, whose streams have their cells (R20)."""
        with self._lock:
            before = self._plan.progress_before(batch)
            known = dict(self._plan.progress_of) if any(not progress.offset for progress in before) else {}
        try:
            ranges = ranges_of(batch, before, self._tools.settings.instance.instance_id)
            ranges = [behind_earlier_log(r, known, self._tools.goes_on_here) for r in ranges]
            ranges, _ = self._tools.placed(ranges)  # own logs: their host is here
            checked_in = self._older.checked_in(ranges)
        except BaseException:
            with self._lock:
                self._plan.settle([])
            raise
        with self._lock:
            if run not in self._tasks:  # it died meanwhile: nothing was handed out
                self._plan.settle([])
                self._lane_changed.notify_all()
                return []
            first_id, self._next_id = self._next_id, self._next_id + len(batch)
            by_index = {r.range_id: r for r in ranges}
            self._out = Batch(run, batch, before, by_index, known, checked_in, first_id, self._now_ns())
        return [replace(r, range_id=first_id + r.range_id) for r in ranges]

    def _settle(
        self, out: Batch, results: Mapping[int, RangeResult], lost: str, error: BookkeeperError | None = None
    ) -> None:
        """Take the results of a batch, once. ``lost``: why there is none of some ranges, an ``error`` of all."""
        if self._out is not out:
            return
        self._out = None
        outcomes = [self._outcome(out, n, results.get(n), error) for n in range(len(out.queued))]
        settled = list(zip(out.queued, outcomes, strict=True))
        self._plan.settle(settled)
        self._streams.settle(settled)
        lost_error = RangeError(TASK_FAILED_CODE, lost, transient=True)
        for n, r in out.ranges.items():
            self._books.add_line(r, results.get(n) or unshipped(r, lost_error))
        for n, (queued, outcome) in enumerate(settled):
            # The master hears why; the stream does not pause, because a run may ship what killed or stopped a task.
            is_lost = error is None and n in out.ranges and n not in results
            told = replace(outcome, error=lost_error) if is_lost else outcome
            self._books.add(queued.item, out.before[n], told, results.get(n))
        self._ends.notify_all()  # at a change of tasks the next one waits for the end of this batch
        if self._lane.queue:
            self._lane_changed.notify_all()

    def _outcome(self, out: Batch, n: int, row: RangeResult | None, error: BookkeeperError | None) -> Outcome:
        queued, before = out.queued[n], out.before[n]
        if row is not None and row.acked_offset > out.ranges[n].last:
            last = out.ranges[n].last
            error = IncompatibleError(f"a task acknowledged record {row.acked_offset} of a range that ends at {last}")
            LOG.error("%s for %s: %s", queued.item.file, self._cluster, error.message)
        if error is not None:
            return failed(before, error)
        return outcome_of(queued, before, row, out.checked_in.get(queued.item.peer_instance_id, 0))

    # ---- tasks

    def _keep_task(self, run: str) -> None:
        problem = ""
        try:
            self._tools.begin_task(self._tools.replay_address(), self._cluster, run, FOLLOW_MS)
        except BookkeeperError as error:
            problem = error.message
        with self._lock:
            self._note_end(run, problem)

    def _note_end(self, run: str, problem: str) -> None:
        number = self._tasks[run].number if run in self._tasks else 0
        self._end_task(run, problem or "the task ended without results")
        if problem and not self._stopped:
            level = logging.INFO if self._failures else logging.WARNING
            LOG.log(level, "no task follows for %s, so runs ship: %s", self._cluster, problem)
        self._failures = self._failures + 1 if problem else 0
        if number == self._numbers:
            pause_ms = min(PAUSE_MAX_MS, PAUSE_BASE_MS << min(self._failures - 1, 10)) if problem else 0
            self._next_task_ns = self._now_ns() + pause_ms * 1_000_000

    def _end_task(self, run: str, problem: str) -> None:
        self._tasks.pop(run, None)
        if self._out is not None and self._out.run == run:
            self._settle(self._out, {}, problem)
        if not self._tasks:
            self._polled_ns = None
            self._plan.queue.clear()  # runs ship what the task left behind
        self._ends.notify_all()
        self._lane_changed.notify_all()

    def _is_quiet(self) -> bool:
        """Whether no record came for so long that no task is worth its slot."""
        return not self._plan.running and self._now_ns() - self._record_ns >= QUIET_MS * 1_000_000

    def _now_ns(self) -> int:
        return self._tools.clock.boot_ns()


def is_for_runs(item: WorkItem, finished: int) -> bool:
    """Whether a run ships the rest of a range: it is long, or has quarantined records in it (R19)."""
    return item.last_offset - finished > RECORDS_MAX or any(blocks.last > finished for blocks in item.passed)
