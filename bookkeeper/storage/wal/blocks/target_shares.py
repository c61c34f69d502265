"""Target shares: the records and bytes of a log that are for each target, as running sums in block headers. Pure.

A header has the sums up to and with its block. So one header has the amount that a target needs, or has finished. A
reader that begins in the middle, a recovery and a repeated range add up nothing again. Rules: R1 and R13.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from msgspec import Struct, field

from bookkeeper.storage.columns import indices_of
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader, BlockTarget

_Target = tuple[str, str, str, int]
"""The parts of a :class:`~bookkeeper.model.TargetKey`: made for each block, so no object of its own."""

_ZERO = (0, 0)


class LogShares(Struct, frozen=True):
    """Records and bytes of each target in a log, up to its last block."""

    totals: Mapping[_Target, tuple[int, int]] = field(default_factory=dict)

    def counting(self, blocks: Iterable[Block]) -> LogShares:
        """The sums behind these blocks. Before, their headers have each target's records of the block alone (none: all
        records are each target's); this replaces them by the sums.
        """
        totals = dict(self.totals)
        for block in blocks:
            header, size = block.header, block.payload.size
            if not header.block_targets:
                continue
            sums = []
            # A new block whose targets all get all records has no numbers of its own yet.
            by_target = header.target_records or [header.record_count] * len(header.block_targets)
            for block_target, own in zip(header.block_targets, by_target, strict=True):
                target = (
                    block_target.cluster,
                    block_target.remote_table_id,
                    block_target.source_table_id,
                    block_target.incarnation,
                )
                records, before = totals.get(target, _ZERO)
                totals[target] = found = (records + own, before + size if own else before)
                sums.append(found)
            header.target_records[:], header.target_bytes[:] = zip(*sums, strict=True)
        return LogShares(totals)


def note_target_records(header: BlockHeader, families: pa.Array, peers: Sequence[str]) -> None:
    """Write into a new block's header how many records each of its targets gets: those of the target's locality groups
    (R13), and none when the data has been at the peer (R21). ``families`` is the column; ``peers`` are the targets'
    instance ids, in the order of the targets. The header has no numbers when each target gets all records.
    """
    if header.provenance or not all(block_target.all_groups for block_target in header.block_targets):
        header.target_records[:] = target_records(header, families, peers)


def target_records(header: BlockHeader, families: pa.Array, peers: Sequence[str]) -> list[int]:
    """The numbers of :func:`note_target_records`."""
    return [
        0 if peer in header.provenance else records_of_groups(header, block_target, families)
        for peer, block_target in zip(peers, header.block_targets, strict=True)
    ]


def records_of_groups(header: BlockHeader, block_target: BlockTarget, families: pa.Array) -> int:
    """The records of a target's groups; the column is read only when some of its groups travel and some do not."""
    if block_target.all_groups:
        return len(families)
    wanted = [group for group in header.groups if group.name in block_target.groups]
    if len(wanted) == len(header.groups):
        return len(families)
    names = [family for group in wanted for family in group.families]
    return len(indices_of(families, names)) if names else 0
