"""Time as an argument: every timestamp, timeout and lease is read from a :class:`Clock` that is handed in.

``wall_ms`` is for people and for record timestamps, ``boot_ns`` for leases and timeouts: it never goes back,
goes on while the machine sleeps, and is the same for all processes of one machine.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Source of time and of waiting."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump."""

    def boot_ns(self) -> int:
        """Nanoseconds since boot, suspended time included; never goes back."""

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        """Wait until ``event`` is set or ``timeout_ms`` have passed; tell whether it was set."""


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        """See :class:`Clock`."""
        return time.time_ns() // 1_000_000

    def boot_ns(self) -> int:
        """See :class:`Clock`."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        """See :class:`Clock`."""
        return event.wait(timeout_ms / 1000.0)


def thread_cpu_ns() -> int:
    """Nanoseconds that the calling thread has computed; waits for locks, stores and disks do not count."""
    return time.thread_time_ns()


class SteadyWall:
    """What the wall clock shows at least, whoever set it ahead since this was made: for what can't be undone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._boot_began_ms = clock.wall_ms() - clock.boot_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch: the wall clock's, but never more than have passed on the boot clock."""
        return min(self._clock.wall_ms(), self._boot_began_ms + self._clock.boot_ns() // 1_000_000)
