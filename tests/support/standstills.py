"""Checks of short times, on a machine that stands still now and then."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from bookkeeper.clock import Clock, SystemClock

LOOK_MS = 20
STANDSTILL_NS = 200_000_000
"""A thread that waits for :data:`LOOK_MS` and goes on so late did not run meanwhile, nor did others."""
TRIES = 4

FoundT = TypeVar("FoundT")


class _Watch(threading.Thread):
    """Notes for how long it could not run."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(name="standstills", daemon=True)
        self._clock = clock
        self._is_over = threading.Event()
        self._last_ns = clock.boot_ns()
        self._longest_ns = 0

    def run(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._clock.wait(self._is_over, LOOK_MS)
            now_ns = self._clock.boot_ns()
            self._longest_ns, self._last_ns = max(self._longest_ns, now_ns - self._last_ns), now_ns

    def has_seen_one(self) -> bool:
        """Whether there was a standstill; ends the watch."""
        self._is_over.set()
        self.join()
        return self._longest_ns > STANDSTILL_NS


def undisturbed(check: Callable[[], FoundT], clock: Clock | None = None) -> FoundT:
    """Run a check whose leases or limits are short, and return what it returns. When the check fails while the machine
    stood still, the failure says nothing, and the check begins again: :data:`TRIES` in all. A failure of a machine that
    did not stand still counts at once.
    """
    for _ in range(TRIES - 1):
        watch = _Watch(clock or SystemClock())
        watch.start()
        try:
            return check()
        except Exception:
            if not watch.has_seen_one():
                raise
        finally:
            watch.has_seen_one()
    return check()
