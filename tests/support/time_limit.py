"""How long a test polls for a state."""

from __future__ import annotations

import threading

from bookkeeper.clock import Clock, SystemClock

POLL_MS = 20
LATER_POLL_MS = 100
"""Between polls behind the first :data:`QUICK_POLLS`: each asks real processes, and its CPU is that of other tests."""
QUICK_POLLS = 25
PAUSE_NS_MAX = 1_000_000_000
"""Most time that counts between two polls."""


class TimeLimit:
    """Runs out when polls have gone on for this long. A machine that stands still for a while does not use it up."""

    def __init__(self, limit_s: float, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._left_ns = int(limit_s * 1e9)
        self._last_ns = self._clock.boot_ns()
        self._polls = 0

    def is_over(self) -> bool:
        """Whether no time is left. Call it once a poll."""
        now_ns = self._clock.boot_ns()
        self._left_ns -= min(now_ns - self._last_ns, PAUSE_NS_MAX)
        self._last_ns = now_ns
        return self._left_ns < 0

    def pause(self) -> None:
        """Wait between two polls."""
        self._polls += 1
        self._clock.wait(threading.Event(), POLL_MS if self._polls <= QUICK_POLLS else LATER_POLL_MS)
