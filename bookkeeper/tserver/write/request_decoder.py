"""Decodes, checks and parts records from the wire, in the thread of the call.

Arrow record batch messages of clients and other clusters become shares of tablets, ready to be staged. A failure here
has changed nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bookkeeper.errors import CorruptionError, InvalidInputError
from bookkeeper.model import Extent
from bookkeeper.origins import Root, Runs
from bookkeeper.rpc.contract.messages import SourceBlock
from bookkeeper.storage.tablet import (
    BatchLimits,
    check_labels,
    check_limits,
    check_times,
    indices_by_tablet,
    take_sorted,
)
from bookkeeper.storage.wal import decode_batch, encode_batch
from bookkeeper.storage.wal.blocks.block_origins import (
    BlockOrigins,
    block_origins_to_pb,
    exact_claims,
    parse_block_origins,
    record_count,
)
from bookkeeper.tserver.tablets.tablet import ReceivedBlock, Share, share_of
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
    check_limits(batch, limits)
    check_times(batch, latest_ms)
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


def share_for(extent: Extent, batch: pa.RecordBatch) -> Share:
    """As :func:`share_of`; raises InvalidInputError when a row lies outside the extent."""
    share = share_of(batch)
    if not (extent.contains(share.min_row) and extent.contains(share.max_row)):
        raise InvalidInputError(
            f"rows {share.min_row!r} to {share.max_row!r} do not all lie in tablet {extent}: locate the table again"
        )
    return share


def received_block(
    block: SourceBlock,
    limits: BatchLimits,
    own: Root | None = None,
    straight: bool = False,
    latest_ms: int | None = None,
    budget: DecompressionBudget | None = None,
) -> ReceivedBlock | None:
    """A block of a source file, checked; None when a filter left no record of it. ``own``: the root of the stream;
    ``straight``: its records were first written there; ``latest_ms`` and ``budget`` as in :func:`decode_records`.
    Raises InvalidInputError, OverloadedError.
    """
    batch = decode_records(block.records, limits, latest_ms, budget)
    if batch.num_rows != block.record_count:
        raise InvalidInputError(f"a block announces {block.record_count} records and holds {batch.num_rows}")
    if batch.num_rows > block.last_offset - block.first_offset + 1:
        raise InvalidInputError(
            f"{batch.num_rows} records do not fit in source offsets {block.first_offset} to {block.last_offset}"
        )
    if batch.column("timestamp").null_count:
        raise InvalidInputError("a replicated record has no timestamp: its source must set it")
    if not batch.num_rows:
        return None
    block_origins = None if own is None else origins_of_block(block, own, straight)
    return ReceivedBlock(block.first_offset, block.last_offset, share_of(batch), block_origins)


def origins_of_block(block: SourceBlock, own: Root, straight: bool) -> BlockOrigins | None:
    """Where the records of a block were first written; None when its sender does not know. Raises InvalidInputError."""
    own_records = ((own, Runs.of((block.first_offset, block.last_offset))),)
    is_complete = block.record_count == block.last_offset - block.first_offset + 1
    if block.block_origins is None:
        return BlockOrigins(own_records, exact_claims(own_records)) if straight and is_complete else None
    try:
        found = parse_block_origins(block.block_origins, own)
    except CorruptionError as error:
        raise InvalidInputError(error.message) from error
    if not found.records and straight and is_complete:
        found = replace(found, records=own_records)
    if record_count(found.records) != block.record_count:
        raise InvalidInputError(f"{record_count(found.records)} origins for {block.record_count} records")
    return found


def part_by_tablet(
    blocks: Sequence[ReceivedBlock], extents: Sequence[Extent]
) -> dict[Extent, tuple[ReceivedBlock, ...]]:
    """Each tablet's part of each block, at the block's offsets. Raises NotServingError for a row in no extent."""
    parts: dict[Extent, list[ReceivedBlock]] = {}
    for block in blocks:
        rows = (block.share.min_row, block.share.max_row)
        for extent, row_indices in indices_by_tablet(block.share.batch, extents, rows):
            part = block if row_indices is None else _part_of(block, row_indices)
            parts.setdefault(extent, []).append(part)
    return {extent: tuple(blocks_there) for extent, blocks_there in parts.items()}


def _part_of(block: ReceivedBlock, row_indices: npt.NDArray[np.int64]) -> ReceivedBlock:
    block_origins = None if block.block_origins is None else replace(block.block_origins, row_indices=row_indices)
    share = share_of(take_sorted(block.share.batch, row_indices))
    return ReceivedBlock(block.first_offset, block.last_offset, share, block_origins)


def source_block(block: ReceivedBlock, own: Root) -> SourceBlock:
    """A tablet's part of a block, for the tserver that holds the tablet. ``own``: the root of the stream."""
    share = block.share
    return SourceBlock(
        first_offset=block.first_offset,
        last_offset=block.last_offset,
        records=encode_batch(share.batch),
        record_count=share.batch.num_rows,
        min_row=share.min_row,
        max_row=share.max_row,
        block_origins=None
        if block.block_origins is None
        else block_origins_to_pb(block.block_origins, own).SerializeToString(),
    )
