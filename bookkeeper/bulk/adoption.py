"""Links: the files of an import get a second name in the tablet's directory.

The names were never used before, and have the form of a compaction's names. So links of a crashed server are orphans
once another server has the tablet, and the import may delete its own names at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bookkeeper.storage.tablet import BlockCache, SegmentRef
from bookkeeper.storage.tablet.segments.segment_format import ENDING, merged_prefix
from bookkeeper.storage.tablet.segments.segment_reader import Segment
from bookkeeper.storage.tablet.segments.segment_writer import SegmentOps
from bookkeeper.storage.volume.file_ops import make_directory, path_of, sync_directory, uri_of


def incoming_dir(tables_dir: Path) -> Path:
    """The directory of uploads from other clusters, with a directory for each tserver's session. No table has its name,
    and it is on the filesystem of the tables, because tablets link its files.
    """
    return tables_dir / "_incoming"


def link_segments(
    refs: Sequence[SegmentRef], directory: Path, holder: int, unique_name: Callable[[], str], ops: SegmentOps
) -> list[SegmentRef]:
    """The same segments under new names in ``directory``, durable on return and checked. ``holder``: first flush id of
    the tablet's holder. Raises OSError, CorruptionError, and leaves no link then.
    """
    linked: list[SegmentRef] = []
    try:
        make_directory(directory, ops)
        for ref in refs:
            path = directory / f"{merged_prefix(holder)}-{unique_name()}{ENDING}"
            ops.link(path_of(ref.uri), path)
            linked.append(replace(ref, uri=uri_of(path)))
        sync_directory(directory, ops)
        for ref in linked:
            Segment(ref, BlockCache(0, readers=0)).check()
    except BaseException:
        for ref in linked:
            path_of(ref.uri).unlink(missing_ok=True)
        raise
    return linked
