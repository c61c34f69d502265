"""A segment in three forms: in the books, for storage, and as a tablet's reference to rows of it. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from bookkeeper.metadata.values import SegmentEntry
from bookkeeper.model import RowRange, join_ranges
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef

EVERYTHING = RowRange(None, None)

SEQ_MAX = 1 << 62
"""Highest sequence number of a file in a tablet: as many are left for records as all files can take."""


def segment_entry(ref: SegmentRef) -> SegmentEntry:
    """A segment as the books have it."""
    return SegmentEntry(
        group=ref.group,
        records=ref.records,
        size_bytes=ref.bytes,
        min_row=ref.min_row,
        max_row=ref.max_row,
        first_seq=ref.first_seq,
        last_seq=ref.last_seq,
        flush_id=ref.flush_id,
        ranges=ref.ranges,
        shift=ref.shift,
    )


def segment_ref(name: str, entry: SegmentEntry) -> SegmentRef:
    """A segment as storage opens it; inverse of :func:`segment_entry`."""
    return SegmentRef(
        name=name,
        group=entry.group,
        records=entry.records,
        bytes=entry.size_bytes,
        min_row=entry.min_row,
        max_row=entry.max_row,
        first_seq=entry.first_seq,
        last_seq=entry.last_seq,
        flush_id=entry.flush_id,
        ranges=entry.ranges,
        shift=entry.shift,
    )


def part_of_segment(entry: SegmentEntry, rows: RowRange) -> SegmentEntry | None:
    """A reference to those rows of a file that lie in ``rows``; None when it can't have any."""
    if not _reaches(entry, rows):
        return None
    if not entry.ranges and rows.contains(entry.min_row) and rows.contains(entry.max_row):
        return entry
    ranges = [part for counted in entry.ranges or (EVERYTHING,) if (part := counted.part_in(rows)) is not None]
    return replace(entry, ranges=join_ranges(ranges)) if ranges else None


def _reaches(entry: SegmentEntry, rows: RowRange) -> bool:
    too_low = rows.prev_row is not None and entry.max_row <= rows.prev_row
    too_high = rows.end_row is not None and entry.min_row > rows.end_row
    return not (too_low or too_high)
