"""One page of a scan: what the merged entries of a range show a reader, cut at a number of bytes.

Arrives: cursors over everything a tablet holds, and what the reader wants. Leaves: records in order, those versions of
each cell that count and were asked for, none that a delete hides, and where to go on. Pure but for the blocks that
sources read. A token is the place behind which the next page starts: a version is given once, whatever was applied,
flushed or compacted between two pages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.storage.columns import binary_offsets
from bookkeeper.storage.tablet.scans.cell_versions import (
    Asked,
    Begun,
    Retention,
    Times,
    counting,
    in_time,
    running_count,
    standing,
)
from bookkeeper.storage.tablet.scans.scan_position import Resume, Within
from bookkeeper.storage.tablet.scans.visibility import Sight
from bookkeeper.storage.tablet.segments.locality_groups import family_mask
from bookkeeper.storage.tablet.sorting.entries import cell_at, to_records
from bookkeeper.storage.tablet.sorting.merge import Cursor, Round, merge_round
from bookkeeper.storage.tablet.sorting.order import Indices, Mask
from bookkeeper.storage.tablet.tablet_settings import TabletSettings

_FIXED_BYTES = 8 + 1 + 5 * 4
"""Of a record: timestamp, delete and the lengths of five binary columns."""

_RECORD_BYTES_GUESS = 128
"""For the first round of a page; the rounds after it follow what the ones before gave."""
_ROUND_RECORDS_MIN = 64
_ROUND_BYTES = 16 << 20
_ROUND_MARGIN = 1.2
"""Rounds end a little before what they were asked for: at the shortest window."""


@dataclass(frozen=True, slots=True)
class ScanPage:
    """``records`` of MUTATION_SCHEMA, sorted, perhaps none; ``next`` resumes behind them, None = nothing is left."""

    records: pa.RecordBatch
    next: bytes | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Families and columns that a reader asks for; None = all. A record must be in both."""

    families: frozenset[bytes] | None
    columns: frozenset[tuple[bytes, bytes]] | None

    @classmethod
    def of(cls, families: Collection[bytes], columns: Collection[tuple[bytes, bytes]]) -> Wanted:
        """As in a request, where an empty collection means all."""
        return cls(frozenset(families) or None, frozenset(columns) or None)

    def all_families(self) -> frozenset[bytes] | None:
        """The families that a record shown can have; None = any."""
        if self.columns is None:
            return self.families
        named = frozenset(family for family, _ in self.columns)
        return named if self.families is None else named & self.families

    def mask(self, entries: pa.RecordBatch) -> Mask | None:
        """Which entries are wanted; None = all."""
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
    """Which entries are deletes."""
    return _as_mask(entries.column("delete"))


def times_of(entries: pa.RecordBatch) -> Times:
    """The timestamps."""
    times: Times = entries.column("timestamp").to_numpy()
    return times


@dataclass(frozen=True, slots=True)
class View:
    """What a reader sees of the entries of a range: the part that is the same for each page of a scan."""

    wanted: Wanted
    retention: Retention
    asked: Asked
    sight: Sight | None = None
    """None: whatever its label, everything is shown."""

    def mask(self, entries: pa.RecordBatch) -> Mask | None:
        """Entries of wanted cells that the reader may see; None = all."""
        wanted = self.wanted.mask(entries)
        seen = None if self.sight is None else self.sight.mask(entries)
        if wanted is None or seen is None:
            return seen if wanted is None else wanted
        return wanted & seen

    def selector(self, begun: Begun | None) -> Selector:
        """``begun``: what the page before saw of the cell that it ended in."""
        if self.asked.wants_newest_only(self.retention):
            return NewestSelector(self)
        return VersionsSelector(self, begun)


class Selector(Protocol):
    """Selects what is shown of one round after the other."""

    newest_only: bool

    def show(self, merged: Round) -> pa.RecordBatch:
        """The entries of a round that are shown, in order."""

    def behind(self, shown: pa.RecordBatch, count: int) -> Resume:
        """Behind the first ``count`` entries of what :meth:`show` gave last."""

    def end(self, merged: Round) -> Resume:
        """Behind the round that :meth:`show` got last."""


