"""The records of a block that travel to each target: pure decisions on the block's own header.

Arrives: a block header as it was written, a target, the peer's instance id. Leaves: nothing, the complete block, or the
families to ship. The present configuration does not matter: a block carries the targets in force when it was written
(R13), and its own provenance (R21). Each rule is one function, so that a test can break just that one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from bookkeeper.model import BlockTarget, TargetKey
from bookkeeper.storage.columns import indices_of
from bookkeeper.storage.wal.blocks.block_messages import block_target_from_pb, shares_from_pb, target_from_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader, Group

RowIndices = npt.NDArray[np.int64]


class Selection(Enum):
    """The part of a block that a target gets."""

    NOTHING = "nothing"
    WHOLE = "whole"
    FAMILIES = "families"


class Decision(Struct, frozen=True):
    """``families`` are those to ship when the selection is FAMILIES."""

    selection: Selection
    families: frozenset[bytes] = frozenset()


NOTHING = Decision(Selection.NOTHING)
WHOLE = Decision(Selection.WHOLE)


def decide(header: BlockHeader, target: TargetKey, peer_instance_id: str) -> Decision:
    """The selection of the block for ``target`` at the peer of that instance id."""
    block_target = block_target_for(header, target)
    if block_target is None or would_loop(header.provenance, peer_instance_id):
        return NOTHING
    return decision_of(header.groups, block_target)


def block_target_for(header: BlockHeader, target: TargetKey) -> BlockTarget | None:
    """The block's entry for exactly this target, incarnation included; None when it was not in force (R13, R5)."""
    for message in header.block_targets:
        if target_from_pb(message) == target:
            return block_target_from_pb(message)
    return None


def share_up_to(header: BlockHeader, target: TargetKey) -> tuple[int, int] | None:
    """The target's share of the file up to the block, in records and bytes; None when the block has no shares."""
    for share in shares_from_pb(header):
        if share.target == target:
            return share.records, share.bytes
    return None


def would_loop(provenance: Collection[str], peer_instance_id: str) -> bool:
    """Whether the data has been at the peer: then it never goes there again (L5, R21, R23)."""
    return peer_instance_id in provenance


def decision_of(groups: Sequence[Group], block_target: BlockTarget) -> Decision:
    """All if every group in the block is for the target, nothing if none is, else the families of those that are."""
    if block_target.groups is None:
        return WHOLE
    wanted = [group for group in groups if group.name in block_target.groups]
    if len(wanted) == len(groups):
        return WHOLE
    families = frozenset(family for group in wanted for family in group.families)
    return Decision(Selection.FAMILIES, families) if families else NOTHING


def provenance_for(header: BlockHeader, own_instance_id: str) -> tuple[str, ...]:
    """Provenance of the block as it leaves this cluster: what it came with, and this cluster (loop rule)."""
    return (*header.provenance, own_instance_id)


def row_indices_of_families(batch: pa.RecordBatch, families: Collection[bytes]) -> RowIndices:
    """The rows of the batch with records of these families, ascending."""
    return indices_of(batch.column("family"), families)
