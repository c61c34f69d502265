"""Entries, their keys, and sorted blocks of them. An *entry* is a mutation record with its sequence number.

Keys are tuples in the total order of a tablet: row, family, qualifier, visibility ascending as bytes, then timestamp
and sequence number descending, so the newest version of a cell comes first. Sorted blocks are bisected over Arrow
offsets. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.storage.columns import (
    WORD_BYTES,
    WordReader,
    binary_data,
    binary_offsets,
    common_prefix_bytes,
    content_bytes,
)
from bookkeeper.storage.tablet.sorting.constant_columns import NO_CONSTANTS, ConstantColumns, without_constants

ENTRY_SCHEMA = pa.schema([*MUTATION_SCHEMA, pa.field("seq", pa.int64(), nullable=False)])
"""The schema of memtables and segments; in them a timestamp is never null."""

KEY_COLUMNS = ("row", "family", "qualifier", "visibility", "timestamp", "seq")
ROW, FAMILY, QUALIFIER, VISIBILITY, TIMESTAMP, DELETE, VALUE, SEQ = range(8)

_Row = bytes
Cell = tuple[bytes, bytes, bytes, bytes]
"""Row, family, qualifier, visibility."""

Position = tuple[Any, ...]
"""A point between entries, compared as a tuple with entry keys ``(row, family, qualifier, visibility, -timestamp,
-seq)``: ``()`` is before all, ``(row,)`` before the row, :func:`after_cell` behind a cell, a key behind its entry."""

_BEHIND_ALL_VERSIONS = 1 << 64


def after_cell(cell: Cell) -> Position:
    """The position behind every version of ``cell``."""
    return (*cell, _BEHIND_ALL_VERSIONS)


def to_entries(batch: pa.RecordBatch, first_seq: int) -> pa.RecordBatch:
    """Number the records of ``batch`` from ``first_seq`` on, in order, without copying them.

    Raises InvalidInputError unless the schema is MUTATION_SCHEMA and every timestamp is set.
    """
    if not batch.schema.equals(MUTATION_SCHEMA):
        raise InvalidInputError(f"a tablet takes records of the mutation schema, not {batch.schema}")
    if batch.column(TIMESTAMP).null_count:
        raise InvalidInputError("a record reached a tablet without a timestamp")
    seq = pa.array(np.arange(first_seq, first_seq + batch.num_rows, dtype=np.int64))
    return pa.RecordBatch.from_arrays([*batch.columns, seq], schema=ENTRY_SCHEMA)


def to_records(entries: pa.RecordBatch) -> pa.RecordBatch:
    """Drop the sequence numbers again."""
    return pa.RecordBatch.from_arrays(entries.columns[:SEQ], schema=MUTATION_SCHEMA)


def row_reader(array: pa.Array) -> Callable[[int], bytes]:
    """A fast ``index -> bytes`` of a binary array; indices are not checked."""
    offsets = memoryview(binary_offsets(array).data)
    data = binary_data(array)

    def read(index: int) -> bytes:
        return bytes(data[offsets[index] : offsets[index + 1]])

    return read


def _integer_reader(array: pa.Array) -> Callable[[int], int]:
    """A fast ``index -> value`` of an int64 array without nulls; indices are not checked."""
    raw = array.buffers()[1]
    values = np.zeros(0, np.int64) if raw is None else np.frombuffer(raw, np.int64, len(array), array.offset * 8)
    return values.data.__getitem__


def cell_at(batch: pa.RecordBatch, index: int) -> Cell:
    """Cell of one entry or record; for a few of a batch only."""
    row, family, qualifier, visibility = (batch.column(name)[index].as_py() for name in KEY_COLUMNS[:4])
    return row, family, qualifier, visibility


BINARY_COLUMNS = [index for index, field in enumerate(ENTRY_SCHEMA) if pa.types.is_binary(field.type)]
_OFFSET_BYTES = 4
FIXED_BYTES = float(
    sum(field.type.bit_width for field in ENTRY_SCHEMA if not pa.types.is_binary(field.type)) / 8
    + _OFFSET_BYTES * len(BINARY_COLUMNS)
)
"""Of one entry in memory: its numbers, and the offsets of its binary values."""


def entry_bytes(entries: pa.RecordBatch) -> float:
    """Bytes of at least one entry in memory; ``nbytes`` takes 50 times as long on a slice."""
    variable = sum(content_bytes(entries.column(index)) for index in BINARY_COLUMNS)
    return variable + len(entries) * FIXED_BYTES


def entries_within(entries: pa.RecordBatch, size: float) -> int:
    """The number of entries, from the first one on, that take no more than ``size`` bytes."""
    if entry_bytes(entries) <= size:
        return len(entries)
    ends = sum(binary_offsets(entries.column(index))[1:].astype(np.int64) for index in BINARY_COLUMNS)
    begin = sum(int(binary_offsets(entries.column(index))[0]) for index in BINARY_COLUMNS)
    total = ends - begin + FIXED_BYTES * np.arange(1, len(entries) + 1)
    return int(np.searchsorted(total, size, side="right"))


FEW = 16
"""Up to this many rows are bisected one by one."""


class RowWords:
    """Eight bytes of each row of a block, behind the prefix that all share, as numbers; ascending where rows are."""

    __slots__ = ("_prefix", "_view", "_words")

    def __init__(self, batch: pa.RecordBatch, low: _Row, high: _Row) -> None:
        """Every row lies in ``[low, high]``."""
        skip = common_prefix_bytes(low, high)
        self._prefix = low[:skip]
        self._words = WordReader(batch.column("row")).words(skip)
        self._view = self._words.data

    def _word_of(self, row: _Row) -> int:
        """The word of ``row``; -1 for a row before all rows with the prefix, 2 ** 64 for one behind them."""
        skip = len(self._prefix)
        if row[:skip] != self._prefix:
            return -1 if row < self._prefix else 1 << 8 * WORD_BYTES
        return int.from_bytes(row[skip : skip + WORD_BYTES].ljust(WORD_BYTES, b"\0"))

    def near(self, row: _Row, low: int, high: int) -> tuple[int, int]:
        """The interval of ``[low, high]``, in a sorted block, in which the first row not before ``row`` is: its rows
        have the word of ``row``.
        """
        word = self._word_of(row)
        first = bisect_left(self._view, word, low, high)  # on a view: numpy would let go of the interpreter's lock
        if first == high or self._view[first] != word:
            return first, first
        return first, bisect_right(self._view, word, first, high)

    def between(self, low: _Row, high: _Row) -> npt.NDArray[np.int64]:
        """Indices of all rows in ``[low, high]``, and perhaps of some that share a word with one of the two."""
        first, last = max(self._word_of(low), 0), min(self._word_of(high), (1 << 8 * WORD_BYTES) - 1)
        if last < first:
            return np.empty(0, np.int64)
        return np.flatnonzero((self._words - np.uint64(first)) <= np.uint64(last - first))


class SortedBlock:
    """A sorted, immutable batch of at least one entry, with access by key."""

    __slots__ = (
        "_bytes",
        "_columns",
        "_first_key",
        "_last_key",
        "_others",
        "_words",
        "batch",
        "constants",
        "records",
        "row",
    )

    row: Callable[[int], _Row]
    """Row of one entry."""

    def __init__(self, batch: pa.RecordBatch, constants: ConstantColumns = NO_CONSTANTS) -> None:
        """``constants``: columns that certainly have one value; others may."""
        self.batch = batch
        self.constants = constants
        self.records: int = batch.num_rows
        self.row = row_reader(batch.column("row"))
        self._columns: tuple[Callable[[int], Any], ...] | None = None
        self._first_key: Position | None = None
        self._last_key: Position | None = None
        self._words: RowWords | None = None
        self._others: pa.RecordBatch | None = None
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """Size of the entries."""
        if not self._bytes:
            self._bytes = max(int(self.batch.nbytes), 1)
        return self._bytes

    @property
    def others(self) -> pa.RecordBatch:
        """The entries without the constant columns."""
        if self._others is None:
            self._others = without_constants(self.batch, self.constants)
        return self._others

    def ready_to_bisect(self) -> SortedBlock:
        """The same block, with the words of its rows ready, which else the first bisection prepares."""
        self._row_words()
        return self

    def _row_words(self) -> RowWords:
        words = self._words
        if words is None:
            words = self._words = RowWords(self.batch, self.row(0), self.row(self.records - 1))
        return words

    def _readers(self) -> tuple[Callable[[int], Any], ...]:
        readers = self._columns
        if readers is None:
            binary = (row_reader(self.batch.column(name)) for name in KEY_COLUMNS[1:4])
            integer = (_integer_reader(self.batch.column(name)) for name in KEY_COLUMNS[4:])
            readers = self._columns = (*binary, *integer)
        return readers

    def cell(self, index: int) -> Cell:
        """Cell of one entry."""
        family, qualifier, visibility, _, _ = self._readers()
        return self.row(index), family(index), qualifier(index), visibility(index)

    def key(self, index: int) -> Position:
        """Full key of one entry; as a position, the point behind it."""
        family, qualifier, visibility, timestamp, seq = self._readers()
        return (
            self.row(index),
            family(index),
            qualifier(index),
            visibility(index),
            -timestamp(index),
            -seq(index),
        )

    @property
    def first_key(self) -> Position:
        """Key of the first entry."""
        if self._first_key is None:
            self._first_key = self.key(0)
        return self._first_key

    @property
    def last_key(self) -> Position:
        """Key of the last entry."""
        if self._last_key is None:
            self._last_key = self.key(self.records - 1)
        return self._last_key

    def bisect(self, position: Position, low: int = 0, high: int | None = None) -> int:
        """First index in ``[low, high]`` whose entry lies behind ``position``."""
        high = self.records if high is None else high
        if low >= high or not position:
            return low
        row = position[0]
        low = self._bisect_row(row, low, high)
        if len(position) == 1 or low == high or self.row(low) != row:
            return low
        return bisect_right(range(high), position, low, self._row_end(row, low, high), key=self.key)

    def rows_between(self, low: _Row, high: _Row) -> range:
        """Indices of the entries with rows in ``[low, high)``."""
        first = self._bisect_row(low, 0, self.records)
        if first == self.records or self.row(first) >= high:
            return range(0)
        return range(first, self._bisect_row(high, first, self.records))

    def _bisect_row(self, row: _Row, low: int, high: int) -> int:
        """First index in ``[low, high]`` whose row is not before ``row``."""
        if high - low > FEW:
            low, high = self._row_words().near(row, low, high)
        return bisect_left(range(high), row, low, key=self.row)

    def _row_end(self, row: _Row, low: int, high: int) -> int:
        """End of the entries of ``row``, which starts at ``low``; gallops, because rows are mostly short."""
        step = 1
        while low + step < high and self.row(low + step) == row:
            step *= 2
        return bisect_right(range(high), row, low + step // 2, min(low + step, high), key=self.row)
