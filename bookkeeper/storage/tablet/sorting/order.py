"""Sort entries by whole columns: first by eight bytes of the row as a number, then only the entries that tie.

The result is the order of the keys, and a mark where each cell starts. Pure. Binary columns sort about ten times slower
in Arrow than 64-bit numbers in numpy, and the input mostly consists of sorted runs, which numpy's stable sort merges.
So the row's first bytes behind the prefix of all rows are compared as one number. Entries that tie are refined step by
step, ever fewer of them: remaining bytes of the row, family, qualifier, visibility, timestamp, sequence number.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from bookkeeper.storage.columns import WORD_BYTES, WordReader, common_prefix_bytes, min_max_row
from bookkeeper.storage.tablet.sorting.entries import SortedBlock
from bookkeeper.storage.tablet.sorting.take import take_records

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

RUN_MIN = 64
"""From this average length of ascending runs on, the sort that merges runs is faster."""

FEW = 48
"""Up to this many ties are compared one by one."""


class CellOrder(Struct, frozen=True):
    """``indices`` put entries in order; ``starts[i]``: whether the i-th in order is the first of its cell.
    ``was_sorted``: the entries are in order already.
    """

    indices: Indices
    starts: Mask
    was_sorted: bool = False


def adjacent_equal(array: pa.Array) -> Mask:
    """For each value but the first: whether it equals the one before."""
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
    """The number of places where a number is less than the one before."""
    return int(np.count_nonzero(key[1:] < key[:-1]))


def _sorted_indices(key: npt.NDArray[np.uint64], falls: int, *, keep_ties: bool) -> Indices:
    """The stable sort merges long ascending runs; without such runs it takes twice the time of the other sort."""
    if not falls:
        return np.arange(len(key))
    has_runs = keep_ties or falls * RUN_MIN < len(key)
    return np.argsort(key, kind="stable" if has_runs else "quicksort")


class _Refinement:
    """An order under construction. ``tied[i]``: the i-th in order equals the one before it in all keys so far."""

    def __init__(self, key: npt.NDArray[np.uint64], *, keep_ties: bool) -> None:
        """``keep_ties``: ties stay in their order, because there may be no further key."""
        falls = descents(key)
        self.was_sorted = not falls
        """No key was less than the one before; ties may still move."""
        self.indices: Indices = _sorted_indices(key, falls, keep_ties=keep_ties)
        ordered = key if self.was_sorted else key[self.indices]
        self.tied = np.zeros(len(key), bool)
        np.equal(ordered[1:], ordered[:-1], out=self.tied[1:])

    def tied_positions(self) -> Indices:
        """Positions in the order that tie with a neighbour: whole groups of them."""
        if not self.tied.any():
            return np.empty(0, np.int64)
        member = self.tied.copy()
        member[:-1] |= self.tied[1:]
        return np.flatnonzero(member)

    def refine(self, positions: Indices, keys: npt.NDArray[np.int64] | npt.NDArray[np.uint64] | None) -> None:
        """Order whole groups of ties by a further key, given in the present order of ``positions``; None: all equal."""
        if keys is None or not positions.size:
            return
        group = np.cumsum(~self.tied[positions])
        same_group = group[1:] == group[:-1]
        if np.any(same_group & (keys[1:] < keys[:-1])):
            order = np.lexsort((keys, group))
            self.indices[positions] = self.indices[positions][order]
            keys = keys[order]
        self.tied[positions[1:]] = same_group & (keys[1:] == keys[:-1])

    def refine_column(self, array: pa.Array, key_of: Callable[[pa.Array], npt.NDArray[np.int64] | None]) -> None:
        """Order all ties by a column."""
        positions = self.tied_positions()
        if positions.size:
            self.refine(positions, key_of(array.take(pa.array(self.indices[positions]))))

    def unlike_rows(self, rows: pa.Array) -> Indices:
        """Positions of the groups that tie although their rows differ."""
        positions = self.tied_positions()
        if not positions.size:
            return positions
        group = np.cumsum(~self.tied[positions])
        differs = self.tied[positions[1:]] & ~adjacent_equal(rows.take(pa.array(self.indices[positions])))
        unlike = np.zeros(group[-1] + 1, bool)
        unlike[group[1:][differs]] = True
        chosen: Indices = positions[unlike[group]]
        return chosen


def _settle_few(refinement: _Refinement, entries: pa.RecordBatch, positions: Indices) -> CellOrder:
    """Order a few ties by their keys: cheaper than a pass over each column."""
    keys = list(map(SortedBlock(entries).key, refinement.indices[positions].tolist()))
    order = sorted(range(len(keys)), key=keys.__getitem__)
    refinement.indices[positions] = refinement.indices[positions][order]
    starts = ~refinement.tied
    starts[positions[1:]] = [keys[a][:4] != keys[b][:4] for a, b in pairwise(order)]
    return CellOrder(refinement.indices, starts)


def _dense_rank(array: pa.Array) -> npt.NDArray[np.int64]:
    rank: npt.NDArray[np.int64] = pc.rank(array, tiebreaker="dense").to_numpy().astype(np.int64)
    return rank


def _refine_rows(refinement: _Refinement, rows: pa.Array, skip: int) -> None:
    """Finish the order of the rows: a second word decides most ties, a comparison of whole rows the others."""
    for attempt in ("second word", "whole rows"):
        positions = refinement.unlike_rows(rows)
        if not positions.size:
            return
        unsettled = rows.take(pa.array(refinement.indices[positions]))
        second = attempt == "second word"
        refinement.refine(
            positions, WordReader(unsettled).words(skip + WORD_BYTES) if second else _dense_rank(unsettled)
        )


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
    positions = refinement.tied_positions()
    if not positions.size:
        return CellOrder(refinement.indices, ~refinement.tied, refinement.was_sorted)
    if positions.size <= FEW:
        return _settle_few(refinement, entries, positions)
    _refine_rows(refinement, rows, skip)
    for name in ("family", "qualifier", "visibility"):
        refinement.refine_column(entries.column(name), codes)
    starts = ~refinement.tied
    for name in ("timestamp", "seq"):
        refinement.refine_column(entries.column(name), lambda array: ~array.to_numpy())
    return CellOrder(refinement.indices, starts)


def sort_entries(entries: pa.RecordBatch) -> pa.RecordBatch:
    """The entries sorted; not a copy when they are in order already."""
    order = order_entries(entries, *min_max_row(entries))
    return entries if order.was_sorted else take_records(entries, order.indices)


def cell_starts(entries: pa.RecordBatch) -> Mask:
    """For each of some entries in order: whether it is the first of its cell."""
    starts = np.ones(entries.num_rows, bool)
    if entries.num_rows < 2:
        return starts
    tied = adjacent_equal(entries.column("row"))
    positions = np.flatnonzero(tied) + 1
    if not positions.size:
        return starts
    same = np.ones(positions.size, bool)
    for name in ("family", "qualifier", "visibility"):
        column = entries.column(name)
        if positions.size * 2 > entries.num_rows:
            same &= adjacent_equal(column)[positions - 1]
        else:
            here, before = column.take(pa.array(positions)), column.take(pa.array(positions - 1))
            same &= pc.equal(here, before).to_numpy(zero_copy_only=False)
    starts[positions[same]] = False
    return starts
