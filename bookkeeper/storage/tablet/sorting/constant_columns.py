"""Constant columns: all entries have one value, as mostly in family, visibility and delete.

They are made anew at any length, and never copied or sorted. A segment's dictionaries and counts show which columns of
a row group are constant. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from bookkeeper.storage.columns import column_of

ConstantColumns = Mapping[str, bytes | bool]
"""Name of a column, and the value that all entries have in it."""

NO_CONSTANTS: ConstantColumns = {}

VALUE_BYTES_MAX = 256
"""Longer values are not made anew: a column of them is no cheaper than a copy."""


def without_constants(batch: pa.RecordBatch, constants: ConstantColumns) -> pa.RecordBatch:
    """The columns that are not constant."""
    return batch.select([name for name in batch.schema.names if name not in constants])


def with_constants(others: pa.RecordBatch, constants: ConstantColumns, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of a schema, from its other columns and its constant ones."""
    count = others.num_rows
    columns = [column_of(constants[name], count) if name in constants else others.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
