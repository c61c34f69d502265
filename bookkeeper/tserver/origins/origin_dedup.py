"""Duplicates by origin (R22): of the blocks of a message, the records that no other path has brought yet.

The input is a tablet's blocks, with the origins of their records, and the tablet's intervals of these origins. The
result is the new records, the intervals with them, and the origins for the header of the new block, which survives a
crash. Pure. The functions use complete columns, and compare single records only where two paths meet.

No record is lost or applied twice: every applied record lies in a claim that is remembered with it, so it is known
afterwards; and a claim names only records that are in its block, or that its tablet has applied before. The high-water
of a stream proves neither: it also passes the records that the stream leaves out, by group, by quarantine, or by the
time at which it began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.model import RowRange, StreamKey
from bookkeeper.origins import Part, Root, RootIntervals, RootLog, Runs, root_of, union
from bookkeeper.storage.wal.blocks import block_pb2 as pb
from bookkeeper.storage.wal.blocks.block_origins import BlockOrigins, Claim, block_origins_to_pb, joined
from bookkeeper.tserver.origins.partial_high_water import filtered, lie_in
from bookkeeper.tserver.tablets.tablet import ReceivedBlock

IntervalsOf = Callable[[Root], RootIntervals]


class NewRecords(Struct, frozen=True):
    """``blocks``: the new records of a message, perhaps none. ``intervals``: the tablet's intervals of the message's
    roots with these. ``claims`` and ``partial`` as in :class:`BlockOrigins`.
    """

    blocks: tuple[ReceivedBlock, ...]
    intervals: dict[Root, RootIntervals]
    claims: tuple[Claim, ...]
    partial: bool


def logs_in(blocks: Iterable[ReceivedBlock]) -> set[RootLog]:
    """The logs that the records of some blocks were first written to. Blocks of older versions have no origins: their
    duplicates are found by stream.
    """
    found: set[RootLog] = set()
    for block in blocks:
        if block.block_origins is not None:
            found.update(root.log for root, _ in block.block_origins.records)
            found.update(claim.root.log for claim in block.block_origins.claims)
    return found


def new_records(
    blocks: Sequence[ReceivedBlock],
    rows: RowRange,
    intervals_of: IntervalsOf,
    span_start: Callable[[Root], int],
    now_ms: int,
) -> NewRecords:
    """The new records of a message for the tablet of these rows. ``span_start``: see
    :meth:`OriginIntervals.span_start`.

    All blocks are compared with the intervals before the message: a log has a record once.
    """
    fresh = (unknown_records(block, intervals_of) for block in blocks)
    intervals: dict[Root, RootIntervals] = {}
    claims: list[Claim] = []
    partial = False
    for claim in claims_in(blocks, rows):
        before = intervals.get(claim.root) or intervals_of(claim.root)
        part = closed_gaps(claim, before)
        partial |= any(part.crosses(other) for other in before.parts)
        new = part.runs - before.runs_of(part.rows, part.family)
        intervals[claim.root] = after = before.taking(part, now_ms)
        if len(new):
            since = max(span_start(claim.root), after.runs_of(part.rows, part.family).start_of(new.first))
            claims.append(Claim(claim.root, replace(part, runs=new), since))
    return NewRecords(tuple(block for block in fresh if block is not None), intervals, tuple(claims), partial)


def claims_in(blocks: Sequence[ReceivedBlock], rows: RowRange) -> list[Claim]:
    """The claims of a message's blocks about these rows, one for each root, rows and family."""
    found: dict[tuple[Root, RowRange, bytes | None], list[Claim]] = {}
    for block in blocks:
        for claim in () if block.block_origins is None else block.block_origins.claims:
            common = claim.part.rows.part_in(rows)
            if common is not None:
                found.setdefault((claim.root, common, claim.part.family), []).append(claim)
    return [
        Claim(root, Part(common, family, union([claim.part.runs for claim in claims])), since_of(claims))
        for (root, common, family), claims in found.items()
    ]


def since_of(claims: Sequence[Claim]) -> int:
    """The offset from which on none of the claims leaves out a record; 0 when one claim has no such offset."""
    return max(claim.since for claim in claims) if all(claim.since for claim in claims) else 0


def closed_gaps(claim: Claim, intervals: RootIntervals) -> Part:
    """The offsets that a claim covers in this tablet: its path left nothing out from ``since`` on, so only records of
    other rows lie between the tablet's intervals and the first block of the claim, and between its blocks.
    """
    part = claim.part
    if not claim.since:
        return part
    before = intervals.runs_of(part.rows, part.family).last_below(part.runs.first)
    if before < 1 or before + 1 < claim.since or before >= part.runs.first:
        return part
    return replace(part, runs=Runs.of((before + 1, part.runs.last)))


def unknown_records(block: ReceivedBlock, intervals_of: IntervalsOf) -> ReceivedBlock | None:
    """The records of a block that are in no interval; None when there is none."""
    if block.block_origins is None:
        return block
    known = known_records(block, block.block_origins, intervals_of)
    return block if known is None else filtered(block, ~known)


def known_records(
    block: ReceivedBlock, block_origins: BlockOrigins, intervals_of: IntervalsOf
) -> npt.NDArray[np.bool_] | None:
    """For each record whether another path has brought it; None when no interval meets the block."""
    if not any(part.runs.meets(runs) for root, runs in block_origins.records for part in intervals_of(root).parts):
        return None
    known = np.zeros(block.records.batch.num_rows, bool)
    start = 0
    for root, runs in block_origins.present:
        stop = start + runs.total
        for part in intervals_of(root).parts:
            known[start:stop] |= in_part(block.records.batch.slice(start, stop - start), runs, part)
        start = stop
    return known


def in_part(batch: pa.RecordBatch, runs: Runs, part: Part) -> npt.NDArray[np.bool_]:
    """For each record of one root, with these offsets, whether it lies in the part."""
    found = part.runs.holds(runs.offsets())
    if part.family is not None:
        found &= pc.equal(batch.column("family"), pa.scalar(part.family, pa.binary())).to_numpy(zero_copy_only=False)
    return found & lie_in(batch.column("row"), part.rows) if found.any() else found


def origins_of_header(new: NewRecords, stream: StreamKey, is_shipped: bool) -> pb.BlockOrigins | None:
    """The origins in the header of the new block. ``is_shipped``: the table has targets, which have to know the origin
    of each record.
    """
    origins = [block.block_origins for block in new.blocks if block.block_origins is not None]
    complete = is_shipped and len(origins) == len(new.blocks)
    records = joined(section for block_origins in origins for section in block_origins.present) if complete else ()
    if not records and not new.claims:
        return None
    return block_origins_to_pb(BlockOrigins(records, new.claims, new.partial), root_of(stream))
