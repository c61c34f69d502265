"""A tablet's progress of flushes: its state in the books, the ranks of the next states, the logs that recovery needs.

The books (``tablet:flush``, ``segment:`` and ``log:`` cells) survive a crash. Thread-safe: commit threads use logs and
begin flushes; the thread that has :attr:`TabletFlushes.lock` puts states. Rules: R1 and R12.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from bookkeeper.metadata.values import FlushState
from bookkeeper.storage.tablet.memtable import FrozenMemtable
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.tserver.tablets.load_plan import Recovered, first_flush_id


class FlushPoint:
    """The content of a flush: all records that were applied before it began, and no other."""

    def __init__(self, frozen: FrozenMemtable | None, state: FlushState, logs: Mapping[str, int]) -> None:
        """``logs``: the flush deletes their ``log:`` cells; each with the last offset that the flush holds."""
        self._frozen = frozen
        self._state = state
        self._logs = logs
        self._segments: Sequence[SegmentRef] | None = None

    @property
    def frozen(self) -> FrozenMemtable | None:
        """The memtable to write; None when the flush is about state alone."""
        return self._frozen

    @property
    def logs(self) -> Mapping[str, int]:
        """Log to the last offset of the tablet's records in it."""
        return self._logs

    @property
    def state(self) -> FlushState:
        """The state to put; final once there are :attr:`segments`."""
        return self._state

    @property
    def segments(self) -> Sequence[SegmentRef] | None:
        """The segments of the memtable; None until they are written."""
        return self._segments

    def segments_written(self, segments: Sequence[SegmentRef], state: FlushState) -> None:
        """The segments are durable, and ``state`` names them under its flush id, for good (R1)."""
        self._segments = segments
        self._state = state


class TabletFlushes:
    """The flush state of one tablet."""

    def __init__(self, recovered: Recovered, serial: int) -> None:
        """``serial``: of this holder; its flush ids are above those of earlier holders."""
        self._lock = threading.Lock()
        self._mutex = threading.Lock()
        self._state = recovered.flush
        self._compacted = 0 if recovered.flush is None else recovered.flush.compacted
        self._next_flush_id = first_flush_id(serial)
        self._point: FlushPoint | None = None
        self._log_uses = dict(recovered.log_uses)
        self._retained_logs: dict[str, int] = {}

    @property
    def lock(self) -> threading.Lock:
        """A thread holds it from before it takes a flush id until its state is in the books."""
        return self._lock

    @property
    def state(self) -> FlushState | None:
        """The newest state: that of ``tablet:flush`` in the books, or of a tablet with replicas a later one."""
        return self._state

    @property
    def compacted(self) -> int:
        """The flush id at which the last compaction of everything began, 0 = none."""
        return self._compacted

    @property
    def point(self) -> FlushPoint | None:
        """The flush under way."""
        return self._point

    def take_flush_id(self) -> int:
        """The next rank of a state. The caller holds :attr:`lock` until the state is in the books, so that no older
        state hides it (R1). Any thread.
        """
        with self._mutex:
            taken = self._next_flush_id
            self._next_flush_id += 1
            return taken

    def state_put(self, state: FlushState) -> None:
        """The books have this state now. With :attr:`lock` held."""
        self._state = state
        self.compacted_at(state.compacted)

    def compacted_at(self, flush_id: int) -> None:
        """Everything older than this flush id is compacted."""
        with self._mutex:
            self._compacted = max(self._compacted, flush_id)

    # ---- logs

    def use_log(self, wal_name: str, offset: int) -> None:
        """A record at this offset is in memory only: recovery needs the log up to there."""
        with self._mutex:
            self._log_uses[wal_name] = offset

    def needed_logs(self) -> Mapping[str, int]:
        """The logs that recovery of the tablet would read now, each with the last offset of the tablet's records."""
        with self._mutex:
            return dict(self._log_uses)

    @property
    def needs_log(self) -> bool:
        """Whether recovery of the tablet would read any log now."""
        return bool(self._log_uses)

    def retain_logs(self, logs: Mapping[str, int]) -> None:
        """A state has these records, and the cells of their logs stay in the row until the books name it."""
        with self._mutex:
            self._retained_logs |= logs

    def release_logs(self, left: Mapping[str, int]) -> None:
        """Of the retained logs, only these still have cells."""
        with self._mutex:
            self._retained_logs = dict(left)

    def logs_in_row(self, needed: Mapping[str, int]) -> Mapping[str, int]:
        """The needed logs, and those that are retained: a state has an offset of each, for the next holder (R4)."""
        with self._mutex:
            return {**self._retained_logs, **needed} if self._retained_logs else needed

    # ---- flushes

    def begin(self, point: FlushPoint) -> None:
        """A flush is under way."""
        self._point = point

    def end(self, point: FlushPoint) -> None:
        """The point is in the books, and its ``log:`` cells are deleted. With :attr:`lock` held."""
        with self._mutex:
            for wal, offset in point.logs.items():
                if self._log_uses.get(wal) == offset:
                    del self._log_uses[wal]
        self.state_put(point.state)
        self._point = None
