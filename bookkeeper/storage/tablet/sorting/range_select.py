"""Select a small range of rows from blocks in memory, without sorting the blocks.

To search an unsorted block takes a hundredth of the time to sort it. So the first scans of a block search it, and a
scan that needs much of a block sorts it. Few entries become one source. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from bookkeeper.storage.tablet.sorting.entries import Position, RowWords, SortedBlock
from bookkeeper.storage.tablet.sorting.merge import RunSource
from bookkeeper.storage.tablet.sorting.order import sort_entries
from bookkeeper.storage.tablet.sorting.take import take_records

FEW = 64
"""Up to this many entries of a range become one source: cheaper than the cursor that each block's would need."""

PART_OF = 16
"""A scan that needs more than this part of an unsorted block sorts all of it."""


class Part(NamedTuple):
    """The entries of a block that lie in a range: ``indices``, ascending. ``is_sorted``: the block is, and the entries
    are neighbours.
    """

    block: SortedBlock
    indices: Sequence[int]
    is_sorted: bool


def part_of_sorted(block: SortedBlock, low: bytes, high: bytes) -> Part:
    """Of a sorted block: the entries with rows in ``[low, high)``."""
    return Part(block, block.rows_between(low, high), True)


def part_of_unsorted(block: SortedBlock, words: RowWords, low: bytes, high: bytes) -> Part | None:
    """Of an unsorted block, whose rows have these ``words``; None: so many entries that sorting is cheaper."""
    near = words.between(low, high)
    if len(near) * PART_OF > block.records:
        return None
    return Part(block, [index for index in near.tolist() if low <= block.row(index) < high], False)


def sources_of(parts: Sequence[Part], records: int) -> list[RunSource]:
    """Sources with all entries of the parts. ``records``: of all blocks of the parts."""
    parts = [part for part in parts if part.indices]
    count = sum(len(part.indices) for part in parts)
    if count > FEW:
        return [_source_of(part) for part in parts]
    return [RunSource(_joined(parts), records)] if parts else []


def _source_of(part: Part) -> RunSource:
    if part.is_sorted:
        return RunSource(part.block)
    return RunSource(
        SortedBlock(sort_entries(take_records(part.block.batch, np.array(part.indices)))), part.block.records
    )


def _joined(parts: Sequence[Part]) -> SortedBlock:
    """All entries as one block, put in order by their keys."""
    found: list[tuple[Position, pa.RecordBatch]] = []
    for block, indices, _ in parts:
        found += [(block.key(index), block.batch.slice(index, 1)) for index in indices]
    found.sort(key=_key)
    return SortedBlock(pa.concat_batches([entry for _, entry in found]))


def _key(found: tuple[Position, pa.RecordBatch]) -> Position:
    return found[0]
