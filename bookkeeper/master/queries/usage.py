"""The disk usage of tables, from tablet rows in the books. Pure.

Segments in the tablets' flush state count; memtables and replaced segments do not. A segment that several tablets share
counts once and completely. The count of records includes older versions and deletes.
"""

from __future__ import annotations

from collections.abc import Iterable

from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Row
from bookkeeper.metadata.values import FlushState, SegmentEntry
from bookkeeper.rpc.contract.messages import TableUsage

FAMILIES = ("tablet", "segment")
"""The column families that :func:`usage_of` reads."""


def usage_of(table: str, rows: Iterable[Row]) -> TableUsage:
    """The usage of a table, from its rows. Raises CorruptionError."""
    tablets = 0
    segments: dict[str, SegmentEntry] = {}
    for row in rows:
        if not keys.is_tablet(row):
            continue
        tablets += 1
        flush = row.cells.get(keys.FLUSH)
        current = () if flush is None else FlushState.decode(flush.value).segments
        for name in current:
            cell = row.cells.get(keys.segment_column(name))
            if cell is not None:
                segments[name] = SegmentEntry.decode(cell.value)
    return TableUsage(
        table=table,
        tablets=tablets,
        segments=len(segments),
        records=sum(entry.records for entry in segments.values()),
        bytes=sum(entry.size_bytes for entry in segments.values()),
    )
