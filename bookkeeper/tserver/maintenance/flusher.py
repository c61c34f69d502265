"""Flushes: memtables become segments of their tablet, and logs that recovery needs no more lose their cells.

``tablet_states`` makes the segments part of the tablet. With one replica it puts segments and ``tablet:flush`` in one
row put at the rank of the flush, and only then deletes ``log:`` cells. So after a crash the books have all of a flush
or nothing; when only the deletes are missing, loading finds nothing to replay and deletes then. A flush that fails
half-way keeps its point, and completes before another one begins, because its rank has its value (R1). Rules: R1, R15,
R18 and R24.
"""

from __future__ import annotations

import logging
import threading

import pyarrow as pa

from bookkeeper.errors import (
    BookkeeperError,
    LeaseLostError,
    NoSpaceError,
    OverloadedError,
    TransientError,
    UnavailableError,
    unavailable,
)
from bookkeeper.runtime.threads import BackgroundThread
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.tserver.books.wal_bookkeeper import WalBookkeeper
from bookkeeper.tserver.maintenance.containment import contained
from bookkeeper.tserver.maintenance.flush_schedule import MEMTABLES_MAX, TICK_MS, FlushSchedule
from bookkeeper.tserver.maintenance.tablet_states import TabletStates
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.tablets.tablet_flushes import FlushPoint
from bookkeeper.tserver.tablets.tablet_registry import Registry
from bookkeeper.tserver.tablets.tablet_segments import named_state
from bookkeeper.tserver.write.commit_path import CommitPath
from bookkeeper.tserver.write.control_submissions import FlushSubmission

LOG = logging.getLogger(__name__)

FLUSH = "a flush"
FLUSHES_TO_EMPTY_MAX = 4
"""The maximum number of flushes of an unload. Two are enough: the one that runs, and one for the later records."""


class Flusher:
    """Flushes on demand in the caller's thread, and when due in a thread of its own."""

    def __init__(
        self,
        registry: Registry,
        path: CommitPath,
        bookkeeper: WalBookkeeper,
        states: TabletStates,
        schedule: FlushSchedule,
        thread: BackgroundThread,
    ) -> None:
        self._registry = registry
        self._path = path
        self._bookkeeper = bookkeeper
        self._states = states
        self._schedule = schedule
        self._thread = thread
        self._flushes_done = 0
        self._written = threading.Condition()

    @property
    def flushes_done(self) -> int:
        """Flushes since the start."""
        return self._flushes_done

    # ---- room in memory

    def make_room(self, tablet: ServedTablet, patience_ms: float = 0) -> None:
        """Call before records are submitted for a tablet: a full memtable is flushed. When flushes are too slow, this
        waits for up to ``patience_ms``, then raises OverloadedError. Any thread.
        """
        limit = self._schedule.memtable_bytes(tablet)
        if tablet.data.active_bytes >= limit:
            self.hurry()
        with self._written:
            if self._written.wait_for(lambda: tablet.data.memory_bytes < MEMTABLES_MAX * limit, patience_ms / 1000):
                return
        raise OverloadedError(
            f"tablet {tablet.extent} holds {tablet.data.memory_bytes} bytes that are not flushed yet: back off"
        )

    # ---- one flush

    def flush(self, tablet: ServedTablet) -> None:
        """Complete the flush under way, if any, and flush the records in memory now. Raises TransientError: then
        nothing is lost, and the next flush completes this one. A tablet that has left needs no flush: it was flushed
        then, or its table is deleted, and its row with it.
        """
        with tablet.flushes.lock:
            if not self._registry.holds(tablet):
                return
            self.complete(tablet)
            self._path.begin_flush(FlushSubmission(self._path.context, tablet, self._bookkeeper.release))
            self.complete(tablet)

    def complete(self, tablet: ServedTablet) -> None:
        """Complete the flush under way, if any; its state comes before any later one. With the flush lock held."""
        if tablet.flushes.point is not None:
            self._complete(tablet, tablet.flushes.point)

    def empty(self, tablet: ServedTablet) -> None:
        """Flush a tablet that takes no more writes, until no record is in memory and recovery needs no log. Raises
        UnavailableError when records are left, and the errors of :meth:`flush`.
        """
        for _ in range(FLUSHES_TO_EMPTY_MAX):
            self.flush(tablet)
            if not tablet.data.memory_records and not tablet.flushes.needed_logs():
                return
        raise UnavailableError(f"tablet {tablet.extent} keeps {tablet.data.memory_records} records in memory")

    def _complete(self, tablet: ServedTablet, point: FlushPoint) -> None:
        """Make the segments of a point part of the tablet. A retry writes no segment again."""
        segments = point.segments
        if segments is None:
            flush_id = tablet.flushes.take_flush_id()
            segments = self._write_segments(tablet, point, flush_id)
            named = [*tablet.data.segments, *segments]
            point.segments_written(segments, named_state(point.state, flush_id, named, tablet.flushes.compacted))
        self._states.flushed(tablet, point, segments, self._freed)
        self._flushes_done += 1
        self._schedule.flush_done()

    def _freed(self) -> None:
        with self._written:
            self._written.notify_all()

    def _write_segments(self, tablet: ServedTablet, point: FlushPoint, flush_id: int) -> list[SegmentRef]:
        if point.frozen is None:
            return []
        try:
            return list(tablet.data.write_segments(point.frozen, flush_id))
        except OSError as error:
            raise unavailable(f"segments of tablet {tablet.extent} can't be written", error) from error

    def fills(self, tablet: ServedTablet) -> bool:
        """See :meth:`FlushSchedule.fills`."""
        return self._schedule.fills(tablet)

    # ---- the thread

    def start(self) -> None:
        """Start the thread."""
        self._thread.start(self._flush_due, TICK_MS)

    def hurry(self) -> None:
        """Wake the thread, because a flush may be due; returns at once."""
        self._thread.wake()

    def close(self) -> None:
        """End the thread after the flush under way."""
        self._thread.close()

    def _flush_due(self) -> None:
        tablets = [tablet for tablet in self._registry.all() if tablet.accepting]
        for flush in self._schedule.due(tablets, self._path.wal_name):
            if self._thread.closing.is_set():
                break
            self._flush_or_log(flush.tablet)
            self._schedule.flush_ended(flush)
        self._give_back_memory()

    def _give_back_memory(self) -> None:
        """Give freed memory back to the system when no flush came for a while; until then the next flush reuses it."""
        if self._schedule.memory_is_idle():
            pa.default_memory_pool().release_unused()

    def _flush_or_log(self, tablet: ServedTablet) -> None:
        try:
            with contained(tablet.extent, FLUSH):
                self.flush(tablet)
            tablet.work_succeeded(FLUSH)
            tablet.note_room(True)
        except LeaseLostError:
            raise
        except NoSpaceError as error:
            LOG.warning("the flush of tablet %s waits for room: %s", tablet.extent, error)
            tablet.note_room(False)
            self._schedule.wait_to_retry(self._thread.closing)
        except TransientError as error:
            LOG.warning("the flush of tablet %s waits for its next try: %s", tablet.extent, error)
            self._schedule.wait_to_retry(self._thread.closing)
        except BookkeeperError as error:
            LOG.error(
                "tablet %s can't be flushed; its logs are retained, and it refuses writes when its memory is full: %s",
                tablet.extent,
                error,
            )
            tablet.work_failed(FLUSH, error.message)
            self._schedule.flush_failed(tablet)
