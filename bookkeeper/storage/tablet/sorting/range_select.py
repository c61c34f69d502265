"""A small range of rows out of what is in memory: what lies around it is not sorted, and few entries are one source.

Arrives: blocks, sorted or as they came, and a range. Leaves: sources with all entries of the range. So a scan searches
a block that it meets for the first time, for a hundredth of what it takes to sort it; whoever wants much of a block
sorts it. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from bookkeeper.storage.tablet.sorting.entries import Position, RowWords, SortedBlock
from bookkeeper.storage.tablet.sorting.merge import RunSource
from bookkeeper.storage.tablet.sorting.order import sort_entries
from bookkeeper.storage.tablet.sorting.take import gather

FEW = 64
"""Up to this many entries of a range become one source: cheaper than the cursor that each block's would need."""

PART_OF = 16
"""Whoever wants more than this part of an unsorted block has all of it sorted."""


class Part(NamedTuple):
    """Those entries of a block that lie in a range: ``at`` are their places, ascending. ``is_sorted``: so is the block,
    and the entries are neighbours.
    """

    block: SortedBlock
    at: Sequence[int]
    is_sorted: bool


def part_of_sorted(block: SortedBlock, low: bytes, high: bytes) -> Part:
    """Of a sorted block: the entries with rows in ``[low, high)``."""
    return Part(block, block.rows_between(low, high), True)


def part_of_unsorted(block: SortedBlock, words: RowWords, low: bytes, high: bytes) -> Part | None:
    """Of a block as it came, whose rows have these ``words``; None: so many that it is better sorted."""
    near = words.between(low, high)
    if len(near) * PART_OF > block.records:
        return None
    return Part(block, [place for place in near.tolist() if low <= block.row(place) < high], False)


def sources_of(parts: Sequence[Part], records: int) -> list[RunSource]:
    """Sources that hold all entries of the parts. ``records``: of everything that the parts were taken from."""
    parts = [part for part in parts if part.at]
    count = sum(len(part.at) for part in parts)
    if count > FEW:
        return [_source_of(part) for part in parts]
    return [RunSource(_joined(parts), records)] if parts else []


def _source_of(part: Part) -> RunSource:
    if part.is_sorted:
        return RunSource(part.block)
    return RunSource(SortedBlock(sort_entries(gather(part.block.batch, np.array(part.at)))), part.block.records)


def _joined(parts: Sequence[Part]) -> SortedBlock:
    """All entries as one block, put in order by their keys."""
    found: list[tuple[Position, pa.RecordBatch]] = []
    for block, places, _ in parts:
        found += [(block.key(place), block.batch.slice(place, 1)) for place in places]
    found.sort(key=_key)
    return SortedBlock(pa.concat_batches([entry for _, entry in found]))


def _key(found: tuple[Position, pa.RecordBatch]) -> Position:
    return found[0]
