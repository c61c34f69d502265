"""Mutations of rows, and their encoding as Arrow record batches of ``MUTATION_SCHEMA``.

All changes of one :class:`Mutation` become visible together and are in one call; a later change of a cell wins over an
earlier one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.storage.columns import column_of, record_ends
from bookkeeper.storage.tablet.scans.visibility import check_label

_WIDTH = 7
"""Entries of one change in :attr:`Mutation.flat`: row, family, qualifier, visibility, timestamp, delete, value."""

CHANGE_OVERHEAD_BYTES = 200
"""Approximate memory of a change beside its bytes."""


class Mutation:
    """Puts and deletes of cells of one row. They become visible together; of two changes of a cell the later one wins.

    ``Mutation(b"bern").put(b"geo", b"lat", b"46.95").delete(b"geo", b"old")``: each method returns the mutation.
    """

    __slots__ = ("flat", "row", "size_bytes")

    def __init__(self, row: bytes) -> None:
        """Raises InvalidInputError unless ``row`` is bytes and not empty."""
        if type(row) is not bytes or not row:
            raise InvalidInputError(f"a row is bytes and not empty, not {row!r}")
        self.row = row
        # Changes are flat, _WIDTH entries each, which encodes fastest. One change alone, the usual case, is a tuple: a
        # list takes twice its memory.
        self.flat: tuple[Any, ...] | list[Any] = ()
        self.size_bytes = CHANGE_OVERHEAD_BYTES
        """Approximate memory of the mutation."""

    def put(
        self,
        family: bytes,
        qualifier: bytes,
        value: bytes,
        visibility: bytes = b"",
        timestamp: int | None = None,
    ) -> Mutation:
        """Set a cell. ``timestamp`` is in milliseconds since 1970; None = the time at which the tserver writes it.
        ``visibility`` is an expression of authorizations such as ``b"staff&(north|south)"``: a scan shows the cell to
        users who satisfy it; empty = to all. Raises InvalidInputError for arguments that are not bytes, an invalid
        expression, and a timestamp of more than 64 bits.
        """
        try:
            size = len(b"".join((family, qualifier, visibility, value)))  # raises for other types than bytes, too
        except TypeError as error:
            raise InvalidInputError(f"family, qualifier, value and visibility must be bytes: {error}") from None
        if visibility:
            check_label(visibility)
        if timestamp is not None:
            _check_timestamp(timestamp)
        change = (self.row, family, qualifier, visibility, timestamp, False, value)
        flat = self.flat
        if not flat:
            self.flat = change
        elif isinstance(flat, list):
            flat += change
        else:
            self.flat = [*flat, *change]
        self.size_bytes += size + CHANGE_OVERHEAD_BYTES
        return self

    def delete(
        self, family: bytes, qualifier: bytes, visibility: bytes = b"", timestamp: int | None = None
    ) -> Mutation:
        """Delete a cell: all versions with timestamps up to ``timestamp`` (milliseconds, included; None = the time at
        which the tserver writes it). Raises InvalidInputError as :meth:`put` does.
        """
        self.put(family, qualifier, b"", visibility, timestamp)
        flat = self.flat if isinstance(self.flat, list) else list(self.flat)
        flat[-2] = True
        self.flat = flat
        return self


def _is_empty(mutation: Mutation) -> InvalidInputError:
    return InvalidInputError(f"the mutation of row {mutation.row!r} has no put and no delete")


def _check_timestamp(timestamp: int) -> None:
    if type(timestamp) is not int or not -(2**63) <= timestamp < 2**63:
        raise InvalidInputError(f"a timestamp is a number of 64 bits, not {timestamp!r}")


class Changes:
    """Mutations that wait to be encoded. Python's garbage collector tracks none of its values: its visits would take
    more time than the encoding.
    """

    __slots__ = ("_flat", "size_bytes")

    def __init__(self) -> None:
        self._flat: list[Any] = []
        self.size_bytes = 0
        """Approximate memory of the changes."""

    def __len__(self) -> int:
        """The number of changes."""
        return len(self._flat) // _WIDTH

    def add(self, mutation: Mutation) -> int:
        """Add the changes of a mutation; returns :attr:`size_bytes`. Raises InvalidInputError when it has none."""
        changes = mutation.flat
        if not changes:
            raise _is_empty(mutation)
        self._flat += changes
        self.size_bytes += mutation.size_bytes
        return self.size_bytes

    def extend(self, mutations: Sequence[Mutation]) -> int:
        """Like :meth:`add`, for many mutations."""
        flat, size = self._flat, self.size_bytes
        for mutation in mutations:
            changes = mutation.flat
            if not changes:
                raise _is_empty(mutation)
            flat += changes
            size += mutation.size_bytes
        self.size_bytes = size
        return size

    def encode(self) -> pa.RecordBatch:
        """One record for each change, in their order."""
        flat = self._flat
        if not flat:
            return pa.RecordBatch.from_pylist([], schema=MUTATION_SCHEMA)
        rows, families, qualifiers, visibilities, timestamps, deletes, values = (flat[n::_WIDTH] for n in range(_WIDTH))
        binary = pa.binary()
        columns = [
            pa.array(rows, binary),
            _column(families, binary),
            _column(qualifiers, binary),
            _column(visibilities, binary),
            _column(timestamps, pa.int64()),
            _column(deletes, pa.bool_()),
            pa.array(values, binary),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=MUTATION_SCHEMA)


def encode_mutations(mutations: Iterable[Mutation]) -> pa.RecordBatch:
    """One record for each change, in their order."""
    changes = Changes()
    for mutation in mutations:
        changes.add(mutation)
    return changes.encode()


def _column(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """An array of the values; often all values are equal."""
    first = values[0]
    return (
        pa.repeat(pa.scalar(first, kind), len(values)) if values.count(first) == len(values) else pa.array(values, kind)
    )


def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch in ``MUTATION_SCHEMA``: columns by name; ``visibility``, ``timestamp`` and ``delete`` may be absent.

    A batch that conforms is not copied. Raises InvalidInputError.
    """
    if batch.schema.equals(MUTATION_SCHEMA):
        return batch
    names = batch.schema.names
    unknown = set(names) - set(MUTATION_SCHEMA.names)
    if unknown:
        raise InvalidInputError(f"unknown columns {sorted(unknown)}; a mutation has {', '.join(MUTATION_SCHEMA.names)}")
    columns = []
    for field in MUTATION_SCHEMA:
        if field.name in names:
            columns.append(_cast(batch.column(field.name), field))
        elif field.name in _WHEN_ABSENT:
            columns.append(_WHEN_ABSENT[field.name](batch.num_rows))
        else:
            raise InvalidInputError(f"column {field.name} is missing in a batch of mutations")
    return pa.RecordBatch.from_arrays(columns, schema=MUTATION_SCHEMA)


