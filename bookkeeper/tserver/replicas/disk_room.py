"""The room on a host's disk: whether content from other hosts fits beside the reserve, and the word of a full disk."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.errors import UnavailableError

REFUSAL_MS = 10_000
"""How long a refusal counts. Senders offer again, and the repair asks again, after two seconds at most."""


class _Refusal(Struct, frozen=True):
    """Content that had no room."""

    wanted_bytes: int
    at_ns: int


class DiskRoom:
    """Thread-safe. ``reserve_bytes`` of the disk stay free for the host's own work."""

    def __init__(self, free_bytes: Callable[[], int], reserve_bytes: int, clock: Clock) -> None:
        self._free_bytes = free_bytes
        self._reserve_bytes = reserve_bytes
        self._clock = clock
        self._refusal = _Refusal(0, 0)

    def refusal(self, wanted_bytes: int) -> str:
        """Why content of so many bytes can't be taken now; empty = it can. Raises UnavailableError."""
        room = max(0, self._free_bytes() - self._reserve_bytes)
        if wanted_bytes <= room:
            return ""
        self._refusal = _Refusal(wanted_bytes, self._clock.boot_ns())
        return f"the disk has room for {room} of {wanted_bytes} bytes: make room, and it continues by itself"

    def problem(self, own_work_waits: bool) -> str:
        """The word of a full disk for operators; empty = it is not full. ``own_work_waits``: writes or flushes of this
        host found no room.
        """
        try:
            free = self._free_bytes()
        except UnavailableError as error:
            return error.message
        refusal, room = self._refusal, free - self._reserve_bytes
        is_recent = self._clock.boot_ns() - refusal.at_ns < REFUSAL_MS * 1_000_000
        waiting = refusal.wanted_bytes if is_recent and refusal.wanted_bytes > room else 0
        if room >= 0 and not waiting and not own_work_waits:
            return ""
        content = f", and content of {waiting} bytes from other hosts waits" if waiting else ""
        return (
            f"its disk is full: {free} bytes are free, {self._reserve_bytes} of them are reserved{content}; make room "
            "there, and it continues by itself"
        )
