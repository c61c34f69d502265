"""Counts what replication shipped, from samples of its status.

Arrives: samples of the replication status. Leaves: sums over all files that were ever seen. A counter that went back
(a new master counts anew) is added to what was counted before it. What happens between two samples to a counter that
then vanishes is not seen: sums are a lower bound, close with frequent samples.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bookkeeper.model import TargetKey
from bookkeeper.rpc.messages import TargetStatus

Counts = tuple[int, int, int]
"""Records, bytes, resends."""

_NOTHING: Counts = (0, 0, 0)


@dataclass(slots=True)
class Tally:
    """Sums of counters over files, targets and reigns of masters."""

    _done: dict[tuple[str, TargetKey], Counts] = field(default_factory=dict)
    _current: dict[tuple[str, TargetKey], Counts] = field(default_factory=dict)
    lag_records_max: int = 0
    lag_seconds_max: float = 0.0

    def sample(self, statuses: Iterable[TargetStatus]) -> int:
        """Take one status in; returns the records that it says are still to be shipped."""
        behind, oldest = 0, 0.0
        for status in statuses:
            key = (status.file, status.target)
            now = (status.records_shipped, status.bytes_shipped, status.resends)
            before = self._current.get(key, _NOTHING)
            if any(new < old for new, old in zip(now, before, strict=True)):
                self._done[key] = _add(self._done.get(key, _NOTHING), before)
            self._current[key] = now
            behind += status.lag_records
            oldest = max(oldest, status.lag_seconds)
        self.lag_records_max = max(self.lag_records_max, behind)
        self.lag_seconds_max = max(self.lag_seconds_max, oldest)
        return behind

    @property
    def files(self) -> int:
        """How many WALs were seen."""
        return len({file for file, _target in self._current})

    def totals(self) -> Counts:
        """Records, bytes and resends so far."""
        total = _NOTHING
        for counts in (*self._done.values(), *self._current.values()):
            total = _add(total, counts)
        return total


def _add(left: Counts, right: Counts) -> Counts:
    return left[0] + right[0], left[1] + right[1], left[2] + right[2]
