"""Merging sorted blocks window by window: bounded memory, however many entries lie behind.

Arrives: sources (a run in memory, or the row groups of a segment), each a sorted sequence of blocks. Leaves:
rounds: batches of entries in key order, with the mark where each cell starts. Pure but for the blocks that a source
reads when asked. A round takes a window from each source and merges what lies up to its horizon, the least last key
of the windows; so every round finishes at least one window, and whatever lies behind its horizon comes later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from bookkeeper.storage.tablet.entries import Cell, Position, SortedBlock, after_cell
from bookkeeper.storage.tablet.order import CellOrder, Mask, cell_starts, order_entries

ROUND_GROWTH = 2
"""A round takes this much more than the round before, up to the limit."""


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


class RunSource:
    """A sorted run in memory: one block."""

    __slots__ = ("_block",)

    block_count = 1

    def __init__(self, block: SortedBlock) -> None:
        self._block = block

    @property
    def records(self) -> int:
        """See :class:`Source`."""
        return self._block.records

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


class Cursor:
    """A place in one source; reads blocks as late as it can."""

    __slots__ = ("_index", "_position", "_source", "_stop", "block", "exhausted", "floor", "high", "low", "records")

    def __init__(self, source: Source, position: Position, stop: Position | None) -> None:
        """``stop``: entries behind it do not count; None = all count."""
        self._source = source
        self._stop = stop
        self._position = position
        self._index = -1
        self.records = source.records
        self.block: SortedBlock | None = None
        """The block at hand, once it was read; its entries ``[low, high)`` are next."""
        self.low = 0
        self.high = 0
        self.floor: Position = ()
        """No entry from here on has a key below this; kept up only while there is no block at hand."""
        self.exhausted = False
        self._enter(position, source.seek(position))

    def seek(self, position: Position, low: int | None = None) -> None:
        """Move on to the first entry behind ``position``; none of the block's entries before ``low`` is."""
        block = self.block
        if block is None:
            if position >= self.floor:
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
        if index < self._source.block_count:
            first = self._source.first_key(index)
            if self._stop is None or first <= self._stop:
                self._index = index
                self._position = position
                self.floor = max(position, first)
                return
        self.exhausted = True

    def load(self) -> None:
        """Read the block at hand; afterwards the cursor may be exhausted."""
        block = self._source.block(self._index)
        self.low = block.bisect(self._position)
        self.high = block.records if self._stop is None else block.bisect(self._stop, self.low)
        if self.low < self.high:
            self.block = block
        else:
            self.exhausted = True


@dataclass(frozen=True, slots=True)
class _Window:
    """The next entries of a cursor: ``[cursor.low, high)`` of its block, and the key of the last of them."""

    cursor: Cursor
    block: SortedBlock
    high: int
    last_key: Position

    @classmethod
    def open(cls, cursor: Cursor, block: SortedBlock, records: int) -> _Window:
        high = min(cursor.high, cursor.low + records)
        return cls(cursor, block, high, block.last_key if high == block.records else block.key(high - 1))


@dataclass(frozen=True, slots=True)
class Round:
    """Merged entries: ``entries`` in order when ``order`` is None, else ``order.indices`` puts them in order."""

    entries: pa.RecordBatch
    starts: Mask
    order: CellOrder | None
    last: Cell

    @property
    def records(self) -> int:
        """Number of entries."""
        return int(self.entries.num_rows)

    def select(self, keep: Mask | None) -> pa.RecordBatch:
        """The entries in order, those of ``keep`` only; ``keep`` is in the order of ``starts``."""
        if keep is None or keep.all():
            return self.entries if self.order is None else self.entries.take(pa.array(self.order.indices))
        if self.order is None:
            return self.entries.filter(pa.array(keep))
        return self.entries.take(pa.array(self.order.indices[keep]))

    def in_order(self, values: Mask) -> Mask:
        """Bring values that go with ``entries`` into the order of ``starts``."""
        return values if self.order is None else values[self.order.indices]


@dataclass(frozen=True, slots=True)
class RoundSize:
    """What one round takes: ``records`` in the first one, up to ``records_max`` later, never above ``bytes_max``."""

    records: int
    records_max: int
    bytes_max: int


def _share(cursor: Cursor, block: SortedBlock, records: int, all_records: int, bytes_max: int) -> int:
    """Entries of a cursor's window when keys of all sources are mixed evenly, with a margin for chance.

    Without the margin the least last key of the windows would lie far before the end of most.
    """
    expected = records * cursor.records / all_records
    most = bytes_max * cursor.records / all_records / block.average_bytes
    return max(1, min(int(expected + 2 * expected**0.5 + 4), int(most)))


def _open_windows(cursors: Sequence[Cursor], records: int, bytes_max: int) -> list[_Window]:
    """Windows of all cursors that can hold anything up to the horizon; loads blocks in key order, as few as it can."""
    windows: list[_Window] = []
    horizon: Position | None = None
    all_records = sum(cursor.records for cursor in cursors)
    unread = sorted((c for c in cursors if c.block is None), key=lambda c: c.floor)
    for cursor in [*(c for c in cursors if c.block is not None), *unread]:
        if cursor.block is None:
            if horizon is not None and cursor.floor > horizon:
                break
            cursor.load()
            if cursor.block is None:
                continue
        window = _Window.open(cursor, cursor.block, _share(cursor, cursor.block, records, all_records, bytes_max))
        windows.append(window)
        if horizon is None or window.last_key < horizon:
            horizon = window.last_key
    return windows


def _merge(windows: Sequence[_Window], horizon: Position, behind: Position) -> Round:
    """Merge the windows up to their horizon and move their cursors behind ``behind``."""
    cell: Cell = horizon[:4]  # the entry of that key is in the window that it ends
    parts: list[pa.RecordBatch] = []
    low_row = horizon[0]
    for window in windows:
        cursor, block, low = window.cursor, window.block, window.cursor.low
        first_row = block.row(low)
        if first_row > horizon[0]:
            continue
        high = window.high if window.last_key <= horizon else block.bisect(horizon, low, window.high)
        if high > low:
            parts.append(block.batch.slice(low, high - low))
            low_row = min(low_row, first_row)
        cursor.seek(behind, high)
    if len(parts) == 1:
        return Round(parts[0], cell_starts(parts[0]), None, cell)
    entries = pa.concat_batches(parts)
    order = order_entries(entries, low_row, cell[0])
    return Round(entries, order.starts, order, cell)


def merge_rounds(cursors: Sequence[Cursor], size: RoundSize, *, newest_only: bool) -> Iterator[Round]:
    """Merge everything behind the cursors. Rounds follow each other in key order and share no entry.

    ``newest_only``: entries behind the first of a cell may be left out, and a cell never appears in two rounds.
    Without it all entries appear, and a cell whose versions continue in the next round starts there again.
    """
    records = size.records
    while True:
        cursors = [cursor for cursor in cursors if not cursor.exhausted]
        windows = _open_windows(cursors, records, size.bytes_max)
        if not windows:
            return
        horizon = min(window.last_key for window in windows)
        behind = after_cell(horizon[:4]) if newest_only else horizon
        merged = _merge(windows, horizon, behind)
        for cursor in cursors:
            if cursor.block is None and not cursor.exhausted:
                cursor.seek(behind)
        yield merged
        records = min(records * ROUND_GROWTH, size.records_max)
