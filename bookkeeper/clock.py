"""Time as an argument: a caller passes a :class:`Clock`, and every timestamp, timeout and lease comes from it.

``wall_ms`` is for people and for record timestamps, ``boot_ns`` for leases and timeouts: it never goes back,
also counts while the machine sleeps, and is the same for all processes of one machine.
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
        """Wait until ``event`` is set or ``timeout_ms`` have passed; returns whether it is set."""


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
    """CPU time of the calling thread in nanoseconds; waits for locks, stores and disks do not count."""
    return time.thread_time_ns()


class SteadyWall:
    """Wall time that ignores forward jumps since its creation; use it for irreversible decisions."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._boot_time_ms = clock.wall_ms() - clock.boot_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch: the wall clock, but at most the start time plus the boot clock."""
        return min(self._clock.wall_ms(), self._boot_time_ms + self._clock.boot_ns() // 1_000_000)
