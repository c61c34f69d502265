"""Flushes: memtables become segments that the books name, and logs that are not needed any more are let go.

Arrives: tablets with too much in memory, or whose logs were sealed a while ago; orders. Leaves: segments and
``tablet:flush`` in one row put at the rank of the flush, and only then ``log:`` deletes. Survives a crash: a flush is
in the books wholly or not at all; when only the deletes are missing, loading finds nothing to replay and deletes then.

A flush that fails half-way keeps its point: it is completed before another one begins, because its rank has its
value (R1). Rules: R1, R15, R18 and R24.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from bookkeeper.clock import Clock
from bookkeeper.errors import (
    BookkeeperError,
    LeaseLostError,
    OverloadedError,
    TransientError,
    UnavailableError,
    unavailable,
)
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.runtime.threads import BackgroundThread, Die
from bookkeeper.storage.tablet import SegmentRef
from bookkeeper.tserver.books.wal_bookkeeper import WalBookkeeper
from bookkeeper.tserver.books.wal_cells import log_deletes
from bookkeeper.tserver.maintenance.containment import contained
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.tablets.tablet_flushes import FlushPoint
from bookkeeper.tserver.tablets.tablet_registry import Registry
from bookkeeper.tserver.tablets.tablet_segments import named_state, segments_put
from bookkeeper.tserver.write.barriers import FlushBarrier
from bookkeeper.tserver.write.commit_path import CommitPath

LOG = logging.getLogger(__name__)

FLUSH = "a flush"
TICK_MS = 500
FAILED_AGAIN_MS = 30_000
"""ms until a tablet is tried again whose flush failed for a reason that stays; others are flushed meanwhile."""
REST_MS = 10_000
MEMTABLES_MAX = 3
"""A tablet holds at most this many full memtables: one is written, one waits, one fills. Then writers back off."""
FILLING_MS = 5_000
"""ms after a flush because of much in memory during which a tablet is taken to go on filling up."""

FLUSHES_TO_EMPTY_MAX = 4
"""An unload flushes this often at most: once for what was set aside before, once for the rest."""


@dataclass(frozen=True, slots=True)
class FlushLimits:
    """When a tablet is flushed: bytes in its memtable, bytes of all memtables, ms since a log it needs was sealed."""

    memtable_bytes: int
    total_bytes: int
    sealed_log_age_ms: int


@dataclass(frozen=True, slots=True)
class TabletMemory:
    """What the decision looks at: bytes in memory, for how long (ms) a log that it needs has been sealed, and the
    bytes that its table allows (0 = the site's).
    """

    active_bytes: int
    sealed_log_age_ms: int
    memtable_bytes: int = 0

    def is_old(self, limits: FlushLimits) -> bool:
        """Whether a log is kept for this tablet too long."""
        return self.sealed_log_age_ms >= limits.sealed_log_age_ms


def due_tablets(memories: Mapping[bytes, TabletMemory], limits: FlushLimits) -> list[bytes]:
    """Tablets to flush now, the fullest first; when all together hold too much, the fullest is among them."""
    due = {
        row
        for row, memory in memories.items()
        if memory.active_bytes >= (memory.memtable_bytes or limits.memtable_bytes) or memory.is_old(limits)
    }
    if memories and sum(memory.active_bytes for memory in memories.values()) > limits.total_bytes:
        due.add(max(memories, key=lambda row: memories[row].active_bytes))
    return sorted(due, key=lambda row: -memories[row].active_bytes)


def has_room(memory_bytes: int, memtable_bytes: int) -> bool:
    """Whether a tablet may take more before something of it is flushed."""
    return memory_bytes < MEMTABLES_MAX * memtable_bytes


class Flusher:
    """Flushes on demand in the caller's thread, and when due in a thread of its own."""

    def __init__(
        self,
        registry: Registry,
        path: CommitPath,
        keeper: WalBookkeeper,
        metadata: MetadataTable,
        persistence: SessionRetries,
        clock: Clock,
        limits: FlushLimits,
        die: Die,
    ) -> None:
        self._registry = registry
        self._path = path
        self._keeper = keeper
        self._metadata = metadata
        self._persistence = persistence
        self._clock = clock
        self._limits = limits
        self._thread = BackgroundThread("flusher", clock, die)
        self._sealed_since_ns: dict[str, int] = {}
        self._not_before_ns: dict[bytes, int] = {}
        """Tablets, by row, whose flush failed for a reason that stays."""
        self._full_ns: dict[bytes, int] = {}
        """Tablets, by row, to when they were last flushed for what they held."""
        self._kept_since_ns = clock.boot_ns()
        self.flushes_done = 0
        self._written = threading.Condition()

    # ---- room in memory

    def make_room(self, tablet: ServedTablet, patience_ms: float = 0) -> None:
        """Before records are submitted for a tablet: its memory is flushed when it is full. Where flushes fell behind,
        waits for as long as ``patience_ms``, then raises OverloadedError. Any thread.
        """
        limit = tablet.data.properties.memtable_bytes or self._limits.memtable_bytes
        if tablet.data.active_bytes >= limit:
            self.hurry()
        with self._written:
            if self._written.wait_for(lambda: has_room(tablet.data.memory_bytes, limit), patience_ms / 1000):
                return
        raise OverloadedError(
            f"tablet {tablet.extent} holds {tablet.data.memory_bytes} bytes that are not flushed yet: back off"
        )

    # ---- one flush

    def flush(self, tablet: ServedTablet) -> None:
        """Complete the flush under way, if any, and flush what is in memory now. Raises TransientError, then nothing
        is lost and the next flush completes this one. Nothing to do for a tablet that has left: it was flushed then, or
        its table is deleted, and its row with it.
        """
        with tablet.flushes.lock:
            if not self._registry.holds(tablet):
                return
            self.complete(tablet)
            self._path.begin_flush(FlushBarrier(self._path.context, tablet, self._keeper.release))
            self.complete(tablet)

    def complete(self, tablet: ServedTablet) -> None:
        """Complete the flush under way, if any; its state comes before any later one. With the flush lock held."""
        if tablet.flushes.point is not None:
            self._complete(tablet, tablet.flushes.point)

    def empty(self, tablet: ServedTablet) -> None:
        """Flush a tablet that takes no more writes until nothing of it is in memory and no log is needed."""
        for _ in range(FLUSHES_TO_EMPTY_MAX):
            self.flush(tablet)
            if not tablet.data.memory_records and not tablet.flushes.needed_logs():
                return
        raise UnavailableError(f"tablet {tablet.extent} keeps {tablet.data.memory_records} records in memory")

    def _complete(self, tablet: ServedTablet, point: FlushPoint) -> None:
        """From a point to the books. Each step may be repeated; a segment is written once, for its name is new."""
        segments = point.segments
        if segments is None:
            flush_id = tablet.flushes.take_flush_id()
            segments = self._write_segments(tablet, point, flush_id)
            named = [*tablet.data.segments, *segments]
            point.segments_written(segments, named_state(point.state, flush_id, named, tablet.flushes.compacted))
        put = segments_put(tablet.row, point.state, segments)
        self._persistence.check()
        self._metadata.put([put], point.state.flush_id)
        if point.frozen is not None:
            tablet.data.finish_flush(point.frozen, segments)
            with self._written:
                self._written.notify_all()
        for cell, rank in log_deletes(tablet.row, point.logs):
            self._delete_log(cell, rank)
        tablet.flushes.end(point)
        self.flushes_done += 1
        self._kept_since_ns = self._clock.boot_ns()

    def _delete_log(self, cell: CellKey, rank: int) -> None:
        self._persistence.check()
        self._metadata.delete([cell], rank)

    def _write_segments(self, tablet: ServedTablet, point: FlushPoint, flush_id: int) -> list[SegmentRef]:
        if point.frozen is None:
            return []
        try:
            return list(tablet.data.write_segments(point.frozen, flush_id))
        except OSError as error:
            raise unavailable(f"segments of tablet {tablet.extent} can't be written", error) from error

    def fills(self, tablet: ServedTablet) -> bool:
        """Whether the tablet's memory was full a moment ago, and will be soon again if writes go on. Any thread."""
        full_ns = self._full_ns.get(tablet.row)
        return full_ns is not None and self._clock.boot_ns() - full_ns < FILLING_MS * 1_000_000

    # ---- the thread

    def start(self) -> None:
        """Begin to flush what is due."""
        self._thread.start(self._flush_due, TICK_MS)

    def hurry(self) -> None:
        """Something may be due; returns at once."""
        self._thread.wake()

    def close(self) -> None:
        """End the thread after the flush under way."""
        self._thread.close()

    def _flush_due(self) -> None:
        now_ns = self._clock.boot_ns()
        self._not_before_ns = {row: at_ns for row, at_ns in self._not_before_ns.items() if at_ns > now_ns}
        tablets = [tablet for tablet in self._registry.all() if tablet.accepting]
        by_row = {tablet.row: tablet for tablet in tablets if tablet.row not in self._not_before_ns}
        memories = self._look(by_row)
        for row in due_tablets(memories, self._limits):
            if not self._thread.closing.is_set():
                self._flush_or_say(by_row[row])
                if not memories[row].is_old(self._limits):
                    self._full_ns[row] = self._clock.boot_ns()
        self._full_ns = {row: at for row, at in self._full_ns.items() if row in by_row}
        self._give_back_memory()

    def _give_back_memory(self) -> None:
        """What flushes freed is kept for the next one (see ``__main__``), but not when none has come for a while."""
        now_ns = self._clock.boot_ns()
        if now_ns - self._kept_since_ns >= REST_MS * 1_000_000:
            self._kept_since_ns = now_ns
            pa.default_memory_pool().release_unused()

    def _flush_or_say(self, tablet: ServedTablet) -> None:
        try:
            with contained(tablet.extent, FLUSH):
                self.flush(tablet)
            tablet.work_succeeded(FLUSH)
        except LeaseLostError:
            raise
        except TransientError as error:
            LOG.warning("the flush of tablet %s waits for its next try: %s", tablet.extent, error)
            self._clock.wait(self._thread.closing, TICK_MS)
        except BookkeeperError as error:
            LOG.error(
                "tablet %s can't be flushed, its logs are kept and it takes little more: %s", tablet.extent, error
            )
            tablet.work_failed(FLUSH, error.message)
            self._not_before_ns[tablet.row] = self._clock.boot_ns() + FAILED_AGAIN_MS * 1_000_000

    def _look(self, tablets: Mapping[bytes, ServedTablet]) -> dict[bytes, TabletMemory]:
        """How full the tablets are, and since when logs that they need were seen sealed."""
        now_ns, current = self._clock.boot_ns(), self._path.wal_uri
        needed = {
            row: [log for log in tablet.flushes.needed_logs() if log != current] for row, tablet in tablets.items()
        }
        sealed = {log for logs in needed.values() for log in logs}
        self._sealed_since_ns = {log: self._sealed_since_ns.get(log, now_ns) for log in sealed}
        return {
            row: TabletMemory(
                tablet.data.active_bytes,
                max(((now_ns - self._sealed_since_ns[log]) // 1_000_000 for log in needed[row]), default=-1),
                tablet.data.properties.memtable_bytes,
            )
            for row, tablet in tablets.items()
        }
