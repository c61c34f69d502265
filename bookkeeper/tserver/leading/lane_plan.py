"""When a lane tries a tablet, or its whole host, again. Pure: the caller brings time and chance."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

RETRY_MIN_MS = 100.0
RETRY_MAX_MS = 2_000.0

HOST = b""
"""The key of the host itself, which no tablet's row has."""


def retry_ms(failures: int, chance: float) -> float:
    """The wait after so many failures in a row: it doubles, and half of it is by chance (0 to 1), so that the lanes of
    several leaders do not come back together.
    """
    longest = min(RETRY_MAX_MS, RETRY_MIN_MS * 2.0 ** min(failures - 1, 20))
    return longest / 2 * (1 + chance)


@dataclass(slots=True)
class LanePlan:
    """The waits of one lane, by the rows of its tablets."""

    _failures: dict[bytes, int] = field(default_factory=dict)
    _until_ns: dict[bytes, int] = field(default_factory=dict)

    def is_due(self, key: bytes, now_ns: int) -> bool:
        """Whether it may be tried now."""
        return self._until_ns.get(key, 0) <= now_ns

    def succeeded(self, key: bytes) -> None:
        """It did what was asked."""
        self._failures.pop(key, None)
        self._until_ns.pop(key, None)

    def failed(self, key: bytes, now_ns: int, chance: float) -> int:
        """Wait before the next try; returns how often it failed in a row."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._until_ns[key] = now_ns + int(retry_ms(failures, chance) * 1_000_000)
        return failures

    def retain(self, keys: Collection[bytes]) -> None:
        """Forget all but these and the host."""
        for key in [key for key in self._failures if key != HOST and key not in keys]:
            self.succeeded(key)
