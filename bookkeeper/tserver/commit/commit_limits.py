"""Bounds of the group committer: values and sums only."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from bookkeeper.storage.wal.writing.block_merge import MergeLimits

_HEADERS_BYTES = 4_096
"""Headers of one submission, with room to spare."""


class CommitLimits(Struct, frozen=True):
    """Bounds of queue, group and file, in bytes of Arrow data unless said otherwise. ``ahead_bytes_min``: a group is
    written while an earlier one is synced if at least so much waits.
    """

    queue_bytes_max: int = 1 << 26
    queue_count_max: int = 8192
    group_bytes_max: int = 1 << 23
    group_count_max: int = 1024
    ahead_bytes_min: int = 1 << 20
    wal_roll_bytes: int = 1 << 28
    wal_roll_age_ms: int = 3_600_000
    wal_sync_interval_ms: int = 100
    merge: MergeLimits = field(default_factory=MergeLimits)


def disk_bytes(sizes: Iterable[int]) -> int:
    """Disk that submissions of these sizes (bytes of Arrow data) take at most: the data itself, its least and its
    greatest row in a header, and padding.
    """
    return sum(3 * size + _HEADERS_BYTES for size in sizes)
