"""One page of a scan: the visible records of a range, in order, cut at a number of bytes.

Cursors over all data of a tablet are merged in rounds. Of each cell a page shows the versions that count and that the
reader requests, and none that a delete hides. Pure but for the blocks that sources read. The token of a page is the
position behind which the next page starts: so a scan returns each version once, though records are applied, flushed or
compacted between two pages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.storage.columns import binary_offsets
from bookkeeper.storage.tablet.scans.cell_versions import (
    PartialCell,
    Retention,
    Times,
    VersionFilter,
    counted_versions,
    in_time,
    rank_versions,
    running_count,
)
from bookkeeper.storage.tablet.scans.scan_position import Resume, VersionPosition
from bookkeeper.storage.tablet.scans.visibility import Authorizations
from bookkeeper.storage.tablet.segments.locality_groups import family_mask
from bookkeeper.storage.tablet.sorting.entries import cell_at, to_records
from bookkeeper.storage.tablet.sorting.merge import Cursor, Round, merge_round
from bookkeeper.storage.tablet.sorting.order import Indices, Mask
from bookkeeper.storage.tablet.tablet_settings import TabletSettings

_FIXED_BYTES = 8 + 1 + 5 * 4
"""Of a record: timestamp, delete and the lengths of five binary columns."""

_RECORD_BYTES_GUESS = 128
"""Assumed in the first round of a page; later rounds use the sizes of earlier ones."""
_ROUND_RECORDS_MIN = 64
_ROUND_BYTES = 16 << 20
_ROUND_MARGIN = 1.2
"""Rounds have a little fewer records than requested: they end at the shortest window."""


class ScanPage(Struct, frozen=True):
    """``records`` of MUTATION_SCHEMA, sorted, perhaps none; ``next`` resumes behind them, None = nothing is left."""

    records: pa.RecordBatch
    next: bytes | None


class ColumnFilter(Struct, frozen=True):
    """Families and columns that a reader requests; None = all. A record must be in both."""

    families: frozenset[bytes] | None
    columns: frozenset[tuple[bytes, bytes]] | None

    @classmethod
    def of(cls, families: Collection[bytes], columns: Collection[tuple[bytes, bytes]]) -> ColumnFilter:
        """As in a request, where an empty collection means all."""
        return cls(frozenset(families) or None, frozenset(columns) or None)

    def all_families(self) -> frozenset[bytes] | None:
        """The families that a matching record can have; None = any."""
        if self.columns is None:
            return self.families
        named = frozenset(family for family, _ in self.columns)
        return named if self.families is None else named & self.families

    def mask(self, entries: pa.RecordBatch) -> Mask | None:
        """The entries that match, as a mask; None = all."""
        families = self.all_families()
        if families is None:
            return None
        family = entries.column("family")
        if self.columns is None:
            return _as_mask(family_mask(family, families))
        qualifier = entries.column("qualifier")
        wanted = np.zeros(entries.num_rows, bool)
        for name in families:
            qualifiers = pa.array(sorted(q for f, q in self.columns if f == name), pa.binary())
            wanted |= _as_mask(pc.and_(pc.equal(family, pa.scalar(name, pa.binary())), pc.is_in(qualifier, qualifiers)))
        return wanted


def _as_mask(array: pa.BooleanArray) -> Mask:
    mask: Mask = array.to_numpy(zero_copy_only=False)
    return mask


def are_deletes(entries: pa.RecordBatch) -> Mask:
    """The entries that are deletes, as a mask."""
    return _as_mask(entries.column("delete"))


def times_of(entries: pa.RecordBatch) -> Times:
    """The timestamps."""
    times: Times = entries.column("timestamp").to_numpy()
    return times


class ScanView(Struct, frozen=True):
    """The entries of a range that a reader sees; the same for each page of a scan."""

    column_filter: ColumnFilter
    retention: Retention
    version_filter: VersionFilter
    authorizations: Authorizations | None = None
    """None: entries of every label are shown."""

    def mask(self, entries: pa.RecordBatch) -> Mask | None:
        """Entries that match and that the reader is authorized to see; None = all."""
        wanted = self.column_filter.mask(entries)
        authorized = None if self.authorizations is None else self.authorizations.mask(entries)
        if wanted is None or authorized is None:
            return authorized if wanted is None else wanted
        return wanted & authorized

    def selector(self, partial_cell: PartialCell | None) -> Selector:
        """``partial_cell``: the counts of the cell in which the page before ended."""
        if self.version_filter.wants_newest_only(self.retention):
            return NewestSelector(self)
        return VersionsSelector(self, partial_cell)


class Selector(Protocol):
    """Selects the visible entries of one round after the other."""

    newest_only: bool

    def show(self, merged: Round) -> pa.RecordBatch:
        """The visible entries of a round, in order."""

    def behind(self, shown: pa.RecordBatch, count: int) -> Resume:
        """The position behind the first ``count`` entries of the last :meth:`show`."""

    def end(self, merged: Round) -> Resume:
        """The position behind the round of the last :meth:`show`."""


class NewestSelector:
    """One version of each cell at most: its first entry, unless it is a delete, which hides all that follow it."""

    newest_only = True

    def __init__(self, view: ScanView) -> None:
        self._view = view

    def show(self, merged: Round) -> pa.RecordBatch:
        """See :class:`Selector`."""
        keep = merged.starts
        if merged.constants.get("delete") is not False:
            keep = keep & ~merged.in_order(are_deletes(merged.entries))
        oldest_ms, version_filter = self._view.retention.oldest_ms, self._view.version_filter
        if oldest_ms is not None or version_filter.from_ms is not None or version_filter.to_ms is not None:
            times = merged.in_order(times_of(merged.entries))
            keep = keep & in_time(times, version_filter)
            if oldest_ms is not None:
                keep &= times >= oldest_ms
        mask = self._view.mask(merged.entries)
        return merged.select(keep if mask is None else keep & merged.in_order(mask))

    def behind(self, shown: pa.RecordBatch, count: int) -> Resume:
        """See :class:`Selector`."""
        return Resume(cell_at(shown, count - 1))

    def end(self, merged: Round) -> Resume:
        """See :class:`Selector`."""
        return Resume(merged.last)


class VersionsSelector:
    """Several versions of a cell; carries the counts of a round's last cell over to the next round."""

    newest_only = False

    def __init__(self, view: ScanView, partial_cell: PartialCell | None) -> None:
        self._view = view
        self._partial_cell = partial_cell
        self._index: Indices = np.empty(0, np.int64)
        self._running: Indices = np.empty(0, np.int64)
        self._is_over = False

    def show(self, merged: Round) -> pa.RecordBatch:
        """See :class:`Selector`."""
        view, partial_cell = self._view, self._partial_cell
        if partial_cell is not None and partial_cell.cell != merged.first:
            partial_cell = None
        times = merged.in_order(times_of(merged.entries))
        ranks = rank_versions(merged.starts, merged.in_order(are_deletes(merged.entries)), partial_cell)
        chosen = counted_versions(ranks, times, view.retention) & in_time(times, view.version_filter)
        running = running_count(chosen, ranks.first, 0 if partial_cell is None else partial_cell.shown)
        most = view.retention.versions_max if view.version_filter.versions is None else view.version_filter.versions
        keep = chosen & (running <= most)
        mask = view.mask(merged.entries)
        if mask is not None:
            keep &= merged.in_order(mask)
        self._index, self._running = ranks.index[keep], running[keep]
        self._partial_cell = PartialCell(merged.last, int(ranks.index[-1]) + 1, int(running[-1]), not ranks.visible[-1])
        oldest = [time for time in (view.retention.oldest_ms, view.version_filter.from_ms) if time is not None]
        self._is_over = (
            self._partial_cell.hidden
            or self._partial_cell.counted >= view.retention.versions_max
            or self._partial_cell.shown >= most
            or (bool(oldest) and int(times[-1]) < max(oldest))
        )
        return merged.select(keep)

    def behind(self, shown: pa.RecordBatch, count: int) -> Resume:
        """See :class:`Selector`."""
        index = count - 1
        timestamp, seq = (int(shown.column(name)[index].as_py()) for name in ("timestamp", "seq"))
        version_position = VersionPosition(timestamp, seq, int(self._index[index]) + 1, int(self._running[index]))
        return Resume(cell_at(shown, index), version_position)

    def end(self, merged: Round) -> Resume:
        """See :class:`Selector`."""
        partial_cell = self._partial_cell
        if partial_cell is None or self._is_over:
            return Resume(merged.last)
        timestamp, seq = (-number for number in merged.end[4:])
        return Resume(merged.last, VersionPosition(timestamp, seq, partial_cell.counted, partial_cell.shown))


