"""Bounds of a tablet's memory, files and pages, and of the batches that it takes.

Files that were written under other settings stay readable. The defaults are measured (``tests/benchmarks/tablet.py``).
"""

from __future__ import annotations

from msgspec import Struct


class BatchLimits(Struct, frozen=True):
    """Largest parts of a record, in bytes, and most records of a batch. ``message_bytes_max``: most bytes of all
    compressed batches of one message, decompressed.
    """

    row_bytes_max: int = 64 * 1024
    column_bytes_max: int = 64 * 1024
    """Family, qualifier and visibility, each."""
    value_bytes_max: int = 8 * 1024 * 1024
    batch_records_max: int = 1 << 20
    message_bytes_max: int = 1 << 25
    future_ms: int = 0
    """ms by which a timestamp may be ahead of the clock; 0 = any."""

    def latest_ms(self, now_ms: int) -> int | None:
        """The greatest timestamp that is accepted at this time; None = any."""
        return now_ms + self.future_ms if self.future_ms else None


class TabletSettings(Struct, frozen=True):
    """Bounds of one tablet's data."""

    young_blocks_max: int = 64
    """Unsorted blocks that become one sorted run: more make scans slower, fewer cost more sorting."""

    run_records_max: int = 1 << 18
    """A run of this many records is never merged with others in memory again."""

    run_bytes_max: int = 64 << 20
    """As ``run_records_max``, in bytes; also bounds what one sort copies."""

    small_runs_max: int = 8
    """Runs below the two bounds that are merged into one."""

    row_group_records: int = 4096
    """Records of a Parquet row group: what one point read decodes."""

    row_group_bytes: int = 4 << 20
    """A row group ends earlier when its records hold this many bytes."""

    compression: str = "lz4"
    """The codec of segments, one of Parquet's."""

    cache_bytes_max: int = 64 << 20
    """Bytes of decoded row groups in the cache of a tablet that has one of its own."""

    page_bytes_max: int = 16 << 20
    """Most bytes of a page; a scan's larger request is cut to it."""

    page_examined_records_max: int = 1 << 18
    """Most records that a page examines; then it ends, perhaps empty, with the position of the next page."""
