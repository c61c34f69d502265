"""The progress of each stream at its peer, cached in this process: a range starts there, not at the end in the books.

The worker of a killed tserver did not write the progress of its last run to the books. The next worker assigns the same
range again, and without this cache the records are sent twice. One run at a time ships a stream, so that the second run
has the progress of the first one. The cache contains only offsets that the peer acknowledged as durable (R19); when a
peer reports a lower offset, the stream leaves the cache. After a crash the books have enough.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.clock import Clock
from bookkeeper.errors import OverloadedError
from bookkeeper.model import StreamKey
from bookkeeper.replay.ranges import Range, RangeResult

STREAMS_MAX = 10_000
"""Most cached streams; above it the least recently used one leaves."""

StreamAt = tuple[str, StreamKey]
"""The peer's instance id, and the stream."""


class AckedEnd(Struct, frozen=True):
    """All records up to ``offset`` are durable at the peer; ``position``: byte position after them, 0 = unknown."""

    offset: int
    position: int


def stream_at(r: Range) -> StreamAt:
    """The peer and the stream of a range."""
    return r.peer_instance_id, r.stream


def missing_part(r: Range, acked: AckedEnd | None) -> Range | None:
    """The part of a range that the peer lacks; None when it has all of it."""
    if acked is None or acked.offset <= r.finished:
        return r
    if acked.offset >= r.last:
        return None
    if acked.offset < r.first:
        return replace(r, finished=acked.offset)
    return replace(r, first=acked.offset + 1, finished=acked.offset, position_hint=acked.position)


def already_there(r: Range) -> RangeResult:
    """The result of a range that the peer already has: the run sent nothing."""
    return RangeResult(r.range_id, r.last, 0, None, 0, 0, 0, 0, 0, 0, 0, None, os.uname().nodename, os.getpid(), 0.0)


class StreamProgress:
    """The streams of one replay process. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._shipping: set[StreamAt] = set()
        self._acked: OrderedDict[StreamAt, AckedEnd] = OrderedDict()

    @contextmanager
    def exclusive(self, ranges: Sequence[Range], timeout_ms: int) -> Iterator[tuple[list[Range], list[RangeResult]]]:
        """Ship these streams in no other run during the block. Yields the missing parts of the ranges, and the results
        of ranges that the peer has. Raises OverloadedError when another run of one of the streams does not end in time.
        """
        streams = {stream_at(r) for r in ranges}
        with self._changed:
            if not self._wait_until_free(streams, timeout_ms):
                raise OverloadedError(f"another run of {ranges[0].file} did not end in {timeout_ms} ms")
            self._shipping |= streams
            parts = [missing_part(r, self._acked.get(stream_at(r))) for r in ranges]
        try:
            yield (
                [part for part in parts if part is not None],
                [already_there(r) for r, part in zip(ranges, parts, strict=True) if part is None],
            )
        finally:
            with self._changed:
                self._shipping -= streams
                self._changed.notify_all()

    def missing(self, ranges: Sequence[Range]) -> list[Range | None]:
        """Of each range the part that the peer lacks; None when it has all of it."""
        with self._changed:
            return [missing_part(r, self._acked.get(stream_at(r))) for r in ranges]

    def record(self, ranges: Sequence[Range], results: Sequence[RangeResult]) -> None:
        """Record the acknowledged offsets of a run."""
        by_id = {r.range_id: r for r in ranges}
        with self._changed:
            for result in results:
                self._record(stream_at(by_id[result.range_id]), result)
            while len(self._acked) > STREAMS_MAX:
                self._acked.popitem(last=False)

    def _record(self, stream: StreamAt, result: RangeResult) -> None:
        # R19: a peer that tells its high-water has less than is known here, as after a restore of its table.
        if result.high_water is not None:
            self._acked.pop(stream, None)
            return
        previous = self._acked.get(stream)
        if previous is None or result.acked_offset > previous.offset:
            self._acked[stream] = AckedEnd(result.acked_offset, result.acked_position)
        self._acked.move_to_end(stream)

    def _wait_until_free(self, streams: Collection[StreamAt], timeout_ms: int) -> bool:
        deadline_ns = self._clock.boot_ns() + timeout_ms * 1_000_000
        while any(stream in self._shipping for stream in streams):
            remaining_ns = deadline_ns - self._clock.boot_ns()
            if remaining_ns <= 0:
                return False
            self._changed.wait(remaining_ns / 1e9)
        return True
