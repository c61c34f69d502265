"""A tablet's progress in other clusters' logs: high-waters of streams, and intervals of origins (R18, R20, R22).

A *staged* high-water counts a range that is not durable yet; an *applied* one does not, and a flush writes it down.
Block headers and ``FlushState`` survive a crash, and ``load_plan`` rebuilds this state from them. Only the commit
thread changes it, or the thread that loads the tablet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bookkeeper.model import PartialHighWater, StreamKey
from bookkeeper.origins import RootLog
from bookkeeper.tserver.tablets.load_plan import Recovered, drop_reached, raise_high_water
from bookkeeper.tserver.tablets.origin_intervals import OriginIntervals


class ReceivedState:
    """The received streams and origins of one tablet."""

    def __init__(self, recovered: Recovered) -> None:
        self._high_water = dict(recovered.high_water)
        self._staged_high_water: dict[StreamKey, int] = {}
        self._partial_high_waters = dict(recovered.partial_high_waters)
        self._origin_intervals = OriginIntervals(recovered.origin_intervals)
        self._forgotten_count = 0
        self._has_changes = False

    @property
    def high_water(self) -> Mapping[StreamKey, int]:
        """The applied high-water of each stream: all rows of the tablet have the stream up to it."""
        return self._high_water

    @property
    def partial_high_waters(self) -> Mapping[StreamKey, tuple[PartialHighWater, ...]]:
        """Rows that have more of a stream than its high-water (see ``partial_high_water``)."""
        return self._partial_high_waters

    @property
    def origin_intervals(self) -> OriginIntervals:
        """The intervals of each root that the tablet has (R22)."""
        return self._origin_intervals

    @property
    def forgotten_count(self) -> int:
        """The number of times that the tablet forgot a stream."""
        return self._forgotten_count

    @property
    def has_changes(self) -> bool:
        """Whether this state has changed since the last flush began."""
        return self._has_changes

    def staged_high_water(self, stream: StreamKey) -> int:
        """Rule R18: the high-water of a stream, with the range in flight in this group."""
        return self._staged_high_water.get(stream, self._high_water.get(stream, 0))

    def has_stream(self, stream: StreamKey) -> bool:
        """Whether the tablet has a high-water of the stream, and so can find duplicates in it. Any thread."""
        return stream in self._high_water or stream in self._staged_high_water

    def senders(self) -> list[str]:
        """The instances whose streams the tablet has records of, without this cluster's own imports. Any thread."""
        streams = (*self._high_water.copy(), *self._staged_high_water.copy())
        return sorted({stream.source_instance_id for stream in streams if stream.incarnation})

    # ---- staging

    def stage_high_water(self, stream: StreamKey, to_offset: int) -> int | None:
        """A range up to ``to_offset`` is in flight. Returns what :meth:`take_back` needs."""
        before = self._staged_high_water.get(stream)
        self._staged_high_water[stream] = to_offset
        return before

    def take_back(self, stream: StreamKey, before: int | None) -> None:
        """The group of a range failed. The range in flight before it may be applied by now."""
        if before is None or before <= self._high_water.get(stream, 0):
            self._staged_high_water.pop(stream, None)
        else:
            self._staged_high_water[stream] = before

    # ---- applying

    def apply_high_water(self, stream: StreamKey, to_offset: int) -> None:
        """The staged range up to ``to_offset`` is durable."""
        raise_high_water(self._high_water, stream, to_offset)
        drop_reached(self._partial_high_waters, stream, to_offset)
        self._has_changes = True
        if self._staged_high_water.get(stream) == to_offset:
            del self._staged_high_water[stream]

    def forget_stream(self, stream: StreamKey) -> None:
        """The source will never send this stream again (R20)."""
        self._forgotten_count += 1
        self._partial_high_waters.pop(stream, None)
        if self._high_water.pop(stream, None) is not None:
            self._has_changes = True

    def forget_roots(self, logs: Collection[RootLog]) -> None:
        """No path brings records of these logs any more (R22)."""
        if self._origin_intervals.forget(logs):
            self._has_changes = True

    def begin_flush(self) -> None:
        """A flush writes down the state as it is now."""
        self._has_changes = False
