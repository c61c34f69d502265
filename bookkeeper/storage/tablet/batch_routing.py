"""Checks of incoming batches, and their split by tablets.

A batch comes from a client or a peer. The split keeps the order of the records, and never splits a row mutation: all
its records share a row, and a row lies in one tablet. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bookkeeper.errors import InvalidInputError, NotServingError
from bookkeeper.model import MUTATION_SCHEMA, Extent
from bookkeeper.storage.columns import binary_offsets, content_bytes, min_max_row
from bookkeeper.storage.tablet.sorting.entries import row_reader
from bookkeeper.storage.tablet.sorting.order import order_rows
from bookkeeper.storage.tablet.sorting.take import take_records
from bookkeeper.storage.tablet.tablet_settings import BatchLimits


def validate_batch(batch: pa.RecordBatch, limits: BatchLimits) -> None:
    """Raise InvalidInputError unless the batch is safe: schema, offsets within buffers, no nulls but
    timestamps, no empty row, nothing above the limits. Fit for batches from the network.
    """
    if not batch.schema.equals(MUTATION_SCHEMA):
        raise InvalidInputError(f"records must have the mutation schema, not {batch.schema}")
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"a batch is malformed: {error}") from error
    for field in MUTATION_SCHEMA:
        if not field.nullable and batch.column(field.name).null_count:
            raise InvalidInputError(f"column {field.name!r} of a batch holds nulls")
    check_limits(batch, limits)


def check_batch(batch: pa.RecordBatch, limits: BatchLimits, latest_ms: int | None) -> None:
    """:func:`check_limits` and :func:`check_times`."""
    check_limits(batch, limits)
    check_times(batch, latest_ms)


def check_limits(batch: pa.RecordBatch, limits: BatchLimits) -> None:
    """Raise InvalidInputError when a row is empty or anything is above the limits. Of a batch that is well-formed, as
    :func:`~bookkeeper.storage.wal.decode_batch` leaves it.
    """
    if batch.num_rows > limits.batch_records_max:
        raise InvalidInputError(f"a batch of {batch.num_rows} records: at most {limits.batch_records_max} are taken")
    rows = binary_offsets(batch.column("row"))
    if bool((rows[1:] == rows[:-1]).any()):
        raise InvalidInputError("a record has an empty row")
    for field in MUTATION_SCHEMA:
        if pa.types.is_binary(field.type):
            most = {"row": limits.row_bytes_max, "value": limits.value_bytes_max}.get(
                field.name, limits.column_bytes_max
            )
            _check_lengths(field.name, batch.column(field.name), most)


def check_times(batch: pa.RecordBatch, latest_ms: int | None) -> None:
    """Raise InvalidInputError when a timestamp is above this one; None = any. A delete that lies far ahead would hide a
    cell for ever. Records that leave theirs to the server have none.
    """
    if latest_ms is None:
        return
    newest = newest_time(batch.column("timestamp"))
    if is_too_late(newest, latest_ms):
        raise InvalidInputError(
            f"timestamp {newest} lies more than tserver.future_timestamp_max_ms ahead of this cluster's clock: at most "
            f"{latest_ms} is taken now"
        )


def newest_time(times: pa.Array) -> int | None:
    """The greatest timestamp; None when all are left to the server."""
    if times.null_count == len(times):
        return None
    return int(pc.max(times).as_py() if times.null_count else times.to_numpy().max())


def is_too_late(newest_ms: int | None, latest_ms: int) -> bool:
    """Whether the newest timestamp of some records lies too far ahead; None = they have none."""
    return newest_ms is not None and newest_ms > latest_ms


def _check_lengths(name: str, column: pa.Array, most: int) -> None:
    if content_bytes(column) <= most:  # in sum: mostly enough
        return
    longest = np.diff(binary_offsets(column)).max()
    if longest > most:
        raise InvalidInputError(f"a {name} of {longest} bytes: at most {most} are taken")


def _ordered(extents: Sequence[Extent]) -> list[Extent]:
    """Extents by end row, the open end last."""
    closed = sorted((e.end_row, index) for index, e in enumerate(extents) if e.end_row is not None)
    return [extents[index] for _, index in closed] + [e for e in extents if e.end_row is None]


def split_by_tablets(
    batch: pa.RecordBatch, extents: Sequence[Extent], rows: tuple[bytes, bytes] | None = None
) -> list[tuple[Extent, pa.RecordBatch]]:
    """Split a batch by tablets: each tablet's records in their order, tablets in row order, only those with records.

    ``extents``: of one table, not overlapping. ``rows``: the least and the greatest, None: read from the batch. Raises
    NotServingError when a row lies in none of them.
    """
    return [
        (extent, batch if indices is None else take_sorted(batch, indices))
        for extent, indices in indices_by_tablet(batch, extents, rows)
    ]


def indices_by_tablet(
    batch: pa.RecordBatch, extents: Sequence[Extent], rows: tuple[bytes, bytes] | None = None
) -> list[tuple[Extent, np.ndarray | None]]:
    """As :func:`split_by_tablets`, with the ascending indices of each tablet's records; None = all of them."""
    if not batch.num_rows:
        return []
    if len(extents) == 1 and extents[0].prev_row is None and extents[0].end_row is None:
        return [(extents[0], None)]
    low, high = rows or min_max_row(batch)
    for extent in extents:
        if extent.contains(low) and extent.contains(high):
            return [(extent, None)]
    order = order_rows(batch.column("row"), low, high)
    read_row = row_reader(batch.column("row"))
    parts: list[tuple[Extent, np.ndarray | None]] = []
    done = 0
    for extent in _ordered(extents):
        if done == batch.num_rows:
            break
        first = read_row(order[done])
        if extent.end_row is not None and extent.end_row < first:
            continue
        if not extent.contains(first):
            break
        end = batch.num_rows
        if extent.end_row is not None:
            end = bisect_right(order, extent.end_row, done, key=read_row)
        parts.append((extent, np.sort(order[done:end])))
        done = end
    if done < batch.num_rows:
        row = read_row(order[done])
        raise NotServingError(f"row {row!r} lies in none of the {len(extents)} tablets of the request: locate it again")
    return parts


def take_sorted(batch: pa.RecordBatch, indices: np.ndarray) -> pa.RecordBatch:
    """Some records in their order; neighbours are not copied."""
    first, count = int(indices[0]), len(indices)
    if int(indices[-1]) - first + 1 == count:
        return batch.slice(first, count)
    return take_records(batch, indices)
