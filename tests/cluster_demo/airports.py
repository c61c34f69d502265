"""The load: the operations of ``make demo`` as an endless workload, which begins anew when all airports are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bookkeeper.model import LocalityGroup
from shell.demo.workload import GROUPS, Operation, load_airports, operations
from tests.support.workloads import RowChange

BATCH_ROWS = 25


@dataclass(frozen=True, slots=True)
class Airports:
    """Inserts, overwrites and deletes of real airports; a seed gives one list."""

    seed: int
    table: str = "airports"
    splits: tuple[bytes, ...] = (b"F", b"L", b"S")
    groups: tuple[LocalityGroup, ...] = tuple(
        LocalityGroup(name, tuple(sorted(families))) for name, families in GROUPS.items()
    )
    _operations: list[Operation] = field(default_factory=list)

    def batch(self, number: int) -> Sequence[RowChange]:
        """:data:`BATCH_ROWS` operations."""
        if not self._operations:
            self._operations.extend(operations(load_airports(), self.seed))
        first = number * BATCH_ROWS
        places = (place % len(self._operations) for place in range(first, first + BATCH_ROWS))
        return [RowChange(one.row, one.changes) for one in map(self._operations.__getitem__, places)]
