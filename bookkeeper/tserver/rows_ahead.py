"""Rows of a tablet that hold more of a stream than the others: those of a tablet that was merged into it (rule R18).

Arrives: what a merge left in ``tablet:flush``, and replicated blocks. Leaves: the records of those blocks that are new
to their rows. Survives a crash: ``FlushState.ahead``. The tablet's high-water is what *all* its rows hold, so a range
is judged by that one (R19); when it has passed what was ahead, nothing is ahead any more. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import Ahead, RowRange
from bookkeeper.tserver.tablet import ReceivedBlock, Share, share_of


def unknown_parts(blocks: Sequence[ReceivedBlock], ahead: Iterable[Ahead]) -> tuple[ReceivedBlock, ...]:
    """The blocks without the records that their rows hold already. Raises InvalidInputError, as ``receiving.decide``
    does, for a block that lies across what is known.
    """
    parts = list(ahead)
    left = ((block, rest_of(block.share, known_rows(block, parts))) for block in blocks)
    return tuple(ReceivedBlock(block.first_offset, block.last_offset, rest) for block, rest in left if rest is not None)


def known_rows(block: ReceivedBlock, ahead: Iterable[Ahead]) -> list[RowRange]:
    """Rows that have the block's records, if it has any of theirs."""
    known = []
    for part in ahead:
        if block.last_offset <= part.offset:
            known.append(part.rows)
        elif block.first_offset <= part.offset:
            raise InvalidInputError(
                f"source offsets {block.first_offset} to {block.last_offset} lie across {part.offset}, up to which "
                "some rows are here: a range must end where a block of the source file ends"
            )
    return known


def rest_of(share: Share, known: Sequence[RowRange]) -> Share | None:
    """The records of other rows, in order; None when there is none."""
    if not known:
        return share
    rows = share.batch.column("row")
    new = np.ones(len(rows), bool)
    for found in known:
        new &= ~_lie_in(rows, found).to_numpy(zero_copy_only=False)
    batch = share.batch.filter(pa.array(new))
    if batch.num_rows == share.batch.num_rows:
        return share
    return share_of(batch) if batch.num_rows else None


def _lie_in(rows: pa.Array, found: RowRange) -> pa.Array:
    above = pc.greater(rows, pa.scalar(found.prev_row or b"", pa.binary()))
    if found.end_row is None:
        return above
    return pc.and_(above, pc.less_equal(rows, pa.scalar(found.end_row, pa.binary())))
