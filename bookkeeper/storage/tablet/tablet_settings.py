"""What bounds a tablet's memory, its files and its pages.

Arrives: numbers from the site's settings. Leaves: frozen values handed to the rest of the room. Nothing here
survives a crash; files written under other settings stay readable. Defaults are
measured: ``tests/benchmarks/tablet.py``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Largest parts of one record that are accepted, in bytes, and most records of one batch; ``message_bytes_max``:
    what the compressed batches of one message take.
    """

    row_bytes_max: int = 64 * 1024
    column_bytes_max: int = 64 * 1024
    """Family, qualifier and visibility, each."""
    value_bytes_max: int = 8 * 1024 * 1024
    batch_records_max: int = 1 << 20
    message_bytes_max: int = 1 << 25
    future_ms: int = 0
    """How far a timestamp may lie ahead of the clock; 0 = any."""

    def latest_ms(self, now_ms: int) -> int | None:
        """The greatest timestamp that is taken at this time; None = any."""
        return now_ms + self.future_ms if self.future_ms else None


@dataclass(frozen=True, slots=True)
class TabletSettings:
    """Bounds of one tablet's data."""

    young_blocks_max: int = 64
    """Unsorted blocks kept before they are sorted into one run: more means slower scans, fewer means more sorting."""

    run_records_max: int = 1 << 18
    """A run of this many records is never merged with others in memory again."""

    run_bytes_max: int = 64 << 20
    """As ``run_records_max``, in bytes; also bounds what one sort copies."""

    small_runs_max: int = 8
    """Runs below the two bounds kept before they are merged into one."""

    row_group_records: int = 4096
    """Records of a Parquet row group: what one point read decodes."""

    row_group_bytes: int = 4 << 20
    """A row group ends earlier when its records hold this many bytes."""

    compression: str = "lz4"
    """Of segments: a codec of Parquet."""

    cache_bytes_max: int = 64 << 20
    """Decoded row groups kept by a tablet that was not handed a shared cache."""

    page_bytes_max: int = 16 << 20
    """Larger pages are cut to this, whatever a scan asks for."""

    page_examined_records_max: int = 1 << 18
    """Records looked at for one page; then it ends, perhaps empty, with a position to go on from."""
