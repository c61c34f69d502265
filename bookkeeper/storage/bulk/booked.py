"""A segment as the books hold it, and as storage opens it. Pure."""

from __future__ import annotations

from bookkeeper.metadata.values import SegmentEntry
from bookkeeper.storage.tablet import SegmentRef


def segment_entry(ref: SegmentRef) -> SegmentEntry:
    """A segment as the books hold it."""
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


def segment_ref(uri: str, entry: SegmentEntry) -> SegmentRef:
    """A segment as storage opens it; inverse of :func:`segment_entry`."""
    return SegmentRef(
        uri=uri,
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
