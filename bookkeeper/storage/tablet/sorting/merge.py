"""Merge sorted blocks window by window, in bounded memory.

A source is a sorted sequence of blocks: a run in memory, or the row groups of a segment. A round is a batch of merged
entries in key order, with a mark where each cell starts. It takes a window from each source and merges the entries up
to its horizon: the least last key of those windows behind which their sources go on. So every round finishes at least
one window, and entries behind its horizon come later. Pure but for the blocks that a source reads.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from bookkeeper.storage.tablet.sorting.constant_columns import NO_CONSTANTS, ConstantColumns, with_constants
from bookkeeper.storage.tablet.sorting.entries import ENTRY_SCHEMA, Cell, Position, SortedBlock, after_cell, cell_at
from bookkeeper.storage.tablet.sorting.order import CellOrder, Mask, cell_starts, order_entries
from bookkeeper.storage.tablet.sorting.take import take_records

_T = TypeVar("_T", bound=Any)

FEW = 1024
"""Fewer entries are copied together faster than columns are made for them."""

READ_AHEAD = 4
"""The next block is read ahead when this many pages like the present one would reach it."""


class Source(Protocol):
    """A sorted sequence of sorted blocks, none empty."""

    @property
    def records(self) -> int:
        """Number of entries in all blocks."""

    @property
    def block_count(self) -> int:
        """Number of blocks."""

    def seek(self, position: Position) -> int:
        """Index of the first block that has an entry behind ``position``; ``block_count`` when none has."""

    def first_key(self, index: int) -> Position:
        """Key of a block's first entry, without reading the block."""

    def block(self, index: int) -> SortedBlock:
        """Read a block; raises CorruptionError."""

    def prefetch(self, index: int) -> None:
        """Begin to read a block that is needed soon; :meth:`block` raises its error."""


class RunSource:
    """A sorted run in memory: one block."""

    __slots__ = ("_block", "records")

    block_count = 1

    def __init__(self, block: SortedBlock, records: int | None = None) -> None:
        """``records``: of all entries that the block was selected from; windows grow with their number."""
        self._block = block
        self.records = block.records if records is None else records

    def seek(self, position: Position) -> int:
        """See :class:`Source`."""
        return int(position >= self._block.last_key)

    def first_key(self, index: int) -> Position:
        """See :class:`Source`."""
        del index
        return self._block.first_key

    def block(self, index: int) -> SortedBlock:
        """See :class:`Source`."""
        del index
        return self._block

    def prefetch(self, index: int) -> None:
        """See :class:`Source`."""


class Cursor:
    """A position in one source; reads blocks as late as it can."""

    def __init__(self, source: Source, position: Position, stop: Position | None) -> None:
        """``stop``: entries behind it do not count; None = all count."""
        self._source = source
        self._stop = stop
        self._position = position
        self._index = -1
        self._next: SortedBlock | None = None
        self._merged = 0
        self.records = source.records
        self.block: SortedBlock | None = None
        """The current block, once it was read; its entries ``[low, high)`` are next."""
        self.low = 0
        self.high = 0
        self.floor: Position = ()
        """No later entry has a key below this; valid only while there is no current block."""
        self.exhausted = False
        self._enter(position, source.seek(position))

    @property
    def certain(self) -> bool:
        """Whether the block that is not read yet will be: the position lies inside of it."""
        return self.block is None and not self.exhausted and self.floor == self._position

    def seek(self, position: Position, low: int | None = None) -> None:
        """Move on to the first entry behind ``position``; none of the block's entries before ``low`` is."""
        block = self.block
        if block is None:
            if position >= self.floor and position != self._position:
                self._enter(position, self._source.seek(position))
            return
        self._position = position
        low = self.low if low is None else low
        if low < self.high and block.row(low) <= position[0]:
            low = block.bisect(position, low, self.high)
        self.low = low
        if low == self.high:
            self.block = None
            at_stop = self.high < block.records
            self._enter(position, self._source.block_count if at_stop else self._source.seek(position))

    def _enter(self, position: Position, index: int) -> None:
        """Go to the block ``index``, which goes on behind ``position``, without reading it."""
        if index != self._index + 1:
            self._next = None
        if index < self._source.block_count:
            first = self._source.first_key(index)
            if self._stop is None or first <= self._stop:
                self._index = index
                self._position = position
                self.floor = max(position, first)
                return
        self.exhausted = True

    def load(self) -> None:
        """Read the current block; afterwards the cursor may be exhausted."""
        block = self._next or self._source.block(self._index)
        self._next = None
        self.low = block.bisect(self._position)
        self.high = self._end(block, self.low)
        if self.low < self.high:
            self.block = block
        else:
            self.exhausted = True

    def _end(self, block: SortedBlock, low: int) -> int:
        return block.records if self._stop is None else block.bisect(self._stop, low)

    def next_block(self) -> tuple[SortedBlock, int] | None:
        """The block behind the current one, and the end of its entries that count; None when there is none."""
        if self.block is None or self.high < self.block.records or not self._counts(self._index + 1):
            return None
        if self._next is None:
            self._next = self._source.block(self._index + 1)
        return self._next, self._end(self._next, 0)

    def ends_with(self, block: SortedBlock, high: int) -> bool:
        """Whether no entry counts behind the first ``high`` entries of the current block, or of the one behind it."""
        index = self._index if block is self.block else self._index + 1
        if high < block.records:
            return high == (self.high if block is self.block else self._end(block, 0))
        return not self._counts(index + 1)

    def _counts(self, index: int) -> bool:
        """Whether there is such a block, and it may have an entry that counts."""
        if index >= self._source.block_count:
            return False
        return self._stop is None or self._source.first_key(index) <= self._stop

    def count_merged(self, records: int) -> None:
        """Count merged entries of this source, for :meth:`read_ahead`."""
        self._merged += records

    def prefetch(self) -> None:
        """Begin to read the current block."""
        self._source.prefetch(self._index)

    def read_ahead(self) -> None:
        """Begin to read the next block when a few times the entries merged so far would reach it."""
        if not self._merged or self.exhausted:
            return
        if self.block is None:
            self._source.prefetch(self._index)
            return
        near = self.high == self.block.records and self.high - self.low <= self._merged * READ_AHEAD
        if near and self._next is None and self._index + 1 < self._source.block_count:
            self._source.prefetch(self._index + 1)


