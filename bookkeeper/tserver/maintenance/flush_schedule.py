"""The choice of tablets to flush: the fullest ones, those that need an old log, and those with replicas of which other
hosts have lacked a record for long; failed ones wait.

:class:`FlushSchedule` belongs to the thread of the flusher; other threads call only ``fills``, ``memtable_bytes``
and ``flush_done``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.tserver.tablets.tablet import ServedTablet

TICK_MS = 500
"""ms between checks, and before the next try after a flush that failed for a passing reason."""
MEMORY_IDLE_MS = 10_000
"""ms without a flush after which memory that flushes freed goes back to the system."""
FAILED_AGAIN_MS = 30_000
"""ms until the next try for a tablet whose flush failed for a reason that stays; others are flushed meanwhile."""
MEMTABLES_MAX = 3
"""A tablet has at most this many full memtables: one is written, one waits, one fills. Then writers back off."""
FILLING_MS = 5_000
"""ms after the flush of a full memtable during which the tablet is expected to fill up again."""


class FlushLimits(Struct, frozen=True):
    """Limits at which a tablet is flushed: bytes in its memtable, in all of them, ms since a needed log was sealed."""

    memtable_bytes: int
    total_bytes: int
    sealed_log_age_ms: int


class TabletMemory(Struct, frozen=True):
    """Input of the decision: bytes in memory, for how long (ms) a log that the tablet needs has been sealed, the bytes
    that its table allows (0 = the limit of the site), the age (ms) of its oldest record in memory (-1 = none), and the
    age at which its table wants it flushed (0 = at none).
    """

    active_bytes: int
    sealed_log_age_ms: int
    memtable_bytes: int = 0
    oldest_age_ms: int = -1
    interval_ms: int = 0

    def is_old(self, limits: FlushLimits) -> bool:
        """Whether a log has to stay too long because of this tablet, or other hosts lack one of its records for too
        long.
        """
        is_overdue = 0 < self.interval_ms <= self.oldest_age_ms
        return is_overdue or self.sealed_log_age_ms >= limits.sealed_log_age_ms


def due_tablets(memories: Mapping[bytes, TabletMemory], limits: FlushLimits) -> list[bytes]:
    """Tablets to flush now, the fullest first; when all together exceed the total, the fullest is among them."""
    due = {
        row
        for row, memory in memories.items()
        if memory.active_bytes >= (memory.memtable_bytes or limits.memtable_bytes) or memory.is_old(limits)
    }
    if memories and sum(memory.active_bytes for memory in memories.values()) > limits.total_bytes:
        due.add(max(memories, key=lambda row: memories[row].active_bytes))
    return sorted(due, key=lambda row: (-memories[row].active_bytes, row))


def is_busy(tablet: ServedTablet) -> bool:
    """Whether a flush could do anything for a tablet: most tablets have nothing in memory, and need no log."""
    return tablet.data.active_bytes > 0 or tablet.flushes.needs_log


class DueFlush(Struct, frozen=True):
    """A tablet to flush. ``is_full``: because of its memory, and not because of an old log or record."""

    tablet: ServedTablet
    is_full: bool


class FlushSchedule:
    """Chooses tablets to flush."""

    def __init__(self, clock: Clock, limits: FlushLimits) -> None:
        self._clock = clock
        self._limits = limits
        self._sealed_since_ns: dict[str, int] = {}
        self._oldest: dict[bytes, tuple[int, int]] = {}
        """Row of a tablet with replicas to its oldest record in memory, and when this thread first saw it (ns)."""
        self._not_before_ns: dict[bytes, int] = {}
        """Row of a tablet whose flush failed for a reason that stays, to the time of the next try."""
        self._full_ns: dict[bytes, int] = {}
        """Row of a tablet to its last flush because of much in memory."""
        self._memory_used_ns = clock.boot_ns()

    def memtable_bytes(self, tablet: ServedTablet) -> int:
        """The size of a full memtable."""
        return tablet.data.properties.memtable_bytes or self._limits.memtable_bytes

    def due(self, tablets: Iterable[ServedTablet], current_log: str) -> list[DueFlush]:
        """The tablets to flush now, of those that take writes."""
        now_ns = self._clock.boot_ns()
        self._not_before_ns = {row: at_ns for row, at_ns in self._not_before_ns.items() if at_ns > now_ns}
        by_row = {tablet.row: tablet for tablet in tablets if tablet.row not in self._not_before_ns}
        self._full_ns = {row: at_ns for row, at_ns in self._full_ns.items() if row in by_row}
        memories = self._memories({row: tablet for row, tablet in by_row.items() if is_busy(tablet)}, current_log)
        due = due_tablets(memories, self._limits)
        return [DueFlush(by_row[row], not memories[row].is_old(self._limits)) for row in due]

    def flush_ended(self, flush: DueFlush) -> None:
        """The flush was tried, and has succeeded or failed."""
        if flush.is_full:
            self._full_ns[flush.tablet.row] = self._clock.boot_ns()

    def flush_done(self) -> None:
        """A flush, of this thread or of another, has used and freed memory."""
        self._memory_used_ns = self._clock.boot_ns()

    def memory_is_idle(self) -> bool:
        """Whether no flush has come for :data:`MEMORY_IDLE_MS`; True once for each such period."""
        now_ns = self._clock.boot_ns()
        is_idle = now_ns - self._memory_used_ns >= MEMORY_IDLE_MS * 1_000_000
        if is_idle:
            self._memory_used_ns = now_ns
        return is_idle

    def wait_to_retry(self, closing: threading.Event) -> None:
        """Wait after a flush that failed for a passing reason; not when the thread ends."""
        self._clock.wait(closing, TICK_MS)

    def flush_failed(self, tablet: ServedTablet) -> None:
        """The flush failed for a reason that stays: wait before the next try."""
        self._not_before_ns[tablet.row] = self._clock.boot_ns() + FAILED_AGAIN_MS * 1_000_000

    def fills(self, tablet: ServedTablet) -> bool:
        """Whether the tablet's memtable was full a moment ago, and will be soon again if writes go on. Any thread."""
        full_ns = self._full_ns.get(tablet.row)
        return full_ns is not None and self._clock.boot_ns() - full_ns < FILLING_MS * 1_000_000

    def _memories(self, tablets: Mapping[bytes, ServedTablet], current_log: str) -> dict[bytes, TabletMemory]:
        """The memory of the tablets, and the time since this thread first saw their needed logs sealed."""
        now_ns = self._clock.boot_ns()
        needed = {
            row: [log for log in tablet.flushes.needed_logs() if log != current_log] for row, tablet in tablets.items()
        }
        sealed = {log for logs in needed.values() for log in logs}
        self._sealed_since_ns = {log: self._sealed_since_ns.get(log, now_ns) for log in sealed}
        self._oldest = self._oldest_records(tablets, now_ns)
        return {
            row: TabletMemory(
                tablet.data.active_bytes,
                max(((now_ns - self._sealed_since_ns[log]) // 1_000_000 for log in needed[row]), default=-1),
                tablet.data.properties.memtable_bytes,
                (now_ns - self._oldest[row][1]) // 1_000_000 if row in self._oldest else -1,
                tablet.data.properties.flush_interval_ms,
            )
            for row, tablet in tablets.items()
        }

    def _oldest_records(self, tablets: Mapping[bytes, ServedTablet], now_ns: int) -> dict[bytes, tuple[int, int]]:
        oldest = {}
        for row, tablet in tablets.items():
            seq = tablet.data.first_active_seq
            if tablet.has_replicas and seq is not None:
                known = self._oldest.get(row)
                oldest[row] = known if known is not None and known[0] == seq else (seq, now_ns)
        return oldest
