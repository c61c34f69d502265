"""The retries of failed loads: after 100 ms, then after doubled pauses of at most a minute.

Arrives: loads that failed for a permanent reason, as a damaged file, and loads that succeeded. Leaves: whether a load
may be ordered now. The next leader tries at once. Thread-safe.

A load reads logs and takes long for a large tablet, so the master does not repeat it in each cycle. After a repair the
next try follows within a minute.
"""

from __future__ import annotations

import threading

from bookkeeper.clock import Clock

RETRY_MIN_MS = 100
RETRY_MAX_MS = 60_000


def pause_ms(failures: int) -> int:
    """The pause after so many failures in a row (1 or more), ms."""
    return int(min(RETRY_MAX_MS, RETRY_MIN_MS << min(failures - 1, 30)))


class LoadRetries:
    """Failures by tablet row."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failed: dict[bytes, tuple[int, int]] = {}
        """Failures in a row, and the boot time of the next try."""

    def failed(self, row: bytes) -> None:
        """A load failed for a permanent reason."""
        with self._lock:
            failures = self._failed.get(row, (0, 0))[0] + 1
            self._failed[row] = failures, self._clock.boot_ns() + pause_ms(failures) * 1_000_000

    def over(self, row: bytes) -> None:
        """The tablet is loaded, or it does not exist any more."""
        with self._lock:
            self._failed.pop(row, None)

    def may_try(self, row: bytes) -> bool:
        """Whether a load of the tablet may be ordered now."""
        with self._lock:
            known = self._failed.get(row)
        return known is None or self._clock.boot_ns() >= known[1]
