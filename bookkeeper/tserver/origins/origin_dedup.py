"""Several paths from one origin: of the blocks of a message, the records that no other path has brought yet (rule R22).

Arrives: a tablet's blocks, each with where its records were first written, and what the tablet holds of those roots.
Leaves: the rest of the blocks, what the tablet holds with them, and what the new block's header says of it. Survives a
crash: that header. Pure, whole columns at a time; nothing is looked at record by record unless two paths meet.

Why nothing is lost or taken twice: every record that is taken lies in a claim that is remembered with it, so it is
known afterwards; and a claim names only records that are in its block, or that its tablet has taken before. The
high-water of a stream says neither: it also passes what the stream leaves out, by group, by quarantine, or by when it
began.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bookkeeper.model import RowRange, StreamKey
from bookkeeper.origins import Part, Root, RootIntervals, Runs, root_of, union
from bookkeeper.storage.wal.blocks import block_pb2 as pb
from bookkeeper.storage.wal.blocks.block_origins import BlockOrigins, Claim, block_origins_to_pb, joined
from bookkeeper.tserver.origins.partial_high_water import lie_in, those_of
from bookkeeper.tserver.tablets.tablet import ReceivedBlock

LookUp = Callable[[Root], RootIntervals]


@dataclass(frozen=True, slots=True)
class Taken:
    """``blocks``: what is new of a message, perhaps nothing. ``held``: what is here of its roots then. ``claims`` and
    ``partial`` as in :class:`BlockOrigins`.
    """

    blocks: tuple[ReceivedBlock, ...]
    held: dict[Root, RootIntervals]
    claims: tuple[Claim, ...]
    partial: bool


def take(
    blocks: Sequence[ReceivedBlock], rows: RowRange, known: LookUp, begins: Callable[[Root], int], now_ms: int
) -> Taken:
    """Judge the blocks of one message for the tablet of these rows. ``begins``: see :meth:`OriginIntervals.begins`.

    All are compared with what was held before the message: a log holds a record once.
    """
    fresh = (unknown_records(block, known) for block in blocks)
    held: dict[Root, RootIntervals] = {}
    claims: list[Claim] = []
    partial = False
    for claim in claims_in(blocks, rows):
        before = held.get(claim.root) or known(claim.root)
        part = stretched(claim, before)
        partial |= any(part.crosses(other) for other in before.parts)
        new = part.runs - before.runs_of(part.rows, part.family)
        held[claim.root] = after = before.taking(part, now_ms)
        if len(new):
            since = max(begins(claim.root), after.runs_of(part.rows, part.family).start_of(new.first))
            claims.append(Claim(claim.root, replace(part, runs=new), since))
    return Taken(tuple(block for block in fresh if block is not None), held, tuple(claims), partial)


def claims_in(blocks: Sequence[ReceivedBlock], rows: RowRange) -> list[Claim]:
    """What the blocks of a message claim of these rows, together."""
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
    """From where on all of them leave out nothing; 0 when one does not know."""
    return max(claim.since for claim in claims) if all(claim.since for claim in claims) else 0


def stretched(claim: Claim, held: RootIntervals) -> Part:
    """What a claim means here: nothing was left out from ``since`` on, so between what is held and the first of its
    blocks, and between its blocks, lie only records of other rows.
    """
    part = claim.part
    if not claim.since:
        return part
    before = held.runs_of(part.rows, part.family).last_below(part.runs.first)
    if before < 1 or before + 1 < claim.since or before >= part.runs.first:
        return part
    return replace(part, runs=Runs.of((before + 1, part.runs.last)))


def unknown_records(block: ReceivedBlock, look: LookUp) -> ReceivedBlock | None:
    """The records of a block that are in nothing that is held; None when there is none."""
    if block.block_origins is None:
        return block
    known = known_records(block, block.block_origins, look)
    return block if known is None else those_of(block, ~known)


def known_records(block: ReceivedBlock, block_origins: BlockOrigins, look: LookUp) -> npt.NDArray[np.bool_] | None:
    """For each record whether another path has brought it; None when that is plain for all: it has not."""
    if not any(part.runs.meets(runs) for root, runs in block_origins.records for part in look(root).parts):
        return None
    known = np.zeros(block.share.batch.num_rows, bool)
    start = 0
    for root, runs in block_origins.present:
        stop = start + runs.total
        for part in look(root).parts:
            known[start:stop] |= in_part(block.share.batch.slice(start, stop - start), runs, part)
        start = stop
    return known


def in_part(batch: pa.RecordBatch, runs: Runs, part: Part) -> npt.NDArray[np.bool_]:
    """For each of some records of one root, with these offsets, whether it is in a part of what is held of it."""
    found = part.runs.holds(runs.offsets())
    if part.family is not None:
        found &= pc.equal(batch.column("family"), pa.scalar(part.family, pa.binary())).to_numpy(zero_copy_only=False)
    return found & lie_in(batch.column("row"), part.rows) if found.any() else found


def origins_of_header(taken: Taken, stream: StreamKey, travels: bool) -> pb.BlockOrigins | None:
    """What the header of the new block says; ``travels``: somebody gets the records from here, and has to know them."""
    descents = [block.block_origins for block in taken.blocks if block.block_origins is not None]
    complete = travels and len(descents) == len(taken.blocks)
    records = joined(section for block_origins in descents for section in block_origins.present) if complete else ()
    if not records and not taken.claims:
        return None
    return block_origins_to_pb(BlockOrigins(records, taken.claims, taken.partial), root_of(stream))
