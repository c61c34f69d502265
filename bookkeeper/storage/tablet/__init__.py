"""A tablet's data: memtable, segments, scans and flushes.

Arrives: committed record batches, numbered; references to segments from the books. Leaves: pages of a scan, and new
segments, of flushes and compactions. Read in the order of the data: ``routing`` (the door), ``memtable``, ``flush`` and
``segment_writer``, then ``segment_reader``, ``merge``, ``cells``, ``visibility``, ``scan``, ``compaction``; ``entries``
and ``order`` say what comes before what; ``data`` ties it all.
"""

from bookkeeper.storage.tablet.cache import BlockCache
from bookkeeper.storage.tablet.cells import Asked
from bookkeeper.storage.tablet.compaction import INPUTS_MAX, Merge, due_merges, smallest
from bookkeeper.storage.tablet.data import TabletData
from bookkeeper.storage.tablet.groups import GroupMap, mask_for_groups
from bookkeeper.storage.tablet.memtable import FrozenMemtable
from bookkeeper.storage.tablet.routing import (
    check_limits,
    check_times,
    places_in_tablets,
    split_by_tablets,
    take_sorted,
    validate_batch,
)
from bookkeeper.storage.tablet.scan import ScanPage
from bookkeeper.storage.tablet.segment_format import NewSegment, SegmentRef, parse_name, unique_part
from bookkeeper.storage.tablet.segment_writer import leftovers
from bookkeeper.storage.tablet.settings import BatchLimits, TabletSettings
from bookkeeper.storage.tablet.visibility import Sight, check_label, check_labels, sight_of

__all__ = [
    "INPUTS_MAX",
    "Asked",
    "BatchLimits",
    "BlockCache",
    "FrozenMemtable",
    "GroupMap",
    "Merge",
    "NewSegment",
    "ScanPage",
    "SegmentRef",
    "Sight",
    "TabletData",
    "TabletSettings",
    "check_label",
    "check_labels",
    "check_limits",
    "check_times",
    "due_merges",
    "leftovers",
    "mask_for_groups",
    "parse_name",
    "places_in_tablets",
    "sight_of",
    "smallest",
    "split_by_tablets",
    "take_sorted",
    "unique_part",
    "validate_batch",
]
