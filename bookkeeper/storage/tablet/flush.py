"""Write sorted sources as segments, one for each locality group: a flush retains all entries, a compaction some.

The segments are published together, or none is. Memory is bounded by the windows of the merge and one row group for
each locality group. A crash may leave files that the books do not name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bookkeeper.storage.tablet.segments.locality_groups import GroupMap, mask_for_groups
from bookkeeper.storage.tablet.segments.segment_format import NewSegment
from bookkeeper.storage.tablet.segments.segment_writer import SegmentOps, SegmentWriter, publish
from bookkeeper.storage.tablet.sorting.merge import Cursor, Round, merge_round
from bookkeeper.storage.tablet.sorting.order import Mask
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from bookkeeper.storage.volume.file_ops import make_directory

ROUND_RECORDS = 1 << 15
ROUND_BYTES = 32 << 20


def split_by_group(batch: pa.RecordBatch, groups: GroupMap) -> dict[str, pa.RecordBatch]:
    """The records of each locality group present, in their order; no copy when there is one."""
    present = groups.groups_present(batch)
    if len(present) == 1:
        return {next(iter(present)): batch}
    return {name: batch.filter(mask_for_groups(batch, families)) for name, families in present.items()}


@dataclass(frozen=True, slots=True)
class SegmentOutput:
    """The destination of new segments. ``new_path`` returns a new final name in the tablet's directory each time."""

    groups: GroupMap
    new_path: Callable[[], Path]
    flush_id: int
    settings: TabletSettings
    ops: SegmentOps


def keep_all(merged: Round) -> Mask | None:
    """Retain all entries, as a flush does."""
    del merged
    return None


def write_groups(
    cursors: list[Cursor], target: SegmentOutput, keep: Callable[[Round], Mask | None] = keep_all
) -> list[NewSegment]:
    """Merge the cursors, write the retained entries of each round into one segment for each group, and publish the
    segments together. Raises OSError, and the errors of ``keep``; then the written files are removed.
    """
    writers: dict[str, SegmentWriter] = {}
    ops = target.ops
    try:
        while merged := merge_round(cursors, ROUND_RECORDS, ROUND_BYTES, newest_only=False):
            kept = merged.select(keep(merged))
            if not kept.num_rows:
                continue
            for name, part in split_by_group(kept, target.groups).items():
                if name not in writers:
                    path = target.new_path()
                    make_directory(path.parent, ops)
                    writers[name] = SegmentWriter(path, name, target.settings, ops)
                writers[name].add(part)
        written = [writer.finish(target.flush_id) for _, writer in sorted(writers.items())]
        publish(list(writers.values()), ops)
    except BaseException:
        for writer in writers.values():
            writer.discard()
        raise
    return written
