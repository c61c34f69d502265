"""The origins of a message's records, by which a peer finds the records that came by another path (R22).

Arrives: a block's header, its target, and the rows that go. Leaves: the bytes of a ``BlockOrigins``, or None for a log
of an older version, which has none. They are the same whenever a block is sent, and from any process, except ``since``,
which a quarantine raises. Pure.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from bookkeeper.origins import Part, Runs, root_of
from bookkeeper.replay.ranges import Range
from bookkeeper.replay.stream import filters
from bookkeeper.replay.stream.filters import RowIndices
from bookkeeper.storage.wal.blocks.block_messages import stream_from_pb
from bookkeeper.storage.wal.blocks.block_origins import (
    EVERY_ROW,
    BlockOrigins,
    Claim,
    at_indices,
    block_origins_from_pb,
    block_origins_to_pb,
    exact_claims,
    of_families,
)
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader


def block_origins_of(header: BlockHeader, current: Range, row_indices: RowIndices | None) -> bytes | None:
    """``row_indices``: the records of the block that go, ascending; None = all."""
    families = claimed_families(header, current)
    found = (
        _received(header, current, families, row_indices)
        if header.HasField("origin")
        else _own(header, current, families, row_indices)
    )
    return None if found is None else block_origins_to_pb(found, root_of(current.stream)).SerializeToString()


def claimed_families(header: BlockHeader, current: Range) -> frozenset[bytes] | None:
    """The families of the block that the target gets; None when it gets every family, of other blocks too."""
    block_target = filters.block_target_for(header, current.target)
    if block_target is None or block_target.groups is None:
        return None
    return frozenset(
        family for group in header.groups if group.name in block_target.groups for family in group.families
    )


def _own(
    header: BlockHeader, current: Range, families: Collection[bytes] | None, row_indices: RowIndices | None
) -> BlockOrigins:
    """The origins of records that were written here: their offsets in this file."""
    root = root_of(current.stream)
    runs = Runs.of((header.first_offset, header.first_offset + header.record_count - 1))
    records = () if row_indices is None else at_indices(((root, runs),), row_indices)
    claims: tuple[Claim, ...] = (Claim(root, Part(EVERY_ROW, None, runs), taken_since(header.since, current)),)
    return BlockOrigins(records, claims if families is None else of_families(claims, families))


def taken_since(since: int, current: Range) -> int:
    """The offset from which on the target gets all records of the block's families in the file; 0 = not known.

    It lies behind the quarantined records, which the target does not have. A run of its own has none, because it ships
    a part of the file only.
    """
    return max(since, current.passed_to + 1) if since and not current.run_id else 0


def shipped(claim: Claim, current: Range) -> Claim:
    """A claim as this stream may make it. Behind quarantined records, or in a run of its own, records are missing, and
    their offsets in the root are not known.
    """
    return replace(claim, since=0) if current.passed_to or current.run_id else claim


def _received(
    header: BlockHeader, current: Range, families: Collection[bytes] | None, row_indices: RowIndices | None
) -> BlockOrigins | None:
    """The origins of records that another cluster sent, as it sent them."""
    own = root_of(stream_from_pb(header.origin.stream))
    found = block_origins_from_pb(header.block_origins, own)
    if not found.records:
        return None
    records = found.records if row_indices is None else at_indices(found.records, row_indices)
    claims = exact_claims(records) if found.partial else tuple(shipped(claim, current) for claim in found.claims)
    return BlockOrigins(records, claims if families is None else of_families(claims, families))
