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

WINDOW_GROWTH = 2
"""A round's windows are this much larger than those of the round before, up to the limit."""


class Source(Protocol):
    """A sorted sequence of sorted blocks, none empty."""

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

    def seek(self, position: Position) -> int:
        """See :class:`Source`."""
        return int(self._block.bisect(position) == self._block.records)

    def first_key(self, index: int) -> Position:
        """See :class:`Source`."""
        return self._block.key(index)

    def block(self, index: int) -> SortedBlock:
        """See :class:`Source`."""
        del index
        return self._block


@dataclass(slots=True)
class _Slice:
    """Entries ``[low, high)`` of a block."""

    block: SortedBlock
    low: int
    high: int

    def batch(self) -> pa.RecordBatch:
        return self.block.batch.slice(self.low, self.high - self.low)


class Cursor:
    """A place in one source; reads blocks as late as it can."""

    def __init__(self, source: Source, position: Position, stop: Position | None) -> None:
        """``stop``: entries behind it do not count; None = all count."""
        self._source = source
        self._stop = stop
        self._position = position
        self._block: SortedBlock | None = None
        self._index = -1
        self._low = 0
        self._high = 0
        self._enter(position)

    floor: Position
    """No entry from here on has a key below this; exact while the cursor is not loaded."""

    exhausted = False

    @property
    def loaded(self) -> bool:
        """Whether the next window costs no reading."""
        return self._block is not None

    def seek(self, position: Position) -> None:
        """Move on to the first entry behind ``position``, never back."""
        if self._block is None:
            if position >= self.floor:
                self._enter(position)
            return
        self._position = position
        self._low = self._block.bisect(position, self._low, self._high)
        if self._low == self._high:
            ends_here = self._high < self._block.records
            self._block = None
            self._enter(position, ends_here)

    def _enter(self, position: Position, ends_here: bool = False) -> None:
        """Find the block that goes on behind ``position`` without reading it."""
        index = self._source.block_count if ends_here else self._source.seek(position)
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
        if self._block is not None or self.exhausted:
            return
        block = self._source.block(self._index)
        self._low = block.bisect(self._position)
        self._high = block.records if self._stop is None else block.bisect(self._stop, self._low)
        if self._low < self._high:
            self._block = block
        else:
            self.exhausted = True

    def window(self, records: int, bytes_max: int) -> _Slice:
        """The next entries, at least one, not beyond the block and the bounds. Only when loaded."""
        if self._block is None:
            raise ValueError("a cursor has no window before it is loaded")
        most = max(1, min(records, int(bytes_max / self._block.average_bytes)))
        return _Slice(self._block, self._low, min(self._high, self._low + most))


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


def _open_windows(cursors: Sequence[Cursor], records: int, bytes_max: int) -> tuple[list[_Slice], Position]:
    """Windows of all cursors that can hold anything up to the horizon; loads blocks in key order, as few as it can."""
    windows: list[_Slice] = []
    horizon: Position | None = None
    for cursor in sorted(cursors, key=lambda c: (not c.loaded, c.floor)):
        if not cursor.loaded:
            if horizon is not None and cursor.floor > horizon:
                break
            cursor.load()
            if cursor.exhausted:
                continue
        window = cursor.window(records, bytes_max)
        windows.append(window)
        last = window.block.key(window.high - 1)
        horizon = last if horizon is None else min(horizon, last)
    return windows, horizon or ()


def _merge(windows: Sequence[_Slice], horizon: Position) -> Round | None:
    parts: list[_Slice] = []
    for window in windows:
        high = window.block.bisect(horizon, window.low, window.high)
        if high > window.low:
            parts.append(_Slice(window.block, window.low, high))
    if not parts:
        return None
    if len(parts) == 1:
        entries = parts[0].batch()
        return Round(entries, cell_starts(entries), None, parts[0].block.cell(parts[0].high - 1))
    entries = pa.concat_batches([part.batch() for part in parts])
    low = min(part.block.row(part.low) for part in parts)
    last = max(parts, key=lambda part: part.block.key(part.high - 1))
    cell = last.block.cell(last.high - 1)
    order = order_entries(entries, low, cell[0])
    return Round(entries, order.starts, order, cell)


@dataclass(frozen=True, slots=True)
class WindowSize:
    """Entries one round takes: ``first`` in the first one, up to ``most`` later, about ``bytes_max`` bytes at most."""

    first: int
    most: int
    bytes_max: int


def merge_rounds(cursors: Sequence[Cursor], size: WindowSize, *, newest_only: bool) -> Iterator[Round]:
    """Merge everything behind the cursors. Rounds follow each other in key order and share no entry.

    ``newest_only``: entries behind the first of a cell may be left out, and a cell never appears in two rounds.
    Without it all entries appear, and a cell whose versions continue in the next round starts there again.
    """
    total = size.first
    while True:
        alive = [cursor for cursor in cursors if not cursor.exhausted]
        if not alive:
            return
        share = len(alive)
        windows, horizon = _open_windows(alive, max(1, total // share), size.bytes_max // share)
        merged = _merge(windows, horizon)
        if merged is None:
            continue
        yield merged
        position = after_cell(merged.last) if newest_only else horizon
        for cursor in alive:
            if not cursor.exhausted:
                cursor.seek(position)
        total = min(total * WINDOW_GROWTH, size.most)
