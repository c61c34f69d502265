"""An *entry* is a mutation record with its tablet-local sequence number, and its key is its place in the order.

Arrives: record batches. Leaves: entries, keys as tuples, positions in the total order, and bisection over the
Arrow offsets of a sorted batch. Pure. The order: row, family, qualifier, visibility ascending as bytes, then
timestamp and sequence number descending, so the newest version of a cell comes first (plan, "commit path").
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import MUTATION_SCHEMA

ENTRY_SCHEMA = pa.schema([*MUTATION_SCHEMA, pa.field("seq", pa.int64(), nullable=False)])
"""What memtables and segments hold; in them a timestamp is never null."""

KEY_COLUMNS = ("row", "family", "qualifier", "visibility", "timestamp", "seq")
ROW, FAMILY, QUALIFIER, VISIBILITY, TIMESTAMP, DELETE, VALUE, SEQ = range(8)

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


def binary_offsets(array: pa.Array) -> npt.NDArray[np.int32]:
    """The ``len + 1`` offsets of a binary array into its data buffer, as a view."""
    raw = array.buffers()[1]
    if raw is None or raw.size == 0:
        return np.zeros(len(array) + 1, np.int32)
    return np.frombuffer(raw, np.int32, len(array) + 1, array.offset * 4)


def binary_data(array: pa.Array) -> memoryview:
    """The whole data buffer of a binary array."""
    raw = array.buffers()[2]
    return memoryview(b"") if raw is None else memoryview(raw)


def row_reader(array: pa.Array) -> Callable[[int], bytes]:
    """A fast ``index -> bytes`` of a binary array; indices are not checked."""
    offsets = memoryview(binary_offsets(array).data)
    data = binary_data(array)

    def read(index: int) -> bytes:
        return bytes(data[offsets[index] : offsets[index + 1]])

    return read


class SortedBlock:
    """A sorted, immutable batch of entries with access by key."""

    __slots__ = ("_parts", "average_bytes", "batch", "records")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.records: int = batch.num_rows
        self.average_bytes = max(float(batch.nbytes) / max(self.records, 1), 1.0)
        self._parts: tuple[Callable[[int], bytes], ...] | None = None

    def _readers(self) -> tuple[Callable[[int], bytes], ...]:
        parts = self._parts
        if parts is None:
            parts = self._parts = tuple(row_reader(self.batch.column(name)) for name in KEY_COLUMNS[:4])
        return parts

    def row(self, index: int) -> bytes:
        """Row of one entry."""
        return self._readers()[0](index)

    def cell(self, index: int) -> Cell:
        """Cell of one entry."""
        row, family, qualifier, visibility = self._readers()
        return row(index), family(index), qualifier(index), visibility(index)

    def key(self, index: int) -> Position:
        """Full key of one entry; as a position, the point behind it."""
        timestamp = self.batch.column("timestamp")[index].as_py()
        return (*self.cell(index), -timestamp, -self.batch.column("seq")[index].as_py())

    def bisect(self, position: Position, low: int = 0, high: int | None = None) -> int:
        """First index in ``[low, high]`` whose entry lies behind ``position``."""
        high = self.records if high is None else high
        if low >= high or not position:
            return low
        every: Sequence[int] = range(high)
        read_row = self._readers()[0]
        row = position[0]
        if len(position) == 1:
            return bisect_left(every, row, low, high, key=read_row)
        low = bisect_left(every, row, low, high, key=read_row)
        if low >= high or read_row(low) != row:
            return low
        return bisect_right(every, position, low, self._row_end(row, low, high), key=self.key)

    def _row_end(self, row: bytes, low: int, high: int) -> int:
        """End of the entries of ``row`` that start at ``low``; gallops, because rows are mostly short."""
        step = 1
        while low + step < high and self.row(low + step) == row:
            step *= 2
        return bisect_right(range(high), row, low + step // 2, min(low + step, high), key=self._readers()[0])
