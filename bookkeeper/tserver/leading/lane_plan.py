"""When a lane tries a tablet, or all tablets of a disk, again. Pure: the caller brings time and chance."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct, field

from bookkeeper.replicas.values import Target

RETRY_MIN_MS = 100.0
RETRY_MAX_MS = 2_000.0


def disk_of(target: Target) -> bytes:
    """The key of a target's disk, which no tablet's row is."""
    return b"~disk " + target.placement.incarnation.encode()


def retry_ms(failures: int, chance: float) -> float:
    """The wait after so many failures in a row: it doubles, and half of it is by chance (0 to 1), so that the lanes of
    several leaders do not come back together.
    """
    longest = min(RETRY_MAX_MS, RETRY_MIN_MS * 2.0 ** min(failures - 1, 20))
    return longest / 2 * (1 + chance)


class LanePlan(Struct):
    """The waits of one lane, by the rows of its tablets and by :func:`disk_of`."""

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

    @property
    def has_waits(self) -> bool:
        """Whether anything has failed and was not done since."""
        return bool(self._failures)

    def retain(self, keys: Collection[bytes]) -> None:
        """Forget all but these."""
        for key in [key for key in self._failures if key not in keys]:
            self.succeeded(key)
