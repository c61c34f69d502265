"""Forms the blocks of one group: drafts in, blocks out. Pure.

Small neighbours of one tablet become one block when their headers differ in no field that a reader uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import NamedTuple

import pyarrow as pa
from msgspec import Struct

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.storage.wal.blocks.block import COMPRESSIONS, Block, DraftBlock, PlacedBlock, encode_batch
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.storage.wal.blocks.frame import HEADER_BYTES_MAX


class MergeLimits(Struct, frozen=True):
    """Largest size of a merged block, and of a block from one draft; records and bytes of Arrow data."""

    merge_records_max: int = 4096
    merge_bytes_max: int = 1 << 20
    block_bytes_max: int = 1 << 26


class _Size(NamedTuple):
    records: int
    batch_bytes: int
    header_bytes: int


SHARE_BYTES_MAX = 20
"""The two numbers of a target, records and bytes."""

_HEADER_BYTES_MAX = HEADER_BYTES_MAX - 64
"""Leaves room for first offset and record count."""


def _fits(size: _Size, limits: MergeLimits) -> bool:
    return (
        size.records <= limits.merge_records_max
        and size.batch_bytes <= limits.merge_bytes_max
        and size.header_bytes <= _HEADER_BYTES_MAX
    )


def header_bytes(header: BlockHeader) -> int:
    """Most bytes of a header, with the sums of its targets, which are added later (``target_shares``)."""
    return header.ByteSize() + SHARE_BYTES_MAX * len(header.block_targets)


def batch_bytes(batch: pa.RecordBatch, exact_above: int) -> int:
    """Bytes of the records. Exact only above ``exact_above``; below, bytes that a slice shares with its neighbours
    count, too: ``nbytes`` visits every buffer from Python and takes as long as writing half a megabyte.
    """
    upper_bound = int(batch.get_total_buffer_size())
    return upper_bound if upper_bound <= exact_above else int(batch.nbytes)


def check_draft(draft: DraftBlock, limits: MergeLimits) -> None:
    """Raise InvalidInputError for a draft that can't become a block."""
    if not draft.batch.schema.equals(MUTATION_SCHEMA):
        raise InvalidInputError(f"records of schema {draft.batch.schema} can't enter a log: want {MUTATION_SCHEMA}")
    if draft.batch.num_rows == 0 or not draft.header.table_id:
        raise InvalidInputError(f"a block of {draft.batch.num_rows} records for table {draft.header.table_id!r}")
    if draft.header.compression not in COMPRESSIONS:
        raise InvalidInputError(f"unknown block compression {draft.header.compression!r}: use one of {COMPRESSIONS}")
    if header_bytes(draft.header) > _HEADER_BYTES_MAX:
        raise InvalidInputError(
            f"a block header of {header_bytes(draft.header)} bytes for table {draft.header.table_id} is above the "
            f"limit, {_HEADER_BYTES_MAX}: fewer targets, groups or families, or shorter names"
        )
    size = batch_bytes(draft.batch, limits.block_bytes_max)
    if size > limits.block_bytes_max:
        raise InvalidInputError(
            f"{size} bytes for table {draft.header.table_id} are above the limit of a block, "
            f"{limits.block_bytes_max}: write smaller batches"
        )


def form_blocks(placed: Sequence[PlacedBlock], limits: MergeLimits) -> list[Block]:
    """Blocks for contiguous, checked drafts, in order."""
    blocks: list[Block] = []
    run: list[PlacedBlock] = []
    total = _Size(0, 0, 0)
    for draft in placed:
        own_bytes = batch_bytes(draft.batch, limits.merge_bytes_max)
        own = _Size(draft.batch.num_rows, own_bytes, header_bytes(draft.header))
        merged = _Size(*map(add, total, own))
        if run and not (_fits(merged, limits) and mergeable(run[-1], draft)):
            blocks.append(_block(run))
            run, merged = [], own
        run.append(draft)
        total = merged
    if run:
        blocks.append(_block(run))
    return blocks


def mergeable(left: PlacedBlock, right: PlacedBlock) -> bool:
    """Whether one header can describe both: same tablet, targets and path, sequence numbers without a gap, and neither
    an origin (rule R18: one range, one block) nor a second predecessor (rule R24).
    """
    one, two = left.header, right.header
    return (
        one.table_id == two.table_id
        and one.HasField("end_row") == two.HasField("end_row")
        and one.end_row == two.end_row
        and one.first_seq + left.batch.num_rows == two.first_seq
        and not (one.HasField("origin") or two.HasField("origin") or two.after)
        and one.block_targets == two.block_targets
        and one.since == two.since
        and one.provenance == two.provenance
        and one.compression == two.compression
    )


def _block(run: Sequence[PlacedBlock]) -> Block:
    header = BlockHeader()
    header.CopyFrom(run[0].header)
    header.first_offset = run[0].first_offset
    header.record_count = run[-1].last_offset - run[0].first_offset + 1
    if len(run) == 1:
        return Block(header, encode_batch(run[0].batch, header.compression))
    header.min_row = min(draft.header.min_row for draft in run)
    header.max_row = max(draft.header.max_row for draft in run)
    header.write_time_ms = max(draft.header.write_time_ms for draft in run)
    if any(draft.header.target_records for draft in run):
        header.target_records[:] = map(sum, zip(*map(_records_by_target, run), strict=True))
    _merge_groups(header, [draft.header for draft in run[1:]])
    batch = pa.concat_batches([draft.batch for draft in run])
    return Block(header, encode_batch(batch, header.compression))


def _records_by_target(draft: PlacedBlock) -> Sequence[int]:
    return draft.header.target_records or [draft.batch.num_rows] * len(draft.header.block_targets)


def _merge_groups(header: BlockHeader, others: Sequence[BlockHeader]) -> None:
    groups = {group.name: group for group in header.groups}
    for other in others:
        for group in other.groups:
            if group.name not in groups:
                groups[group.name] = header.groups.add(name=group.name)
            known = groups[group.name].families
            known.extend(family for family in group.families if family not in known)
