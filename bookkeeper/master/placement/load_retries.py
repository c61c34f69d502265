"""When a tablet whose load failed is tried again: after a tenth of a second, then after ever longer, up to a minute.

Arrives: loads that failed for a reason that stays, as a damaged file, and loads that went well. Leaves: whether a load
may be ordered now. Survives a crash: nothing; the next leader tries at once. Thread-safe.

A load reads logs and may take as long as the tablet is large, so it is not repeated in each cycle. A person who has put
things right waits a minute at most.
"""

from __future__ import annotations

import threading

from bookkeeper.clock import Clock

RETRY_MIN_MS = 100
RETRY_MAX_MS = 60_000


def rest_ms(failures: int) -> int:
    """How long a tablet rests after so many failures in a row, from 1 on."""
    return int(min(RETRY_MAX_MS, RETRY_MIN_MS << min(failures - 1, 30)))


class LoadRetries:
    """Failures by tablet row."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failed: dict[bytes, tuple[int, int]] = {}
        """Failures in a row, and the boot time from which on the tablet is tried again."""

    def failed(self, row: bytes) -> None:
        """A load failed for a reason that stays."""
        with self._lock:
            failures = self._failed.get(row, (0, 0))[0] + 1
            self._failed[row] = failures, self._clock.boot_ns() + rest_ms(failures) * 1_000_000

    def over(self, row: bytes) -> None:
        """The tablet is loaded, or it is nobody's any more."""
        with self._lock:
            self._failed.pop(row, None)

    def may_try(self, row: bytes) -> bool:
        """Whether a load of the tablet may be ordered now."""
        with self._lock:
            known = self._failed.get(row)
        return known is None or self._clock.boot_ns() >= known[1]
