"""What followed streams leave behind, off the way of their rows: lines of the journal, finished cells, and reports.

Arrives: the outcome of each batch of a task that follows. Leaves: for all batches since the last round one call to the
journal, then one put for each offset, then reports. A round follows the first batch at once, and the next one after
:data:`BOOKS_MS`. The journal comes first, so that it has each range that is finished in the books. While no replay
process answers, the lines wait and the cells do not: what the peer acknowledged is true without a line.
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
    report_of,
    stream_of,
)

LOG = logging.getLogger(__name__)

BOOKS_MS = 200
"""The least time between two rounds."""

LINES_AGAIN_MS = 1_000
"""After a call to the journal that failed."""

LINES_MAX = 10_000
"""Lines that wait for a replay process; the oldest ones go first."""


class Unreported(Struct):
    """What a stream shipped since its last report."""

    item: WorkItem
    outcome: Outcome
    result: RangeResult | None
    is_owed: bool = False
    """The master waits for it: for an error, or until the range that it handed out is finished."""

    @property
    def has_news(self) -> bool:
        """Whether it may be reported: a report without an error ends a row of failures."""
        is_finished = self.is_owed and self.outcome.progress.recorded >= self.item.last_offset
        return is_finished or self.outcome.error is not None or self.result is not None


class JournalLine(Struct, frozen=True):
    """A range with its result row; several that joined each other are one."""

    range: Range
    result: RangeResult


class FollowedBooks:
    """The rounds of one lane, in a thread of their own. Callers have the lane's lock."""

    def __init__(
        self,
        cluster: str,
        tools: LaneTools,
        streams: OpenStreams,
        lane: LanePlan,
        lock: threading.Lock,
        reporting: threading.Lock,
        report: Callable[[Sequence[WorkReport]], None],
    ) -> None:
        """``lane``: the plan of the lane's runs, and ``lock`` its lock. Who sends reports has ``reporting``."""
        self._cluster = cluster
        self._tools = tools
        self._streams = streams
        self._lane = lane
        self._lock = lock
        self._reporting = reporting
        self._report = report
        self._news = threading.Condition(lock)
        self._lines: list[JournalLine] = []
        self._lines_again_ns = 0
        self._unbooked: dict[StreamId, tuple[WorkItem, StreamProgress]] = {}
        self._unreported: dict[StreamId, Unreported] = {}
        self._stopping = threading.Event()
        self.thread = guarded_thread(f"followed-books-{cluster}", self._run)
        self.thread.start()

    def add_line(self, r: Range, result: RangeResult) -> None:
        """The result row of a range, for the journal."""
        add_line(self._lines, JournalLine(r, result))
        self._news.notify_all()

    def add(self, item: WorkItem, before: StreamProgress, outcome: Outcome, result: RangeResult | None) -> None:
        """What a range came to."""
        key = stream_of(item)
        if outcome.progress.recorded > before.recorded:
            self._unbooked[key] = item, outcome.progress
        known = self._unreported.get(key)
        self._unreported[key] = Unreported(
            item if known is None else known.item,
            outcome,
            result if known is None else added(known.result, result),
            is_owed=known is not None and known.is_owed,
        )
        self._news.notify_all()

    def owe(self, item: WorkItem, progress: StreamProgress) -> None:
        """The master waits for a range that starts no run."""
        key = stream_of(item)
        known = self._unreported.get(key)
        if known is None:
            known = Unreported(item, Outcome(progress, None, None), None)
        self._unreported[key] = Unreported(item, known.outcome, known.result, is_owed=True)
        self._news.notify_all()

    def drop_reports(self, streams: Iterable[StreamId]) -> None:
        """The lane shipped these and reports them: what is known here is older."""
        for key in streams:
            self._unreported.pop(key, None)

    def stop(self) -> None:
        """End after a last round."""
        self._stopping.set()
        self._news.notify_all()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._wait()
            is_last = self._stopping.is_set()
            self._write_lines()
            if self._write_cells():
                with self._reporting:
                    self._send_reports()
            self._tools.clock.wait(self._stopping, BOOKS_MS)

    def _wait(self) -> None:
        """Wait for something to do, or for the end."""
        with self._lock:
            while not (self._stopping.is_set() or self._unbooked or self._has_report() or self._has_lines()):
                self._news.wait((LINES_AGAIN_MS if self._lines else SELDOM_MS) / 1000)

    def _has_lines(self) -> bool:
        return bool(self._lines) and self._now_ns() >= self._lines_again_ns

    def _write_lines(self) -> None:
        with self._lock:
            if not self._has_lines():
                return
            lines, self._lines = self._lines, []
        try:
            self._tools.note([line.range for line in lines], [line.result for line in lines])
        except BookkeeperError as error:
            LOG.warning("%d lines of the journal wait for a replay process: %s", len(lines), error)
            with self._lock:
                self._lines = (lines + self._lines)[-LINES_MAX:]
                self._lines_again_ns = self._now_ns() + LINES_AGAIN_MS * 1_000_000

    def _write_cells(self) -> bool:
        """Whether the books have all that was to be booked."""
        with self._lock:
            unbooked, self._unbooked = self._unbooked, {}
        try:
            worker_books.write_finished(self._tools.metadata, unbooked.values())
        except TransientError as error:
            LOG.warning("finished offsets of %s can't be written, trying again: %s", self._cluster, error)
            with self._lock:
                self._unbooked = {**unbooked, **self._unbooked}
            return False
        return True

    def _has_report(self) -> bool:
        return any(one.has_news for one in self._unreported.values())

    def _send_reports(self) -> None:
        with self._lock:
            for key in [key for key, one in self._unreported.items() if one.result is None]:
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
