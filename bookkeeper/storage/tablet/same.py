"""Columns of one value, as family, visibility and delete mostly are: made, never copied or brought into an order.

Arrives: what a segment's dictionaries and counts say of a row group. Leaves: which columns have one value, and such
columns of any length. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

Same = Mapping[str, bytes | bool]
"""Name of a column, and the value that all entries have in it."""

NOTHING_SAME: Same = {}

VALUE_BYTES_MAX = 256
"""Longer values are not made anew: a column of them is no cheaper than a copy."""


def column_of(value: bytes | bool, count: int) -> pa.Array:
    """``count`` times the same value."""
    if isinstance(value, bool):
        bits = (b"\xff" if value else b"\x00") * ((count + 7) // 8)
        return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bits)])
    size = len(value)
    offsets = np.arange(0, size * count + 1, size, dtype=np.int32) if size else np.zeros(count + 1, np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(value * count)])


def without_same(batch: pa.RecordBatch, same: Same) -> pa.RecordBatch:
    """The other columns."""
    return batch.select([name for name in batch.schema.names if name not in same])


def with_same(others: pa.RecordBatch, same: Same, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of a schema, made of its other columns and of those of one value."""
    count = others.num_rows
    columns = [column_of(same[name], count) if name in same else others.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
