"""From memory to disk: all versions of everything, in order, one segment for each locality group.

Arrives: sorted sources. Leaves: published segments, or none and an exception. Memory is bounded by the windows of the
merge and one row group for each locality group. A crash anywhere leaves files that no books name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from bookkeeper.storage.tablet.groups import GroupMap, mask_for_groups
from bookkeeper.storage.tablet.merge import Cursor, Source, merge_round
from bookkeeper.storage.tablet.segment_format import NewSegment
from bookkeeper.storage.tablet.segment_writer import SegmentOps, SegmentWriter, publish
from bookkeeper.storage.tablet.settings import TabletSettings
from bookkeeper.storage.wal.files import make_directory

ROUND_RECORDS = 1 << 15
ROUND_BYTES = 32 << 20


def split_by_group(batch: pa.RecordBatch, groups: GroupMap) -> dict[str, pa.RecordBatch]:
    """The records of each locality group present, in their order; no copy when there is one."""
    present = groups.groups_present(batch)
    if len(present) == 1:
        return {next(iter(present)): batch}
    return {name: batch.filter(mask_for_groups(batch, families)) for name, families in present.items()}


def write_groups(
    sources: Sequence[Source],
    groups: GroupMap,
    new_path: Callable[[], Path],
    flush_id: int,
    settings: TabletSettings,
    ops: SegmentOps,
) -> list[NewSegment]:
    """Merge the sources into one segment a group and publish them together. ``new_path`` gives a fresh final name in
    the tablet's directory each time. Raises OSError; whatever was written is removed then.
    """
    writers: dict[str, SegmentWriter] = {}
    try:
        cursors = [Cursor(source, (), None) for source in sources]
        while merged := merge_round(cursors, ROUND_RECORDS, ROUND_BYTES, newest_only=False):
            for name, part in split_by_group(merged.select(None), groups).items():
                if name not in writers:
                    path = new_path()
                    make_directory(path.parent, ops)
                    writers[name] = SegmentWriter(path, name, settings, ops)
                writers[name].add(part)
        written = [writer.finish(flush_id) for _, writer in sorted(writers.items())]
        publish(list(writers.values()), ops)
    except BaseException:
        for writer in writers.values():
            writer.discard()
        raise
    return written
