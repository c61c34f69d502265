"""Selects the versions of cells that count, and of these the ones that a reader requests, as masks over columns.

The input is a round: one batch of merged entries, with a mark where each cell starts. A cell may go on in the next
round; :class:`PartialCell` carries its counts over. The functions are pure. Entries of a cell are newest first, and a
delete hides the entries of its cell with (timestamp, seq) <= its own: so the visible entries of a cell are those in
front of its first delete.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from bookkeeper.errors import InvalidInputError
from bookkeeper.storage.tablet.sorting.entries import Cell
from bookkeeper.storage.tablet.sorting.order import Indices, Mask

Times = npt.NDArray[np.int64]


class Retention(Struct, frozen=True):
    """The versions of a cell that count: the newest ``versions_max``, none with a timestamp below ``oldest_ms``.

    A scan applies it before the reader's filter. So a compaction, which drops the other versions, changes no scan.
    """

    versions_max: int = 1
    oldest_ms: int | None = None


class VersionFilter(Struct, frozen=True):
    """A reader's request, of the versions that count: at most ``versions`` (None = all) in ``[from_ms, to_ms)``."""

    versions: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def check(self) -> None:
        """Raise InvalidInputError for fewer than 1 version. An empty time range is allowed: it shows nothing."""
        if self.versions is not None and self.versions < 1:
            raise InvalidInputError(f"a scan of {self.versions} versions shows nothing: ask for 1 or more")

    def wants_newest_only(self, retention: Retention) -> bool:
        """Whether no entry behind the first of a cell can be shown."""
        in_time = self.from_ms is None and self.to_ms is None
        return retention.versions_max == 1 or (self.versions == 1 and in_time)


ALL_VERSIONS = VersionFilter()
"""All versions that count."""


class PartialCell(Struct, frozen=True):
    """A cell that earlier rounds have read in part: versions counted, versions shown, and whether a delete hides the
    remaining ones.
    """

    cell: Cell
    counted: int
    shown: int
    hidden: bool


class VersionRanks(Struct, frozen=True):
    """Of each entry of a round, in order: the index of its cell's first entry, its rank in its cell (entries of earlier
    rounds included), whether a delete of its cell is in front of it, and whether it is a delete itself.
    """

    first: Indices
    index: Indices
    behind_delete: Mask
    deletes: Mask

    @property
    def visible(self) -> Mask:
        """Entries that no delete hides, without the deletes."""
        mask: Mask = ~(self.behind_delete | self.deletes)
        return mask


def rank_versions(starts: Mask, deletes: Mask, partial_cell: PartialCell | None) -> VersionRanks:
    """``partial_cell``: the counts of the cell that earlier rounds began; None when the round begins a new cell."""
    positions = np.arange(len(starts))
    first = np.maximum.accumulate(np.where(starts, positions, 0))
    index = positions - first
    before: Indices = np.cumsum(deletes) - deletes
    behind_delete: Mask = before > before[first]
    if partial_cell is not None:
        same = first == 0
        index[same] += partial_cell.counted
        behind_delete |= same & partial_cell.hidden
    return VersionRanks(first, index, behind_delete, deletes)


def counted_versions(ranks: VersionRanks, times: Times, retention: Retention) -> Mask:
    """The versions that count: visible, among the newest ``versions_max``, and not older than ``oldest_ms``."""
    mask: Mask = ranks.visible & (ranks.index < retention.versions_max)
    return mask if retention.oldest_ms is None else mask & (times >= retention.oldest_ms)


def in_time(times: Times, version_filter: VersionFilter) -> Mask:
    """Entries in the time range."""
    mask = np.ones(len(times), bool)
    if version_filter.from_ms is not None:
        mask &= times >= version_filter.from_ms
    if version_filter.to_ms is not None:
        mask &= times < version_filter.to_ms
    return mask


def running_count(chosen: Mask, first: Indices, chosen_before: int) -> Indices:
    """For each entry, how many of its cell are chosen up to and with it; earlier rounds chose ``chosen_before`` of the
    first cell.
    """
    total = np.cumsum(chosen)
    count: Indices = total - (total - chosen)[first]
    count[first == 0] += chosen_before
    return count