class _Slice(Struct):
    """Entries ``[low, high)`` of a block."""

    block: SortedBlock
    low: int
    high: int

    def up_to(self, horizon: Position) -> int:
        """End of the entries that are not behind ``horizon``."""
        if self.block.row(self.low) > horizon[0]:
            return self.low
        return self.block.bisect(horizon, self.low, self.high)


class _Window(Struct):
    """The next entries of a cursor, in its block and perhaps the next one."""

    cursor: Cursor
    slices: tuple[_Slice, ...]
    last_row: bytes
    """Row of the last entry: mostly enough to tell which of two windows ends first."""

    @classmethod
    def open(cls, cursor: Cursor, block: SortedBlock, records: int) -> _Window:
        first = _Slice(block, cursor.low, min(cursor.high, cursor.low + records))
        missing = records - (first.high - first.low)
        behind = cursor.next_block() if missing > 0 else None
        if behind is None:
            return cls(cursor, (first,), block.row(first.high - 1))
        second = _Slice(behind[0], 0, min(behind[1], missing))
        return cls(cursor, (first, second), behind[0].row(second.high - 1))

    @property
    def last_key(self) -> Position:
        """Key of the last entry."""
        last = self.slices[-1]
        return last.block.last_key if last.high == last.block.records else last.block.key(last.high - 1)

    @property
    def is_last(self) -> bool:
        """Whether its source has nothing behind it."""
        last = self.slices[-1]
        return self.cursor.ends_with(last.block, last.high)

    def ends_before(self, other: _Window) -> bool:
        """Whether its last entry lies before that of another."""
        if self.last_row != other.last_row:
            return self.last_row < other.last_row
        return self.last_key < other.last_key

    def take(self, horizon: Position, behind: Position) -> list[_Slice]:
        """The entries up to ``horizon``; moves the cursor behind ``behind``."""
        taken: list[_Slice] = []
        is_complete = self.last_row < horizon[0] or (self.last_row == horizon[0] and self.last_key <= horizon)
        for part in self.slices:
            high = part.high if is_complete else part.up_to(horizon)
            if high > part.low:
                taken.append(_Slice(part.block, part.low, high))
                self.cursor.count_merged(high - part.low)
            if high < part.high:
                break
        self.cursor.seek(behind, taken[0].high if taken else None)
        return taken


class Round(Struct, frozen=True, dict=True):
    """Merged entries: ``entries`` in order when ``order`` is None, else ``order.indices`` puts them in order."""

    entries: pa.RecordBatch
    order: CellOrder | None
    end: Position
    """Key of the last entry."""
    constants: ConstantColumns
    """Columns of one value."""
    marks: Mask | None = None
    """``starts``, if they were computed with the order."""

    @functools.cached_property
    def starts(self) -> Mask:
        """For each entry in order: whether it is the first of its cell. A flush does not use it."""
        return cell_starts(self.entries) if self.marks is None else self.marks

    @property
    def records(self) -> int:
        """Number of entries."""
        return int(self.entries.num_rows)

    @property
    def first(self) -> Cell:
        """Cell of the first entry."""
        return cell_at(self.entries, 0 if self.order is None else int(self.order.indices[0]))

    @property
    def last(self) -> Cell:
        """Cell of the last entry."""
        cell: Cell = self.end[:4]
        return cell

    def select(self, keep: Mask | None) -> pa.RecordBatch:
        """The entries in order, those of ``keep`` only; ``keep`` is in the order of ``starts``."""
        if keep is None or keep.all():
            return (
                self.entries if self.order is None else take_records(self.entries, self.order.indices, self.constants)
            )
        if self.order is None:
            return self.entries.filter(pa.array(keep))
        return take_records(self.entries, self.order.indices[keep], self.constants)

    def in_order(self, values: npt.NDArray[_T]) -> npt.NDArray[_T]:
        """Values of ``entries``, in the order of ``starts``."""
        return values if self.order is None else values[self.order.indices]