class NewestSelector:
    """One version of each cell at most: its first entry, unless it is a delete, which hides all that follow it."""

    newest_only = True

    def __init__(self, view: View) -> None:
        self._view = view

    def show(self, merged: Round) -> pa.RecordBatch:
        """See :class:`Selector`."""
        keep = merged.starts
        if merged.same.get("delete") is not False:
            keep = keep & ~merged.in_order(are_deletes(merged.entries))
        oldest_ms, asked = self._view.retention.oldest_ms, self._view.asked
        if oldest_ms is not None or asked.from_ms is not None or asked.to_ms is not None:
            times = merged.in_order(times_of(merged.entries))
            keep = keep & in_time(times, asked)
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
    """Several versions of a cell; remembers how many of the last cell it met, for the cell may go on."""

    newest_only = False

    def __init__(self, view: View, begun: Begun | None) -> None:
        self._view = view
        self._begun = begun
        self._index: Indices = np.empty(0, np.int64)
        self._running: Indices = np.empty(0, np.int64)
        self._is_over = False

    def show(self, merged: Round) -> pa.RecordBatch:
        """See :class:`Selector`."""
        view, begun = self._view, self._begun
        if begun is not None and begun.cell != merged.first:
            begun = None
        times = merged.in_order(times_of(merged.entries))
        stands = standing(merged.starts, merged.in_order(are_deletes(merged.entries)), begun)
        chosen = counting(stands, times, view.retention) & in_time(times, view.asked)
        running = running_count(chosen, stands.first, 0 if begun is None else begun.shown)
        most = view.retention.versions_max if view.asked.versions is None else view.asked.versions
        keep = chosen & (running <= most)
        mask = view.mask(merged.entries)
        if mask is not None:
            keep &= merged.in_order(mask)
        self._index, self._running = stands.index[keep], running[keep]
        self._begun = Begun(merged.last, int(stands.index[-1]) + 1, int(running[-1]), not stands.visible[-1])
        oldest = [time for time in (view.retention.oldest_ms, view.asked.from_ms) if time is not None]
        self._is_over = (
            self._begun.hidden
            or self._begun.counted >= view.retention.versions_max
            or self._begun.shown >= most
            or (bool(oldest) and int(times[-1]) < max(oldest))
        )
        return merged.select(keep)

    def behind(self, shown: pa.RecordBatch, count: int) -> Resume:
        """See :class:`Selector`."""
        place = count - 1
        timestamp, seq = (int(shown.column(name)[place].as_py()) for name in ("timestamp", "seq"))
        within = Within(timestamp, seq, int(self._index[place]) + 1, int(self._running[place]))
        return Resume(cell_at(shown, place), within)

    def end(self, merged: Round) -> Resume:
        """See :class:`Selector`."""
        begun = self._begun
        if begun is None or self._is_over:
            return Resume(merged.last)
        timestamp, seq = (-number for number in merged.end[4:])
        return Resume(merged.last, Within(timestamp, seq, begun.counted, begun.shown))


def _sizes(entries: pa.RecordBatch) -> Callable[[int], int]:
    """A function that tells the bytes of the first n records as a page counts them."""
    names = [field.name for field in MUTATION_SCHEMA if pa.types.is_binary(field.type)]
    offsets = [memoryview(binary_offsets(entries.column(name)).data) for name in names]
    begin = sum(column[0] for column in offsets)
    return lambda records: records * _FIXED_BYTES + sum(column[records] for column in offsets) - begin


def read_page(
    cursors: list[Cursor], view: View, page_bytes: int, settings: TabletSettings, begun: Begun | None = None
) -> ScanPage:
    """Fill one page. ``begun``: what was seen of the cell that the cursors stand in. Raises CorruptionError when a
    source does.
    """
    selector = view.selector(begun)
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
    """Move on when nothing more of the last cell will be shown."""
    if resume.within is None:
        for cursor in cursors:
            if not cursor.exhausted:
                cursor.seek(resume.position)


def _page(parts: list[pa.RecordBatch], token: bytes | None) -> ScanPage:
    if not parts:
        return ScanPage(pa.RecordBatch.from_pylist([], schema=MUTATION_SCHEMA), token)
    return ScanPage(to_records(parts[0] if len(parts) == 1 else pa.concat_batches(parts)), token)
