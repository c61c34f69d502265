"""Compaction: several segments become one, without the entries that no reader can see any more.

This module chooses the segments to merge, and the entries of each merged round to retain. Pure. Every compaction drops
superseded, hidden and old entries, because no segment outside can bring them back. It retains a delete as long as a
segment outside may have entries that the delete hides. So deletes are dropped only where no segment outside can have an
entry of their family, as when the whole tablet or all of one locality group is compacted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from msgspec import Struct

from bookkeeper.config.table_properties import TableProperties
from bookkeeper.storage.tablet.scans.cell_versions import PartialCell, Retention, counted_versions, rank_versions
from bookkeeper.storage.tablet.scans.scan import are_deletes, times_of
from bookkeeper.storage.tablet.segments.locality_groups import family_mask
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.tablet.sorting.merge import Round
from bookkeeper.storage.tablet.sorting.order import Mask

INPUTS_MAX = 32
"""Segments of one merge: each costs memory for a row group or two."""


WHILE_FILLING = 3
"""While a tablet fills up, it may have this many times more segments: merges would take CPU and disk from writes."""


class Merge(Struct, frozen=True):
    """Segments to merge. ``whole_group``: they are all that the tablet has of their locality group."""

    inputs: tuple[SegmentRef, ...]
    whole_group: bool


def due_merges(segments: Iterable[SegmentRef], properties: TableProperties, *, filling: bool = False) -> list[Merge]:
    """The merges that are due now, at most one merge for each locality group; ``filling``: only of groups that have far
    too many segments. Then many are merged at once: so a record is rewritten less often than when each merge was due.
    """
    by_group: dict[str, list[SegmentRef]] = {}
    for ref in segments:
        by_group.setdefault(ref.group, []).append(ref)
    tolerated = properties.segments_max * WHILE_FILLING if filling else 0
    chosen = [(pick(refs, properties), refs) for _, refs in sorted(by_group.items()) if len(refs) > tolerated]
    return [Merge(tuple(inputs), len(inputs) == len(refs)) for inputs, refs in chosen if inputs]


def pick(refs: Sequence[SegmentRef], properties: TableProperties) -> list[SegmentRef]:
    """Segments of one group to merge: as many as have ``ratio`` times the bytes of their largest together, so that a
    record is rewritten a logarithmic number of times; else the smallest ones while there are too many. Returns none, or
    at least two.
    """
    ordered = sorted(refs, key=lambda ref: (ref.bytes, ref.name))
    for count in range(min(len(ordered), INPUTS_MAX), 1, -1):
        if ordered[count - 1].bytes * properties.ratio <= sum(ref.bytes for ref in ordered[:count]):
            return ordered[:count]
    surplus = len(ordered) - properties.segments_max
    return smallest(ordered, surplus + 1) if surplus > 0 else []


def smallest(refs: Iterable[SegmentRef], count: int) -> list[SegmentRef]:
    """The smallest ``count`` segments, no more than a merge takes."""
    return sorted(refs, key=lambda ref: (ref.bytes, ref.name))[: min(count, INPUTS_MAX)]


def families_outside(families: Iterable[Collection[bytes] | None]) -> frozenset[bytes] | None:
    """The families of segments that are not part of a merge, from those of each; None: any (one of them has too many
    to be listed).
    """
    found: set[bytes] = set()
    for listed in families:
        if listed is None:
            return None
        found.update(listed)
    return frozenset(found)


class MergeRetention(Struct, frozen=True):
    """The entries that a merge retains: the versions that count; deletes of ``outside`` families (None: of all);
    deletes from ``deletes_from_ms`` on (None: no others).
    """

    retention: Retention
    outside: frozenset[bytes] | None
    deletes_from_ms: int | None = None

    def deletes(self, merged: Round, deletes: Mask) -> Mask:
        """The deletes that are retained, as a mask in order."""
        if self.outside is None or not deletes.any():
            return deletes
        kept = np.zeros(len(deletes), bool)
        if self.outside:
            families = family_mask(merged.entries.column("family"), self.outside)
            kept |= merged.in_order(families.to_numpy(zero_copy_only=False))
        if self.deletes_from_ms is not None:
            kept |= merged.in_order(times_of(merged.entries)) >= self.deletes_from_ms
        return deletes & kept


class MergeFilter:
    """Selects the entries to retain of one round after the other; carries the counts of the last cell over."""

    def __init__(self, retention: MergeRetention) -> None:
        self._retention = retention
        self._partial_cell: PartialCell | None = None

    def keep(self, merged: Round) -> Mask:
        """The entries to retain, in order."""
        partial_cell, retention = self._partial_cell, self._retention.retention
        if partial_cell is not None and partial_cell.cell != merged.first:
            partial_cell = None
        times = merged.in_order(times_of(merged.entries))
        ranks = rank_versions(merged.starts, merged.in_order(are_deletes(merged.entries)), partial_cell)
        hiding = ranks.deletes & ~ranks.behind_delete
        if retention.oldest_ms is not None:
            hiding &= times >= retention.oldest_ms
        self._partial_cell = PartialCell(merged.last, int(ranks.index[-1]) + 1, 0, not ranks.visible[-1])
        mask: Mask = counted_versions(ranks, times, retention) | self._retention.deletes(merged, hiding)
        return mask
