"""The blocks of a message, decoded and checked against the limits of this cluster. Changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.clock import Clock
from bookkeeper.errors import CorruptionError, InvalidInputError
from bookkeeper.origins import Root, Runs, root_of
from bookkeeper.rpc.contract.messages import ApplyRequest, ReplicateRequest, SourceBlock
from bookkeeper.storage.tablet.tablet_settings import BatchLimits
from bookkeeper.storage.wal.blocks.block_origins import BlockOrigins, exact_claims, parse_block_origins, record_count
from bookkeeper.tserver.tablets.tablet import ReceivedBlock, tablet_records
from bookkeeper.tserver.write.decompression import DecompressionBudget
from bookkeeper.tserver.write.request_decoder import decode_records

NO_LIMIT = sys.maxsize


class PeerLimits(Struct, frozen=True):
    """The limits of records from other clusters."""

    batch: BatchLimits
    clock: Clock

    def latest_ms(self) -> int | None:
        """The greatest timestamp that a record may have now; None = any."""
        return self.batch.latest_ms(self.clock.wall_ms())


def decode_blocks(
    request: ReplicateRequest | ApplyRequest,
    limits: BatchLimits,
    latest_ms: int | None = None,
    origins: Collection[str] | None = None,
) -> list[ReceivedBlock]:
    """The blocks of a message that have records. ``origins``: the instances under whose origins the sender may send
    records; None = any. Raises InvalidInputError, OverloadedError.
    """
    own, straight = root_of(request.stream), len(request.provenance) == 1
    budget = DecompressionBudget(limits)
    found = (received_block(block, limits, own, straight, latest_ms, budget, origins) for block in request.blocks)
    return [block for block in found if block is not None]


def received_block(
    block: SourceBlock,
    limits: BatchLimits,
    own: Root | None = None,
    straight: bool = False,
    latest_ms: int | None = None,
    budget: DecompressionBudget | None = None,
    origins: Collection[str] | None = None,
) -> ReceivedBlock | None:
    """A block of a source file, checked; None when a filter left no record of it. ``own``: the root of the stream;
    ``straight``: its records were first written there; ``latest_ms`` and ``budget`` as in :func:`decode_records`,
    ``origins`` as in :func:`decode_blocks`.
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
    block_origins = None if own is None else origins_of_block(block, own, straight, origins)
    return ReceivedBlock(block.first_offset, block.last_offset, tablet_records(batch), block_origins)


def origins_of_block(
    block: SourceBlock, own: Root, straight: bool, origins: Collection[str] | None = None
) -> BlockOrigins | None:
    """The origins of the records of a block; None when its sender does not know them, or may not name them: such
    records are known by their stream alone. Raises InvalidInputError.
    """
    own_records = ((own, Runs.of((block.first_offset, block.last_offset))),)
    is_complete = block.record_count == block.last_offset - block.first_offset + 1
    if block.block_origins is None:
        return BlockOrigins(own_records, exact_claims(own_records)) if straight and is_complete else None
    try:
        found = parse_block_origins(block.block_origins, own)
    except CorruptionError as error:
        raise InvalidInputError(error.message) from error
    named = {root.instance_id for root, _ in found.records} | {claim.root.instance_id for claim in found.claims}
    # R22: a record with the origin of another one hides it for ever: a peer speaks for itself and those it relays.
    if origins is not None and not named <= {own.instance_id, *origins}:
        return None
    if not found.records and straight and is_complete:
        found = replace(found, records=own_records)
    if record_count(found.records) != block.record_count:
        raise InvalidInputError(f"{record_count(found.records)} origins for {block.record_count} records")
    return found


def limits_of_slices(limits: BatchLimits) -> BatchLimits:
    """The limits of a slice from another tserver: none for rows, columns and values, because the tserver that received
    the message has checked them and their timestamps.

    Two tservers may have different settings for a while. If each of them checked its slice, one would take its half of
    a block, and the other one would refuse its half for good. A retry out of quarantine, which is a run of its own,
    would then be applied to the first one twice (R18).
    """
    return replace(limits, row_bytes_max=NO_LIMIT, column_bytes_max=NO_LIMIT, value_bytes_max=NO_LIMIT)
