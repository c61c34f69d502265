"""Sorting entries without looking at them one by one: eight bytes of the row as a number, then only what ties.

Arrives: batches of entries. Leaves: the order of their keys, and which of them starts a new cell. Pure.
Binary columns sort about ten times slower in Arrow than 64-bit numbers in numpy, and what a sort is given here mostly
consists of sorted stretches, which numpy's stable sort merges. So the row's first bytes behind the prefix that all
rows share are compared as one number; entries that are equal in it are refined step by step, ever fewer of them:
rest of the row, family, qualifier, visibility, timestamp, sequence number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bookkeeper.storage.columns import WORD_BYTES, WordReader, common_prefix_bytes, min_max_row
from bookkeeper.storage.tablet.sorting.entries import SortedBlock
from bookkeeper.storage.tablet.sorting.take import gather

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

STRETCH_MIN = 64
"""Numbers in an ascending stretch, on the average, from which on sorting them merges stretches."""

FEW = 48
"""Up to this many ties are settled one by one."""


@dataclass(frozen=True, slots=True)
class CellOrder:
    """``indices`` put entries in order; ``starts[i]`` tells whether the i-th in order is the first of its cell.
    ``came_so``: they are in order already.
    """

    indices: Indices
    starts: Mask
    came_so: bool = False


def adjacent_equal(array: pa.Array) -> Mask:
    """For each value but the first: does it equal the one before?"""
    equal = pc.equal(array.slice(1), array.slice(0, len(array) - 1))
    mask: Mask = equal.to_numpy(zero_copy_only=False)
    return mask


def codes(array: pa.Array) -> npt.NDArray[np.int64] | None:
    """Numbers that order as the values do; None when all values are equal."""
    encoded = pc.dictionary_encode(array)
    count = len(encoded.dictionary)
    if count <= 1:
        return None
    rank = np.empty(count, np.int64)
    rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(count)
    ranked: npt.NDArray[np.int64] = rank[encoded.indices.to_numpy()]
    return ranked


def descents(key: npt.NDArray[np.uint64]) -> int:
    """How often a number is less than the one before."""
    return int(np.count_nonzero(key[1:] < key[:-1]))


def _sorted_indices(key: npt.NDArray[np.uint64], falls: int, *, keep_ties: bool) -> Indices:
    """The stable sort merges long ascending stretches; without them it takes more than twice the time of the other."""
    if not falls:
        return np.arange(len(key))
    stretches = keep_ties or falls * STRETCH_MIN < len(key)
    return np.argsort(key, kind="stable" if stretches else "quicksort")


class _Refinement:
    """An order under construction. ``tied[i]``: the i-th in order equals the one before it in all keys so far."""

    def __init__(self, key: npt.NDArray[np.uint64], *, keep_ties: bool) -> None:
        """``keep_ties``: what ties stays in the order in which it came, for there may be no further key."""
        falls = descents(key)
        self.came_so = not falls
        """No key was less than the one before; ties may still move."""
        self.indices: Indices = _sorted_indices(key, falls, keep_ties=keep_ties)
        ordered = key if self.came_so else key[self.indices]
        self.tied = np.zeros(len(key), bool)
        np.equal(ordered[1:], ordered[:-1], out=self.tied[1:])

    def places(self) -> Indices:
        """Places in the order that share their keys with a neighbour, whole groups of them."""
        if not self.tied.any():
            return np.empty(0, np.int64)
        member = self.tied.copy()
        member[:-1] |= self.tied[1:]
        return np.flatnonzero(member)

    def refine(self, places: Indices, keys: npt.NDArray[np.int64] | npt.NDArray[np.uint64] | None) -> None:
        """Order whole groups of ties by a further key, given in the present order of ``places``; None: all equal."""
        if keys is None or not places.size:
            return
        group = np.cumsum(~self.tied[places])
        same_group = group[1:] == group[:-1]
        if np.any(same_group & (keys[1:] < keys[:-1])):
            order = np.lexsort((keys, group))
            self.indices[places] = self.indices[places][order]
            keys = keys[order]
        self.tied[places[1:]] = same_group & (keys[1:] == keys[:-1])

    def refine_column(self, array: pa.Array, key_of: Callable[[pa.Array], npt.NDArray[np.int64] | None]) -> None:
        """Order all ties by a column."""
        places = self.places()
        if places.size:
            self.refine(places, key_of(array.take(pa.array(self.indices[places]))))

    def unlike_rows(self, rows: pa.Array) -> Indices:
        """Places of the groups that are tied although their rows differ."""
        places = self.places()
        if not places.size:
            return places
        group = np.cumsum(~self.tied[places])
        differs = self.tied[places[1:]] & ~adjacent_equal(rows.take(pa.array(self.indices[places])))
        unlike = np.zeros(group[-1] + 1, bool)
        unlike[group[1:][differs]] = True
        chosen: Indices = places[unlike[group]]
        return chosen


def _settle_few(refinement: _Refinement, entries: pa.RecordBatch, places: Indices) -> CellOrder:
    """Order a handful of ties by their whole keys: mostly chance, and cheaper than a pass over columns each."""
    keys = list(map(SortedBlock(entries).key, refinement.indices[places].tolist()))
    order = sorted(range(len(keys)), key=keys.__getitem__)
    refinement.indices[places] = refinement.indices[places][order]
    starts = ~refinement.tied
    starts[places[1:]] = [keys[a][:4] != keys[b][:4] for a, b in pairwise(order)]
    return CellOrder(refinement.indices, starts)


def _dense_rank(array: pa.Array) -> npt.NDArray[np.int64]:
    rank: npt.NDArray[np.int64] = pc.rank(array, tiebreaker="dense").to_numpy().astype(np.int64)
    return rank


def _refine_rows(refinement: _Refinement, rows: pa.Array, skip: int) -> None:
    """Finish the order of the rows: most are settled by a second word, the rest by comparing them whole."""
    for attempt in ("second word", "whole rows"):
        places = refinement.unlike_rows(rows)
        if not places.size:
            return
        unsettled = rows.take(pa.array(refinement.indices[places]))
        second = attempt == "second word"
        refinement.refine(places, WordReader(unsettled).words(skip + WORD_BYTES) if second else _dense_rank(unsettled))


def order_rows(rows: pa.Array, low_row: bytes, high_row: bytes) -> Indices:
    """Order rows alone; equal rows keep their order. Every row lies in ``[low_row, high_row]``."""
    skip = common_prefix_bytes(low_row, high_row)
    refinement = _Refinement(WordReader(rows).words(skip), keep_ties=True)
    _refine_rows(refinement, rows, skip)
    return refinement.indices


def order_entries(entries: pa.RecordBatch, low_row: bytes, high_row: bytes) -> CellOrder:
    """Order entries by key. Every row lies in ``[low_row, high_row]``; the closer the two, the faster."""
    rows = entries.column("row")
    skip = common_prefix_bytes(low_row, high_row)
    refinement = _Refinement(WordReader(rows).words(skip), keep_ties=False)  # sequence numbers differ
    places = refinement.places()
    if not places.size:
        return CellOrder(refinement.indices, ~refinement.tied, refinement.came_so)
    if places.size <= FEW:
        return _settle_few(refinement, entries, places)
    _refine_rows(refinement, rows, skip)
    for name in ("family", "qualifier", "visibility"):
        refinement.refine_column(entries.column(name), codes)
    starts = ~refinement.tied
    for name in ("timestamp", "seq"):
        refinement.refine_column(entries.column(name), lambda array: ~array.to_numpy())
    return CellOrder(refinement.indices, starts)


def sort_entries(entries: pa.RecordBatch) -> pa.RecordBatch:
    """Sorted; not a copy when they came in order."""
    order = order_entries(entries, *min_max_row(entries))
    return entries if order.came_so else gather(entries, order.indices)


def cell_starts(entries: pa.RecordBatch) -> Mask:
    """For entries that are in order: is each the first of its cell?"""
    starts = np.ones(entries.num_rows, bool)
    if entries.num_rows < 2:
        return starts
    tied = adjacent_equal(entries.column("row"))
    places = np.flatnonzero(tied) + 1
    if not places.size:
        return starts
    same = np.ones(places.size, bool)
    for name in ("family", "qualifier", "visibility"):
        column = entries.column(name)
        if places.size * 2 > entries.num_rows:
            same &= adjacent_equal(column)[places - 1]
        else:
            here, before = column.take(pa.array(places)), column.take(pa.array(places - 1))
            same &= pc.equal(here, before).to_numpy(zero_copy_only=False)
    starts[places[same]] = False
    return starts
