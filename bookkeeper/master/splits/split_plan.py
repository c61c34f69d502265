"""The next tablets that an operation splits, and their split rows: as many as memory and the operation's record allow.

Arrives: tablets in row order, with the size of their rows, and the requested end rows. Leaves: tablets with their
splits. Pure. A change makes its tablets unavailable for the time of a flush, so it has few tablets. Splits of one
tablet cost only cells, so it may have many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from bookkeeper.metadata.metadata_table import Row
from bookkeeper.model import Extent

TABLETS_AT_ONCE = 64
"""Most tablets that are split in one change."""

SPLITS_AT_ONCE = 2_048
"""Most tablets that one change makes."""

KEYS_BYTES_MAX = 1024 * 1024
"""Most bytes of new end rows in one change: the operation's record stores them."""

CELLS_BYTES_MAX = 16 * 1024 * 1024
"""Most bytes that one change writes: each new tablet gets about as many bytes as the row of the old one has."""


class Splittable(Struct, frozen=True):
    """A tablet with at least one of the rows. ``row_bytes``: the size of its state and its segments' cells."""

    extent: Extent
    row_bytes: int


class SplitPlan(Struct, frozen=True):
    """Tablets with their split rows, ascending. ``handled``: the number of requested rows that this plan covers."""

    tablets: tuple[tuple[Extent, tuple[bytes, ...]], ...]
    handled: int


def plan_splits(tablets: Iterable[Splittable], rows: Sequence[bytes]) -> SplitPlan:
    """The first change that splits tablets at some of these rows (ascending). A row where a tablet ends needs no split.
    ``tablets`` has, in order, the tablets with the rows; the plan reads only those that it needs.
    """
    found: list[tuple[Extent, tuple[bytes, ...]]] = []
    room = _Capacity()
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


class _Capacity(Struct):
    """The remaining capacity of one change."""

    splits: int = SPLITS_AT_ONCE
    keys_bytes: int = KEYS_BYTES_MAX
    cells_bytes: int = CELLS_BYTES_MAX

    def splits_of(self, rows: Sequence[bytes], row_bytes: int, is_first: bool) -> int:
        """The number of these splits of one tablet that fit; for the first tablet at least one."""
        fitting, keys_bytes = 0, self.keys_bytes
        for row in rows[: self.splits]:
            keys_bytes -= len(row)
            if keys_bytes < 0 or (fitting + 2) * row_bytes > self.cells_bytes:
                break
            fitting += 1
        return max(fitting, 1 if is_first and rows else 0)

    def take(self, rows: Sequence[bytes], row_bytes: int) -> None:
        """Add these splits of one tablet to the change."""
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
    """Index of the first row behind the tablet."""
    while first < len(rows) and extent.contains(rows[first]):
        first += 1
    return first


def size_of(row: Row) -> int:
    """Bytes of the cells of a tablet's row."""
    return sum(len(column.qualifier) + len(cell.value) for column, cell in row.cells.items())
