"""How far each stream is at its peer, as this process has seen it: a range begins there, not where the books end.

The worker of a killed tserver has not written to the books what its last run shipped. The next worker hands it out
again, and without this memory it goes out twice. One run at a time ships a stream, so that the second one knows what
the first one has shipped.

Arrives: ranges, then their results. Leaves: the part of each range that the peer lacks, and results for ranges that it
has already. The memory is a fact of the peer (R19): it answered that all up to an offset is durable. A peer that says
it has less is believed, and the stream is forgotten here. Nothing here survives a crash: the books have what counts.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bookkeeper.clock import Clock
from bookkeeper.errors import OverloadedError
from bookkeeper.model import StreamKey
from bookkeeper.replay.ranges import Range, RangeResult

STREAMS_MAX = 10_000
"""Streams that are remembered; beyond it the longest unused one is forgotten."""

StreamAt = tuple[str, StreamKey]
"""The peer's instance id, and the stream."""


@dataclass(frozen=True, slots=True)
class Reached:
    """Everything up to ``offset`` is durable at the peer; ``position``: byte position behind it, 0 when not known."""

    offset: int
    position: int


def stream_at(r: Range) -> StreamAt:
    """Whose stream a range is a part of."""
    return r.peer_instance_id, r.stream


def rest_of(r: Range, reached: Reached | None) -> Range | None:
    """What the peer lacks of a range; None when it has all of it."""
    if reached is None or reached.offset <= r.finished:
        return r
    if reached.offset >= r.last:
        return None
    if reached.offset < r.first:
        return replace(r, finished=reached.offset)
    return replace(r, first=reached.offset + 1, finished=reached.offset, position_hint=reached.position)


def already_there(r: Range) -> RangeResult:
    """The row of a range of which the peer has everything: nothing was sent."""
    return RangeResult(r.range_id, r.last, 0, None, 0, 0, 0, 0, 0, 0, 0, None, os.uname().nodename, os.getpid(), 0.0)


def is_believed(result: RangeResult) -> bool:
    """Whether the memory of a stream holds after this result. A peer that names a high-water has less than was known
    (R19): its table was restored, say.
    """
    return result.high_water is None


def is_free(under_way: Collection[StreamAt], streams: Collection[StreamAt]) -> bool:
    """Whether no run ships one of these streams."""
    return not any(stream in under_way for stream in streams)


class StreamProgress:
    """The streams of one replay process. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._under_way: set[StreamAt] = set()
        self._reached: OrderedDict[StreamAt, Reached] = OrderedDict()

    @contextmanager
    def alone(self, ranges: Sequence[Range], timeout_ms: int) -> Iterator[tuple[list[Range], list[RangeResult]]]:
        """Be the only run that ships these streams. Yields the rests of the ranges, and results for those that have
        none. Raises OverloadedError when another run of one of the streams is not over in time.
        """
        streams = {stream_at(r) for r in ranges}
        with self._changed:
            if not self._wait_until_free(streams, timeout_ms):
                raise OverloadedError(f"another run of {ranges[0].file} is not over after {timeout_ms} ms")
            self._under_way |= streams
            rests = [rest_of(r, self._reached.get(stream_at(r))) for r in ranges]
        try:
            yield (
                [rest for rest in rests if rest is not None],
                [already_there(r) for r, rest in zip(ranges, rests, strict=True) if rest is None],
            )
        finally:
            with self._changed:
                self._under_way -= streams
                self._changed.notify_all()

    def note(self, ranges: Sequence[Range], results: Sequence[RangeResult]) -> None:
        """Remember what came back."""
        by_id = {r.range_id: r for r in ranges}
        with self._changed:
            for result in results:
                self._note(stream_at(by_id[result.range_id]), result)
            while len(self._reached) > STREAMS_MAX:
                self._reached.popitem(last=False)

    def _note(self, stream: StreamAt, result: RangeResult) -> None:
        if not is_believed(result):
            self._reached.pop(stream, None)
            return
        known = self._reached.get(stream)
        if known is None or result.acked_offset > known.offset:
            self._reached[stream] = Reached(result.acked_offset, result.acked_position)
        self._reached.move_to_end(stream)

    def _wait_until_free(self, streams: Collection[StreamAt], timeout_ms: int) -> bool:
        deadline_ns = self._clock.boot_ns() + timeout_ms * 1_000_000
        while not is_free(self._under_way, streams):
            left_ns = deadline_ns - self._clock.boot_ns()
            if left_ns <= 0:
                return False
            self._changed.wait(left_ns / 1e9)
        return True