def _window_entries(cursor: Cursor, block: SortedBlock, records: int, all_records: int, bytes_max: int) -> int:
    """Entries of a cursor's window when keys of all sources are mixed evenly, with a margin for chance.

    Without the margin the least last key of the windows would lie far before the end of most.
    """
    expected = records * cursor.records / all_records
    most = bytes_max * cursor.records / all_records * block.records / block.bytes
    return max(1, min(int(expected + 2 * expected**0.5 + 4), int(most)))


def _open_windows(cursors: Sequence[Cursor], records: int, bytes_max: int) -> tuple[list[_Window], _Window | None]:
    """Windows of all cursors that can hold anything up to the horizon, and the one that ends there; loads blocks in key
    order, as few as it can.
    """
    windows: list[_Window] = []
    nearest: _Window | None = None  # of those behind which their sources go on
    furthest: _Window | None = None  # of the others: they end no round, but cursors behind them can wait
    all_records = sum(cursor.records for cursor in cursors)
    unread = sorted((c for c in cursors if c.block is None), key=lambda c: c.floor)
    for cursor in [*(c for c in cursors if c.block is not None), *unread]:
        if cursor.block is None:
            bound = nearest or furthest
            if bound is not None and cursor.floor > bound.last_key:
                break
            cursor.load()
            if cursor.block is None:
                continue
        window = _Window.open(
            cursor, cursor.block, _window_entries(cursor, cursor.block, records, all_records, bytes_max)
        )
        windows.append(window)
        if window.is_last:
            furthest = window if furthest is None or furthest.ends_before(window) else furthest
        else:
            nearest = window if nearest is None or window.ends_before(nearest) else nearest
    return windows, nearest or furthest


def _merge(windows: Sequence[_Window], horizon: Position, behind: Position) -> Round:
    """Merge the windows up to their horizon and move their cursors behind ``behind``."""
    taken = [parts for parts in (window.take(horizon, behind) for window in windows) if parts]
    parts = [part for parts in taken for part in parts]
    if len(parts) == 1:
        (only,) = parts
        entries = only.block.batch.slice(only.low, only.high - only.low)
        return Round(entries, None, horizon, only.block.constants)
    entries, constants = _joined(parts)
    if len(taken) == 1:
        return Round(entries, None, horizon, constants)
    low_row = min(parts[0].block.row(parts[0].low) for parts in taken)
    order = order_entries(entries, low_row, horizon[0])  # the entry of that key is in the window that it ends
    return Round(entries, None if order.was_sorted else order, horizon, constants, order.starts)


def _joined(parts: Sequence[_Slice]) -> tuple[pa.RecordBatch, ConstantColumns]:
    """The entries of all parts, one part behind the other; constant columns are made anew, not copied."""
    constants = parts[0].block.constants
    if sum(part.high - part.low for part in parts) < FEW or any(part.block.constants != constants for part in parts):
        constants = NO_CONSTANTS
    if not constants:
        return pa.concat_batches([part.block.batch.slice(part.low, part.high - part.low) for part in parts]), constants
    others = pa.concat_batches([part.block.others.slice(part.low, part.high - part.low) for part in parts])
    return with_constants(others, constants, ENTRY_SCHEMA), constants


def merge_round(cursors: list[Cursor], records: int, bytes_max: int, *, newest_only: bool) -> Round | None:
    """Merge the next entries, about ``records`` and at least one, and move the cursors behind them; None at the end.

    Windows above ``bytes_max`` together are cut. Rounds follow each other in key order and share no entry.
    ``newest_only``: entries behind the first of a cell may be left out, and a cell never appears in two rounds.
    Without it all entries appear, and a cell whose versions continue in the next round starts there again.
    """
    cursors[:] = [cursor for cursor in cursors if not cursor.exhausted]
    for cursor in [cursor for cursor in cursors if cursor.certain][1:]:
        cursor.prefetch()
    windows, ending = _open_windows(cursors, records, bytes_max)
    if ending is None:
        return None
    horizon = ending.last_key
    behind = after_cell(horizon[:4]) if newest_only else horizon
    merged = _merge(windows, horizon, behind)
    for cursor in cursors:
        if cursor.block is None and not cursor.exhausted:
            cursor.seek(behind)
    return merged
