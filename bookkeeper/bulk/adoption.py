"""Links: the files of an import get a second name in the tablet's directory.

The names were never used before, and have the form of a compaction's names. So links of a crashed server are orphans
once another server has the tablet, and the import may delete its own names at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bookkeeper.storage.tablet import BlockCache, SegmentRef
from bookkeeper.storage.tablet.segments.segment_format import ENDING, merged_prefix
from bookkeeper.storage.tablet.segments.segment_reader import Segment
from bookkeeper.storage.volume import Volume

INCOMING = "tables/_incoming"
"""The directory of uploads from other clusters, with a directory for each tserver's session. No table has its name."""


def link_segments(
    volume: Volume, refs: Sequence[SegmentRef], directory: str, holder: int, unique_name: Callable[[], str]
) -> list[SegmentRef]:
    """The same segments under new names in ``directory``, durable on return and checked. ``holder``: first flush id of
    the tablet's holder. Raises OSError, CorruptionError, and leaves no link then.
    """
    linked: list[SegmentRef] = []
    try:
        named = {f"{directory}/{merged_prefix(holder)}-{unique_name()}{ENDING}": ref for ref in refs}
        for name, ref in named.items():
            linked.append(replace(ref, uri=name))
        volume.share({name: ref.uri for name, ref in named.items()})
        for ref in linked:
            Segment(volume, ref, BlockCache(0, readers=0)).check()
    except BaseException:
        volume.discard([ref.uri for ref in linked])
        raise
    return linked
