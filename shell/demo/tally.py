"""Counts what replication shipped, from samples of its status.

Arrives: samples of the replication status. Leaves: sums over all files that were ever seen. Records are finished
offsets from the books; a file that left the status had everything on the peer. Bytes and records sent again are
counters in the memory of a master: one that went back (a new master counts anew) is added to what was counted before
it, and what is counted between the last sample of a file and its end is not seen. Sample often.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bookkeeper.model import TargetKey
from bookkeeper.rpc.messages import TargetStatus

SAMPLE_MS = 200
"""How often to look."""


@dataclass(slots=True)
class _FileCount:
    """What is known of one file on its way to one target."""

    needed: int = 0
    finished: int = 0
    bytes_shipped: int = 0
    resends: int = 0
    bytes_before: int = 0
    resends_before: int = 0

    def take(self, status: TargetStatus) -> None:
        """A newer sample."""
        if status.bytes_shipped < self.bytes_shipped or status.resends < self.resends:
            self.bytes_before += self.bytes_shipped
            self.resends_before += self.resends
        self.bytes_shipped, self.resends = status.bytes_shipped, status.resends
        self.needed, self.finished = max(self.needed, status.needed), max(self.finished, status.finished)


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all files."""

    files: int
    records: int
    bytes_shipped: int
    resends: int


@dataclass(slots=True)
class Tally:
    """See the module. Used by one thread at a time."""

    behind: int = 0
    """Records that the latest sample says are still to be shipped."""
    _counts: dict[tuple[str, TargetKey], _FileCount] = field(default_factory=dict)
    _present: frozenset[tuple[str, TargetKey]] = frozenset()

    def sample(self, statuses: Iterable[TargetStatus]) -> None:
        """Take one status in."""
        found = list(statuses)
        for status in found:
            self._counts.setdefault((status.file, status.target), _FileCount()).take(status)
        self._present = frozenset((status.file, status.target) for status in found)
        self.behind = sum(status.lag_records for status in found)

    def totals(self) -> Totals:
        """What was shipped so far."""
        counts = self._counts
        return Totals(
            files=len({file for file, _target in counts}),
            records=sum(c.finished if key in self._present else c.needed for key, c in counts.items()),
            bytes_shipped=sum(c.bytes_before + c.bytes_shipped for c in counts.values()),
            resends=sum(c.resends_before + c.resends for c in counts.values()),
        )