def _sizes(entries: pa.RecordBatch) -> Callable[[int], int]:
    """A function from n to the bytes of the first n records, as a page counts them."""
    names = [field.name for field in MUTATION_SCHEMA if pa.types.is_binary(field.type)]
    offsets = [memoryview(binary_offsets(entries.column(name)).data) for name in names]
    begin = sum(column[0] for column in offsets)
    return lambda records: records * _FIXED_BYTES + sum(column[records] for column in offsets) - begin


def read_page(
    cursors: list[Cursor],
    view: ScanView,
    page_bytes: int,
    settings: TabletSettings,
    partial_cell: PartialCell | None = None,
) -> ScanPage:
    """Fill one page. ``partial_cell``: the counts of the cell in which the cursors are. Raises CorruptionError when a
    source does.
    """
    selector = view.selector(partial_cell)
    parts: list[pa.RecordBatch] = []
    left = min(page_bytes, settings.page_bytes_max)
    examined = 0
    round_records = left // _RECORD_BYTES_GUESS
    while True:
        round_records = max(_ROUND_RECORDS_MIN, min(round_records, settings.page_examined_records_max - examined))
        merged = merge_round(cursors, round_records, max(_ROUND_BYTES, left), newest_only=selector.newest_only)
        if merged is None:
            return _page(parts, None)
        examined += merged.records
        found = selector.show(merged)
        if found.num_rows:
            size_of = _sizes(found)
            size = size_of(found.num_rows)
            if size >= left:
                fitting = bisect_left(range(1, found.num_rows), left, key=size_of) + 1
                parts.append(found.slice(0, fitting))
                for cursor in cursors:
                    cursor.read_ahead()
                return _page(parts, selector.behind(found, fitting).encode())
            parts.append(found)
            left -= size
            round_records = int(left * merged.records / size * _ROUND_MARGIN)
        else:
            round_records *= 2
        if examined >= settings.page_examined_records_max:
            return _page(parts, selector.end(merged).encode())
        if not selector.newest_only:
            _skip(cursors, selector.end(merged))


def _skip(cursors: list[Cursor], resume: Resume) -> None:
    """Seek behind the last cell when no more of its versions can be visible."""
    if resume.version_position is None:
        for cursor in cursors:
            if not cursor.exhausted:
                cursor.seek(resume.position)


def _page(parts: list[pa.RecordBatch], token: bytes | None) -> ScanPage:
    if not parts:
        return ScanPage(pa.RecordBatch.from_pylist([], schema=MUTATION_SCHEMA), token)
    return ScanPage(to_records(parts[0] if len(parts) == 1 else pa.concat_batches(parts)), token)
