"""What tables hold on disk, from the books.

Arrives: tablet rows. Leaves: tablets, segments, records and bytes of a table. Pure. Counted is what counts: not what is
in memory, nor files that were replaced and not deleted yet. A file that several tablets share is counted once, whole,
also where each has a name of its own for it (those end alike); records are those of the files, older versions and
deletes included.
"""

from __future__ import annotations

from collections.abc import Iterable

from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Row
from bookkeeper.metadata.values import FlushState, SegmentEntry
from bookkeeper.rpc.contract.messages import TableUsage
from bookkeeper.storage.tablet import unique_part

FAMILIES = ("tablet", "segment")
"""What :func:`usage_of` reads of tablet rows."""


def usage_of(table: str, rows: Iterable[Row]) -> TableUsage:
    """The usage of a table, from its rows. Raises CorruptionError."""
    tablets = 0
    segments: dict[str, SegmentEntry] = {}
    for row in rows:
        if not keys.is_tablet(row):
            continue
        tablets += 1
        flush = row.cells.get(keys.FLUSH)
        named = () if flush is None else FlushState.decode(flush.value).segments
        for uri in named:
            cell = row.cells.get(keys.segment_column(uri))
            if cell is not None:
                segments[unique_part(uri)] = SegmentEntry.decode(cell.value)
    return TableUsage(
        table=table,
        tablets=tablets,
        segments=len(segments),
        records=sum(entry.records for entry in segments.values()),
        bytes=sum(entry.size_bytes for entry in segments.values()),
    )
