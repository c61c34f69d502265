"""Write sorted sources as segments, one for each locality group: a flush retains all entries, a compaction some.

The segments are published together, or none is. Memory is bounded by the windows of the merge and one row group for
each locality group. A crash may leave files that the books do not name.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from msgspec import Struct

from bookkeeper.storage.tablet.segments.locality_groups import GroupMap, mask_for_groups
from bookkeeper.storage.tablet.segments.segment_format import NewSegment
from bookkeeper.storage.tablet.segments.segment_writer import SegmentWriter
from bookkeeper.storage.tablet.sorting.merge import Cursor, Round, merge_round
from bookkeeper.storage.tablet.sorting.order import Mask
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from bookkeeper.storage.volume.volume_protocol import Volume

ROUND_RECORDS = 1 << 15
ROUND_BYTES = 32 << 20


def split_by_group(batch: pa.RecordBatch, groups: GroupMap) -> dict[str, pa.RecordBatch]:
    """The records of each locality group present, in their order; no copy when there is one."""
    present = groups.groups_present(batch)
    if len(present) == 1:
        return {next(iter(present)): batch}
    return {name: batch.filter(mask_for_groups(batch, families)) for name, families in present.items()}


class SegmentOutput(Struct, frozen=True):
    """The destination of new segments. ``new_name`` returns a new final name in the tablet's directory each time."""

    groups: GroupMap
    volume: Volume
    new_name: Callable[[], str]
    flush_id: int
    settings: TabletSettings


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
    try:
        while merged := merge_round(cursors, ROUND_RECORDS, ROUND_BYTES, newest_only=False):
            kept = merged.select(keep(merged))
            if not kept.num_rows:
                continue
            for name, part in split_by_group(kept, target.groups).items():
                if name not in writers:
                    writers[name] = SegmentWriter(target.volume, target.new_name(), name, target.settings)
                writers[name].add(part)
        written = [writer.finish(target.flush_id) for _, writer in sorted(writers.items())]
        target.volume.publish([writer.name for writer in writers.values()])
    except BaseException:
        for writer in writers.values():
            writer.discard()
        raise
    return written