_WHEN_ABSENT: Mapping[str, Callable[[int], pa.Array]] = {
    "visibility": functools.partial(column_of, b""),
    "timestamp": lambda count: pa.nulls(count, pa.int64()),
    "delete": functools.partial(column_of, False),
}


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        cast = column if column.type.equals(field.type) else pc.cast(column, field.type)
    except pa.ArrowException as error:
        raise InvalidInputError(f"column {field.name} can't be {field.type}: {error}") from error
    if cast.null_count and not field.nullable:
        raise InvalidInputError(f"column {field.name} of a batch of mutations holds nulls")
    return cast


def slice_between_rows(batch: pa.RecordBatch, bytes_max: int, records_max: int) -> list[pa.RecordBatch]:
    """Slices of at most ``bytes_max`` and ``records_max`` records, about equally large, cut only where the row changes.
    Records of one row are never cut, so their slice may be larger.
    """
    if not batch.num_rows:
        return []
    if batch.num_rows <= records_max and batch.get_total_buffer_size() <= bytes_max:
        return [batch]
    ends = record_ends(batch)
    slices_min = max(-(-batch.num_rows // records_max), -(-int(ends[-1]) // bytes_max))
    if slices_min == 1:
        return [batch]
    per_slice = -(-batch.num_rows // slices_min)
    rows = batch.column("row")
    changes = pc.not_equal(rows.slice(1), rows.slice(0, len(rows) - 1))
    cuts = np.flatnonzero(changes.to_numpy(zero_copy_only=False)) + 1
    slices, start = [], 0
    while start < batch.num_rows:
        begin = int(ends[start - 1]) if start else 0
        # Large values come in runs, so the average of the batch says nothing about a slice.
        reach = min(start + per_slice, int(np.searchsorted(ends, begin + bytes_max, side="right")))
        index = int(np.searchsorted(cuts, reach, side="right")) - 1
        if index < 0 or cuts[index] <= start:
            index += 1
        end = batch.num_rows if reach >= batch.num_rows or index >= len(cuts) else int(cuts[index])
        slices.append(batch.slice(start, end - start))
        start = end
    return slices
