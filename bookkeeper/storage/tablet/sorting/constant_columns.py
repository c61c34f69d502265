"""Columns of one value, as family, visibility and delete mostly are: made, never copied or brought into an order.

Arrives: what a segment's dictionaries and counts say of a row group. Leaves: which columns have one value, and such
columns of any length. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from bookkeeper.storage.columns import column_of

Same = Mapping[str, bytes | bool]
"""Name of a column, and the value that all entries have in it."""

NOTHING_SAME: Same = {}

VALUE_BYTES_MAX = 256
"""Longer values are not made anew: a column of them is no cheaper than a copy."""


def without_same(batch: pa.RecordBatch, same: Same) -> pa.RecordBatch:
    """The other columns."""
    return batch.select([name for name in batch.schema.names if name not in same])


def with_same(others: pa.RecordBatch, same: Same, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of a schema, made of its other columns and of those of one value."""
    count = others.num_rows
    columns = [column_of(same[name], count) if name in same else others.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
