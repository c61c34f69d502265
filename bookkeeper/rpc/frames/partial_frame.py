"""A frame of a connection whose bytes arrive: its memory grows with them, or they are thrown away.

Arrives: a size, which is a claim, and bytes. Leaves: the whole frame; or, when it is declined, the answer to its call,
once its other bytes have passed. Memory is at most twice what has come, or a buffer that was there before. Nothing
survives a crash.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from bookkeeper.errors import OverloadedError
from bookkeeper.rpc.frames.budget import FREE_BYTES, Account
from bookkeeper.rpc.frames.wire import Buffers

SCRATCH_BYTES = FREE_BYTES
"""What a connection reads at once between frames, and the first memory of a frame."""
_KEPT_BYTES_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """Buffers to send (None = nothing), and whether to close afterwards."""

    buffers: Buffers | None
    close: bool = False


@dataclass(frozen=True, slots=True)
class Declined:
    """A call that was refused by its head, or found no memory; its bytes were thrown away."""

    answer: Answer


class FrameBuffers:
    """Memory of large frames, used again: new memory costs a page fault every 4 KiB, more than the copying itself."""

    def __init__(self, kept_max: int, kept_bytes_max: int) -> None:
        self._kept_max = kept_max
        self._kept_bytes_max = kept_bytes_max
        self._lock = threading.Lock()
        self._kept: list[bytearray] = []

    def take(self, size: int) -> bytearray | None:
        """A buffer of at least ``size`` bytes with old bytes in it; None when none is kept."""
        with self._lock:
            for place in range(len(self._kept) - 1, -1, -1):
                if len(self._kept[place]) >= size:
                    return self._kept.pop(place)
        return None

    def give_back(self, buffer: bytearray) -> None:
        """The frame was dealt with and nothing refers to it any more."""
        if not SCRATCH_BYTES < len(buffer) <= _KEPT_BYTES_MAX:
            return
        with self._lock:
            self._kept.append(buffer)
            while len(self._kept) > self._kept_max or sum(map(len, self._kept)) > self._kept_bytes_max:
                self._kept.pop(0)


def grown_bytes(has_bytes: int, size: int) -> int:
    """What a frame of ``size`` bytes may take once ``has_bytes`` of it have come."""
    return min(size, max(SCRATCH_BYTES, 2 * has_bytes))


class PartialFrame:
    """A frame of ``size`` bytes whose first bytes are there."""

    def __init__(self, size: int, first: bytearray, buffers: FrameBuffers, account: Account) -> None:
        """``first`` is the frame's from now on."""
        self.size = size
        self._buffers = buffers
        self._account = account
        self._filled = len(first)
        self._buffer: bytearray | None = first
        self._reach = len(first)
        """So many bytes it may have for now."""
        self._counted = 0
        self.declined: Declined | None = None

    @property
    def left_bytes(self) -> int:
        """What has not come yet."""
        return self.size - self._filled

    def target(self, scratch: memoryview) -> memoryview:
        """Where the next bytes go. Raises OverloadedError when they find no memory: then it has to be declined."""
        if self._buffer is None:
            return scratch[: self.left_bytes]
        if self._filled == self._reach:
            self._grow()
        return memoryview(self._buffer)[self._filled : self._reach]

    def _grow(self) -> None:
        assert self._buffer is not None
        larger = self._buffers.take(self.size) if 2 * self._filled >= SCRATCH_BYTES else None
        reach = self.size if larger is not None else grown_bytes(self._filled, self.size)
        counted = reach if reach > SCRATCH_BYTES else 0
        try:
            self._account.take(counted - self._counted)
        except OverloadedError:
            if larger is not None:
                self._buffers.give_back(larger)
            raise
        self._counted, self._reach = counted, reach
        if larger is None:
            larger = bytearray(reach)
        larger[: self._filled] = memoryview(self._buffer)[: self._filled]
        self._buffer = larger

    def took(self, count: int) -> None:
        """So many bytes were put into :meth:`target`."""
        self._filled += count

    def decline(self, answer: Answer) -> None:
        """Give its memory back; what has not come is thrown away."""
        self.declined = Declined(answer)
        self.release()

    def whole(self) -> memoryview:
        """The frame; until :meth:`release`."""
        assert self._buffer is not None
        return memoryview(self._buffer)[: self.size]

    def head(self) -> memoryview:
        """The bytes that are there."""
        assert self._buffer is not None
        return memoryview(self._buffer)[: self._filled]

    def release(self) -> None:
        """Nothing refers to it any more; idempotent."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            self._account.give_back(self._counted)
            self._counted = 0
            self._buffers.give_back(buffer)
