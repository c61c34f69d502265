"""All that a lane has to do with the books, in a thread of its own: neither a run nor a task ever waits for them.

Arrives: ranges whose streams the books have to know first, and what ranges came to, those of runs and of tasks that
follow. Leaves, in rounds: the cell and the progress of each new stream (R20); for all that was shipped since the last
round one call to the journal, then one put for each offset, then reports. A round follows a new stream or a run at
once, and what tasks bring after :data:`BOOKS_MS`.

While the books are away, the lane ships streams that they know. All else waits here, bounded: the newest offset and one
report for each stream; new streams wait in the queue. A report says no offset that the books lack. The peer declines
what it has, so after a crash the next worker only ships records again whose offsets waited.

The journal comes first, so that it has each range that is finished in the books. While no replay process answers, the
lines of tasks wait and the cells do not: what the peer acknowledged is true without a line. Runs write their own lines.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.errors import BookkeeperError, TransientError
from bookkeeper.replay.ranges import Range, RangeResult
from bookkeeper.rpc.contract.messages import WorkItem, WorkReport
from bookkeeper.runtime.threads import SELDOM_MS, guarded_thread
from bookkeeper.tserver.shipping import worker_books
from bookkeeper.tserver.shipping.open_streams import OpenStreams
from bookkeeper.tserver.shipping.worker_lane_tools import LaneTools
from bookkeeper.tserver.shipping.worker_plan import (
    LanePlan,
    Outcome,
    StreamId,
    StreamProgress,
    failed,
    report_of,
    stream_of,
)

LOG = logging.getLogger(__name__)

BOOKS_MS = 150
"""The least time between two rounds for what tasks bring. The second one after a record has the streams without new
records (``open_streams``), and comes before the needed offset.
"""

AGAIN_MS = 1_000
"""After a call to the journal that failed, and after books that opened no stream."""

LINES_MAX = 10_000
"""Lines that wait for a replay process; the oldest ones go first."""


class Unreported(Struct):
    """What a stream shipped since its last report."""

    item: WorkItem
    outcome: Outcome
    result: RangeResult | None
    is_owed: bool = False
    """The master waits for it: for an error, or until the range that it handed out is finished."""
    is_over: bool = False
    """A run for it is over: each has a report."""

    @property
    def has_news(self) -> bool:
        """Whether it may be reported: a report without an error ends a row of failures."""
        is_finished = self.is_owed and self.outcome.progress.recorded >= self.item.last_offset
        return self.is_over or is_finished or self.outcome.error is not None or self.result is not None


class JournalLine(Struct, frozen=True):
    """A range with its result row; several that joined each other are one."""

    range: Range
    result: RangeResult


class LaneBooks:
    """The rounds of one lane. Callers have the lane's lock."""

    def __init__(
        self,
        cluster: str,
        tools: LaneTools,
        streams: OpenStreams,
        lane: LanePlan,
        lock: threading.Lock,
        wake: Callable[[], None],
        report: Callable[[Sequence[WorkReport]], None],
    ) -> None:
        """``lane``: the plan of the lane's runs, and ``lock`` its lock. ``wake`` is called under it when the books told
        what ranges wait for.
        """
        self._cluster = cluster
        self._tools = tools
        self._streams = streams
        self._lane = lane
        self._lock = lock
        self._wake = wake
        self._report = report
        self._news = threading.Condition(lock)
        self._hurry = threading.Condition(lock)
        """The thread waits here between two rounds."""
        self._is_urgent = False
        self._unopened: dict[StreamId, WorkItem] = {}
        self._open_again_ns = 0
        self._lines: list[JournalLine] = []
        self._lines_again_ns = 0
        self._unbooked: dict[StreamId, tuple[WorkItem, StreamProgress]] = {}
        self._are_away = False
        """Whether the books refused the last offsets, and the log says so."""
        self._unreported: dict[StreamId, Unreported] = {}
        self._stopping = False
        self._thread = guarded_thread(f"lane-books-{cluster}", self._run)
        self._thread.start()

    # ---- for the lane and its tasks, under the lane's lock

    def open_soon(self, items: Iterable[WorkItem]) -> None:
        """Ask the books about ranges whose streams they have to know first; then ``wake``, or report an error."""
        for item in items:
            if stream_of(item) not in self._unopened:
                self._unopened[stream_of(item)] = item
                self._hasten()

    def look_soon(self) -> None:
        """Read how far other sessions shipped what streams wait for (R24)."""
        self._news.notify_all()

    def add_line(self, r: Range, result: RangeResult) -> None:
        """The result row of a range of a task, for the journal."""
        add_line(self._lines, JournalLine(r, result))
        self._news.notify_all()

    def add(self, item: WorkItem, before: StreamProgress, outcome: Outcome, result: RangeResult | None) -> None:
        """What a range of a task came to."""
        known = self._note(item, before, outcome, result)
        self._news.notify_all()
        if known is not None:  # the master's range has its number
            self._unreported[stream_of(item)].item = known.item

    def add_run(self, item: WorkItem, before: StreamProgress, outcome: Outcome, result: RangeResult | None) -> None:
        """What a range of a run came to."""
        self._note(item, before, outcome, result)
        self._unreported[stream_of(item)].is_over = True
        self._hasten()

    def owe(self, item: WorkItem, progress: StreamProgress) -> None:
        """The master waits for a range that starts no run."""
        key = stream_of(item)
        known = self._unreported.get(key)
        if known is None:
            known = Unreported(item, Outcome(progress, None, None), None)
        self._unreported[key] = Unreported(item, known.outcome, known.result, is_owed=True, is_over=known.is_over)
        self._news.notify_all()

    def stop(self) -> None:
        """End after a last round."""
        self._stopping = True
        self._hasten()

    def join(self, timeout_ms: int) -> None:
        """Wait for the end of the last round; the caller does not have the lock."""
        self._thread.join(timeout_ms / 1000)

    def _note(
        self, item: WorkItem, before: StreamProgress, outcome: Outcome, result: RangeResult | None
    ) -> Unreported | None:
        key = stream_of(item)
        if outcome.progress.recorded > before.recorded and not item.run_id:
            self._unbooked[key] = item, outcome.progress
        known = self._unreported.get(key)
        self._unreported[key] = Unreported(
            item,
            outcome,
            result if known is None else added(known.result, result),
            is_owed=known is not None and known.is_owed,
            is_over=known is not None and known.is_over,
        )
        return known

    def _hasten(self) -> None:
        self._is_urgent = True
        self._news.notify_all()
        self._hurry.notify_all()

    # ---- in the thread

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._wait()
            if not is_last:
                self._open_streams()
                self._look()
            with self._lock:  # at one moment: a later cell would be in the books before its line is in the journal
                lines = self._take_lines() if is_last or self._has_lines() else []
                unbooked = self._take_unbooked()
            self._write_lines(lines)
            self._write_cells(unbooked)
            self._send_reports()
            with self._lock:
                self._hurry.wait_for(lambda: self._stopping or self._is_urgent, BOOKS_MS / 1000)

    def _wait(self) -> bool:
        """Wait for something to do, or for the end; whether it is that."""
        with self._lock:
            while not (self._stopping or self._has_work()):
                self._news.wait(self._wait_ms() / 1000)
            self._is_urgent = False
            return self._stopping

    def _has_work(self) -> bool:
        reads = self._opens_streams() or self._streams.must_look
        return reads or bool(self._unbooked) or self._has_report() or self._has_lines()

    def _wait_ms(self) -> float:
        return min(AGAIN_MS if self._unopened or self._lines else SELDOM_MS, self._streams.look_ms)

    def _opens_streams(self) -> bool:
        return bool(self._unopened) and self._now_ns() >= self._open_again_ns

    def _open_streams(self) -> None:
        """Read the progress of streams, and write the cells of new ones before their first message leaves (R20)."""
        with self._lock:
            items = list(self._unopened.values()) if self._opens_streams() else []
        found: list[tuple[WorkItem, StreamProgress, int]] = []
        refused: list[tuple[WorkItem, BookkeeperError]] = []
        for at, item in enumerate(items):
            try:
                found.append((item, *self._tools.read_progress(item)))
            except BookkeeperError as error:
                if isinstance(error, TransientError):
                    refused += [(later, error) for later in items[at:]]
                    break
                refused.append((item, error))
        new = [item for item, progress, _ in found if not (progress.recorded or item.run_id)]
        try:
            if new:
                worker_books.announce(self._tools.metadata, new)
        except BookkeeperError as error:
            refused += [(item, error) for item in new]
            found = [one for one in found if one[1].recorded or one[0].run_id]
        if not items:
            return
        with self._lock:
            for item, progress, first_seq in found:
                self._lane.open(item, progress, first_seq)
                self._streams.note_progress(stream_of(item))
                del self._unopened[stream_of(item)]
            for item, reason in refused:
                self._refuse(item, reason)
            self._wake()

    def _refuse(self, item: WorkItem, error: BookkeeperError) -> None:
        """The range leaves the queue, and the master hears why; it hands the range out again."""
        LOG.warning("%s for %s waits for the books: %s", item.file, self._cluster, error)
        self._open_again_ns = self._now_ns() + AGAIN_MS * 1_000_000
        key = stream_of(item)
        del self._unopened[key]
        queued = self._lane.queue.pop(key, None)
        outcome = failed(self._lane.progress_of.get(key, StreamProgress(0, 0)), error)
        self.add_run(item if queued is None else queued.item, outcome.progress, outcome, None)
        if not isinstance(error, TransientError):
            self._streams.end(key)

    def _look(self) -> None:
        with self._lock:
            wanted = self._streams.take_look()
        if not wanted:
            return
        try:
            found = {key: worker_books.read_finished(self._tools.metadata, *key) for key in wanted}
        except BookkeeperError as error:
            LOG.warning("streams to %s wait for logs of other tservers: %s", self._cluster, error)
            return
        with self._lock:
            self._streams.note_shipped_elsewhere(found)
            self._wake()

    def _has_lines(self) -> bool:
        return bool(self._lines) and self._now_ns() >= self._lines_again_ns

    def _take_lines(self) -> list[JournalLine]:
        lines, self._lines = self._lines, []
        return lines

    def _take_unbooked(self) -> dict[StreamId, tuple[WorkItem, StreamProgress]]:
        unbooked, self._unbooked = self._unbooked, {}
        return unbooked

    def _write_lines(self, lines: list[JournalLine]) -> None:
        if not lines:
            return
        try:
            self._tools.note([line.range for line in lines], [line.result for line in lines])
        except BookkeeperError as error:
            LOG.warning("%d lines of the journal wait for a replay process: %s", len(lines), error)
            with self._lock:
                self._lines = (lines + self._lines)[-LINES_MAX:]
                self._lines_again_ns = self._now_ns() + AGAIN_MS * 1_000_000

    def _write_cells(self, unbooked: dict[StreamId, tuple[WorkItem, StreamProgress]]) -> None:
        try:
            worker_books.write_finished(self._tools.metadata, unbooked.values())
        except BookkeeperError as error:
            if not self._are_away:
                LOG.warning("finished offsets of %s wait for the books: %s", self._cluster, error)
            self._are_away = True
            with self._lock:
                self._unbooked = {**unbooked, **self._unbooked}
            return
        if unbooked and self._are_away:
            LOG.info("the books have taken the finished offsets of %s", self._cluster)
            self._are_away = False

    def _has_report(self) -> bool:
        return any(one.has_news and key not in self._unbooked for key, one in self._unreported.items())

    def _send_reports(self) -> None:
        """Report the streams whose offsets are in the books."""
        with self._lock:
            for key in [key for key, one in self._unreported.items() if one.result is None and not one.is_over]:
                if key not in self._streams.items:
                    del self._unreported[key]
            due = [key for key, one in self._unreported.items() if key not in self._unbooked and one.has_news]
            found = [self._unreported.pop(key) for key in due]
            waiting = len(self._lane)
        if found:
            self._report([report_of(one.item, one.outcome, one.result, waiting) for one in found])

    def _now_ns(self) -> int:
        return self._tools.clock.boot_ns()


def added(one: RangeResult | None, other: RangeResult | None) -> RangeResult | None:
    """The counts of two results of a stream."""
    if one is None or other is None:
        return one or other
    return replace(
        other,
        records=one.records + other.records,
        bytes=one.bytes + other.bytes,
        filtered=one.filtered + other.filtered,
        resent=one.resent + other.resent,
    )


def add_line(lines: list[JournalLine], new: JournalLine) -> None:
    """Add a line, or let the last one of its stream go on: the journal has one for each stream and round."""
    for at in range(len(lines) - 1, -1, -1):
        if lines[at].range.stream != new.range.stream:
            continue
        if lines[at].result.error is None and lines[at].result.acked_offset + 1 == new.range.first:
            lines[at] = joined(lines[at], new)
            return
        break
    lines.append(new)


def joined(one: JournalLine, later: JournalLine) -> JournalLine:
    """Two lines of a stream as one; the later one goes on where the first one ended."""
    summed = {
        name: getattr(one.result, name) + getattr(later.result, name)
        for name in ("records", "bytes", "filtered", "resent", "blocks", "sent_records", "sent_bytes", "seconds")
    }
    return JournalLine(replace(one.range, last=later.range.last), replace(later.result, **summed))
