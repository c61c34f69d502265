"""The time that a tserver gives to its tablets' records: its wall clock, but no later than the coordination store says.

The limit holds only where the logs lie on the tserver's own host, since others may give them up (rule N7). A thread
keeps it at least a quarter of a lease ahead of the clock. When the clock is set ahead, the time stands at the limit
until the next look, and writes go on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from bookkeeper.clock import Clock
from bookkeeper.errors import TransientError
from bookkeeper.runtime.threads import BackgroundThread, Die

LOG = logging.getLogger(__name__)

LOOKS = 8
"""Looks in the time between the clock and a new limit; most of them compare two numbers."""


class ServerTimes(Protocol):
    """The time of records."""

    def now_ms(self) -> int:
        """The time of a record that is staged now (ms since 1970). Never waits. Any thread."""

    def cover(self, time_ms: int) -> None:
        """Return when records may have this time, because a tablet has it already. Raises TransientError."""

    def start(self) -> None:
        """Keep the time in step with the clock. Raises TransientError."""

    def close(self) -> None:
        """End that."""


class UnlimitedTimes:
    """The wall clock: all hosts reach the logs, so nobody goes on without one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        """See the protocol."""
        return self._clock.wall_ms()

    def cover(self, time_ms: int) -> None:
        """See the protocol."""

    def start(self) -> None:
        """See the protocol."""

    def close(self) -> None:
        """See the protocol."""


class LimitedTimes:
    """The wall clock up to a limit. ``raise_limit`` writes a limit (ms since 1970) into the store, and returns once
    each later reader of the store sees it; it raises TransientError. A new limit is ``ahead_ms`` beyond the clock.
    """

    def __init__(self, clock: Clock, raise_limit: Callable[[int], None], ahead_ms: float, die: Die) -> None:
        self._clock = clock
        self._raise_limit = raise_limit
        self._ahead_ms = ahead_ms
        self._limit_ms = 0
        self._lock = threading.Lock()
        self._thread = BackgroundThread("server times", clock, die)

    def now_ms(self) -> int:
        """See the protocol."""
        return min(self._clock.wall_ms(), self._limit_ms)

    def cover(self, time_ms: int) -> None:
        """See the protocol."""
        with self._lock:
            if time_ms > self._limit_ms:
                self._raise_limit(time_ms)
                self._limit_ms = time_ms

    def look(self) -> None:
        """Raise the limit when less than half of ``ahead_ms`` is left. Raises TransientError."""
        wall_ms = self._clock.wall_ms()
        if self._limit_ms - wall_ms < self._ahead_ms / 2:
            self.cover(wall_ms + int(self._ahead_ms))

    def start(self) -> None:
        """See the protocol."""
        self.look()
        self._thread.start(self._look_again, self._ahead_ms / LOOKS)

    def _look_again(self) -> None:
        """The store is asked again at the next look; without a session the process ends."""
        try:
            self.look()
        except TransientError as error:
            LOG.warning("the time of records stays below %d until the store answers: %s", self._limit_ms, error)

    def close(self) -> None:
        """See the protocol."""
        self._thread.close()
