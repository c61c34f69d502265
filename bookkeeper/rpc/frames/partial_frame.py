"""A frame that a connection receives in parts: its memory grows with its bytes, or the bytes are discarded.

The size in a frame's header is only a claim, so the memory of a frame is at most twice its received bytes, or a buffer
that another frame used before. A declined frame has no memory: the connection discards its bytes and then sends the
answer to its call.
"""

from __future__ import annotations

import threading

from msgspec import Struct

from bookkeeper.errors import OverloadedError
from bookkeeper.rpc.frames.budget import FREE_BYTES, Account
from bookkeeper.rpc.frames.wire import Buffers

SCRATCH_BYTES = FREE_BYTES
"""Bytes that a connection reads at once between frames, and the first memory of a frame."""
_REUSED_BYTES_MAX = 8 * 1024 * 1024


class Answer(Struct, frozen=True):
    """Buffers to send (None = nothing), and whether to close the connection afterwards."""

    buffers: Buffers | None
    close: bool = False


class Declined(Struct, frozen=True):
    """A call that was refused by its head, or for lack of memory; its bytes were discarded."""

    answer: Answer


class FrameBuffers:
    """Reusable memory of large frames: new memory costs a page fault every 4 KiB, more than the copy of the bytes."""

    def __init__(self, buffers_max: int, bytes_max: int) -> None:
        self._buffers_max = buffers_max
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._free: list[bytearray] = []

    def take(self, size: int) -> bytearray | None:
        """A buffer of at least ``size`` bytes with old content; None when there is none."""
        with self._lock:
            for index in range(len(self._free) - 1, -1, -1):
                if len(self._free[index]) >= size:
                    return self._free.pop(index)
        return None

    def give_back(self, buffer: bytearray) -> None:
        """Take a buffer back to which nothing refers any more."""
        if not SCRATCH_BYTES < len(buffer) <= _REUSED_BYTES_MAX:
            return
        with self._lock:
            self._free.append(buffer)
            while len(self._free) > self._buffers_max or sum(map(len, self._free)) > self._bytes_max:
                self._free.pop(0)


def grown_bytes(received_bytes: int, size: int) -> int:
    """The memory that a frame of ``size`` bytes may take once ``received_bytes`` of it are there."""
    return min(size, max(SCRATCH_BYTES, 2 * received_bytes))


class PartialFrame:
    """A frame of ``size`` bytes, of which the first are received."""

    def __init__(self, size: int, first: bytearray, buffers: FrameBuffers, account: Account) -> None:
        """The frame owns ``first`` from now on."""
        self.size = size
        self._buffers = buffers
        self._account = account
        self._received_bytes = len(first)
        self._buffer: bytearray | None = first
        self._capacity = len(first)
        """Bytes that the frame may take for now."""
        self._counted_bytes = 0
        self.declined: Declined | None = None

    @property
    def missing_bytes(self) -> int:
        """The bytes that are not received yet."""
        return self.size - self._received_bytes

    def target(self, scratch: memoryview) -> memoryview:
        """The memory for the next bytes. Raises OverloadedError when the budget has none: then decline the frame."""
        if self._buffer is None:
            return scratch[: self.missing_bytes]
        if self._received_bytes == self._capacity:
            self._grow()
        return memoryview(self._buffer)[self._received_bytes : self._capacity]

    def _grow(self) -> None:
        assert self._buffer is not None
        larger = self._buffers.take(self.size) if 2 * self._received_bytes >= SCRATCH_BYTES else None
        capacity = self.size if larger is not None else grown_bytes(self._received_bytes, self.size)
        counted_bytes = capacity if capacity > SCRATCH_BYTES else 0
        try:
            self._account.take(counted_bytes - self._counted_bytes)
        except OverloadedError:
            if larger is not None:
                self._buffers.give_back(larger)
            raise
        self._counted_bytes, self._capacity = counted_bytes, capacity
        if larger is None:
            larger = bytearray(capacity)
        larger[: self._received_bytes] = memoryview(self._buffer)[: self._received_bytes]
        self._buffer = larger

    def advance(self, count: int) -> None:
        """Record that :meth:`target` got ``count`` bytes."""
        self._received_bytes += count

    def decline(self, answer: Answer) -> None:
        """Give the memory back; the connection discards the missing bytes."""
        self.declined = Declined(answer)
        self.release()

    def content(self) -> memoryview:
        """All bytes of the frame, valid until :meth:`release`."""
        assert self._buffer is not None
        return memoryview(self._buffer)[: self.size]

    def received(self) -> memoryview:
        """The received bytes, valid until :meth:`release`."""
        assert self._buffer is not None
        return memoryview(self._buffer)[: self._received_bytes]

    def release(self) -> None:
        """Give the memory back when nothing refers to it any more; idempotent."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            self._account.give_back(self._counted_bytes)
            self._counted_bytes = 0
            self._buffers.give_back(buffer)
