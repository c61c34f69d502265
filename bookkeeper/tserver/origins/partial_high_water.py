"""Rows of a tablet that have more of a stream than the tablet's high-water: those of a tablet that was merged into it.

Arrives: the partial high-waters that a merge left in ``tablet:flush``, and replicated blocks. Leaves: the records of
those blocks that are new to their rows. ``FlushState.partial_high_waters`` survives a crash. The tablet's high-water is
the offset that all its rows have (R18), so a range is judged by it (R19); a partial high-water ends when the tablet's
high-water has passed it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import PartialHighWater, RowRange
from bookkeeper.tserver.tablets.tablet import ReceivedBlock, tablet_records


def unknown_parts(
    blocks: Sequence[ReceivedBlock], partial_high_waters: Iterable[PartialHighWater]
) -> tuple[ReceivedBlock, ...]:
    """The blocks without the records that their rows have already. Raises InvalidInputError, as ``slice_decision``
    does, for a block that straddles a partial high-water.
    """
    parts = list(partial_high_waters)
    remaining = (without_rows(block, known_rows(block, parts)) for block in blocks)
    return tuple(block for block in remaining if block is not None)


def known_rows(block: ReceivedBlock, partial_high_waters: Iterable[PartialHighWater]) -> list[RowRange]:
    """The rows that have the block's records, if it has any of theirs."""
    known = []
    for part in partial_high_waters:
        if block.last_offset <= part.offset:
            known.append(part.rows)
        elif block.first_offset <= part.offset:
            raise InvalidInputError(
                f"source offsets {block.first_offset} to {block.last_offset} straddle {part.offset}, up to which "
                "some rows are here: a range must end where a block of the source file ends"
            )
    return known


def without_rows(block: ReceivedBlock, known: Sequence[RowRange]) -> ReceivedBlock | None:
    """The records of other rows, in order; None when there is none."""
    if not known:
        return block
    rows = block.records.batch.column("row")
    new = np.ones(len(rows), bool)
    for found in known:
        new &= ~lie_in(rows, found)
    return filtered(block, new)


def filtered(block: ReceivedBlock, mask: npt.NDArray[np.bool_]) -> ReceivedBlock | None:
    """The records for which the mask is true, with their origins; None when there is none."""
    batch = block.records.batch.filter(pa.array(mask))
    if batch.num_rows == block.records.batch.num_rows:
        return block
    if not batch.num_rows:
        return None
    block_origins = None if block.block_origins is None else block.block_origins.of(mask)
    return ReceivedBlock(block.first_offset, block.last_offset, tablet_records(batch), block_origins)


def lie_in(rows: pa.Array, found: RowRange) -> npt.NDArray[np.bool_]:
    """For each row whether it lies in the range."""
    above = pc.greater(rows, pa.scalar(found.prev_row or b"", pa.binary()))
    if found.end_row is not None:
        above = pc.and_(above, pc.less_equal(rows, pa.scalar(found.end_row, pa.binary())))
    mask: npt.NDArray[np.bool_] = above.to_numpy(zero_copy_only=False)
    return mask
