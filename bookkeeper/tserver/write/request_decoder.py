"""Decodes and checks records from the wire, in the thread of the call, before anything changes."""

from __future__ import annotations

import pyarrow as pa

from bookkeeper.errors import CorruptionError, InvalidInputError
from bookkeeper.model import Extent
from bookkeeper.storage.tablet.batch_routing import check_batch
from bookkeeper.storage.tablet.scans.visibility import check_labels
from bookkeeper.storage.tablet.tablet_settings import BatchLimits
from bookkeeper.storage.wal.blocks.block import decode_batch
from bookkeeper.tserver.tablets.tablet import TabletRecords, tablet_records
from bookkeeper.tserver.write.decompression import DecompressionBudget


def decode_records(
    records: bytes, limits: BatchLimits, latest_ms: int | None = None, budget: DecompressionBudget | None = None
) -> pa.RecordBatch:
    """A batch that is safe to store, with no timestamp above ``latest_ms``. ``budget``: of its message; None when the
    message has no other batch. Raises InvalidInputError, OverloadedError.
    """
    try:
        batch = decode_batch(records, (budget or DecompressionBudget(limits)).admit)
    except CorruptionError as error:
        raise InvalidInputError(f"records do not parse: {error.message}") from error
    check_batch(batch, limits, latest_ms)
    return batch


def decode_labelled(
    records: bytes, limits: BatchLimits, latest_ms: int | None = None, budget: DecompressionBudget | None = None
) -> pa.RecordBatch:
    """As :func:`decode_records`, for a user's write: also checks that every visibility label is an expression. Records
    of another cluster were checked there, and a label must not stop them here.
    """
    batch = decode_records(records, limits, latest_ms, budget)
    check_labels(batch)
    return batch


def records_for_tablet(extent: Extent, batch: pa.RecordBatch) -> TabletRecords:
    """As :func:`tablet_records`; raises InvalidInputError when a row lies outside the extent."""
    records = tablet_records(batch)
    if not (extent.contains(records.min_row) and extent.contains(records.max_row)):
        raise InvalidInputError(
            f"rows {records.min_row!r} to {records.max_row!r} do not all lie in tablet {extent}: locate the table again"
        )
    return records
