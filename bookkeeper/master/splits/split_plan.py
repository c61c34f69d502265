"""Which tablets an operation splits next, and where: as many at once as memory and one record of the books allow.

Arrives: tablets in row order, with the size of their rows, and the rows at which tablets are to end. Leaves: tablets
with their splits. Pure. A tablet of a change is away for the time of a flush, so the number of tablets is small; the
number of splits of one tablet costs cells only, and may be large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bookkeeper.metadata.metadata_table import Row
from bookkeeper.model import Extent

TABLETS_AT_ONCE = 64
"""Most tablets that are split in one change."""

SPLITS_AT_ONCE = 2_048
"""Most tablets that one change makes."""

KEYS_BYTES_MAX = 1024 * 1024
"""Most bytes of new end rows in one change: the record of the operation holds them."""

CELLS_BYTES_MAX = 16 * 1024 * 1024
"""Most bytes that one change writes: each new tablet gets about what the row of the one that is split holds."""


@dataclass(frozen=True, slots=True)
class Splittable:
    """A tablet that holds at least one of the rows; ``row_bytes`` is the size of its state and its segments' cells."""

    extent: Extent
    row_bytes: int


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """Tablets with the rows to split them at, ascending; ``handled`` is how many of the rows need no other look."""

    tablets: tuple[tuple[Extent, tuple[bytes, ...]], ...]
    handled: int


def plan_splits(tablets: Iterable[Splittable], rows: Sequence[bytes]) -> SplitPlan:
    """The first change that splits tablets at some of these rows (ascending). Rows at which a tablet ends are handled
    already. ``tablets`` has, in order, those that hold the rows; no more of it is taken than is needed.
    """
    found: list[tuple[Extent, tuple[bytes, ...]]] = []
    room = _Room()
    handled = 0
    for tablet in tablets:
        inside = list(_inside(tablet.extent, rows, handled))
        fitting = inside[: room.splits_of(inside, tablet.row_bytes, is_first=not found)]
        if fitting:
            room.take(fitting, tablet.row_bytes)
            found.append((tablet.extent, tuple(fitting)))
        if len(fitting) < len(inside):
            handled = rows.index(fitting[-1], handled) + 1 if fitting else handled
            break
        handled = _behind(tablet.extent, rows, handled)
        if len(found) == TABLETS_AT_ONCE or handled == len(rows):
            break
    return SplitPlan(tuple(found), handled)


@dataclass(slots=True)
class _Room:
    """What one change may still take."""

    splits: int = SPLITS_AT_ONCE
    keys_bytes: int = KEYS_BYTES_MAX
    cells_bytes: int = CELLS_BYTES_MAX

    def splits_of(self, rows: Sequence[bytes], row_bytes: int, is_first: bool) -> int:
        """How many of these splits of one tablet fit; of the first tablet at least one."""
        fitting, keys_bytes = 0, self.keys_bytes
        for row in rows[: self.splits]:
            keys_bytes -= len(row)
            if keys_bytes < 0 or (fitting + 2) * row_bytes > self.cells_bytes:
                break
            fitting += 1
        return max(fitting, 1 if is_first and rows else 0)

    def take(self, rows: Sequence[bytes], row_bytes: int) -> None:
        """These splits of one tablet are part of the change."""
        self.splits -= len(rows)
        self.keys_bytes -= sum(map(len, rows))
        self.cells_bytes -= (len(rows) + 1) * row_bytes


def _inside(extent: Extent, rows: Sequence[bytes], first: int) -> Iterator[bytes]:
    for index in range(first, len(rows)):
        if not extent.contains(rows[index]):
            return
        if rows[index] != extent.end_row:
            yield rows[index]


def _behind(extent: Extent, rows: Sequence[bytes], first: int) -> int:
    """Place of the first row behind the tablet."""
    while first < len(rows) and extent.contains(rows[first]):
        first += 1
    return first


def size_of(row: Row) -> int:
    """Bytes of the cells that each part of a tablet gets a share of."""
    return sum(len(column.qualifier) + len(cell.value) for column, cell in row.cells.items())
