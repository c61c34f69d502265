"""A tablet's data: memtable, segments, scans, flushes and compactions.

In the order of the data: ``batch_routing`` checks a batch and divides it by tablets, ``memtable`` keeps committed
entries, ``flush`` writes them as a segment, ``compaction`` chooses segments to merge; ``tablet_data`` ties them
together. Rooms below: ``sorting`` (order of entries), ``segments`` (files), ``scans`` (pages).
"""

from bookkeeper.storage.tablet.batch_routing import (
    check_batch,
    check_times,
    indices_by_tablet,
    split_by_tablets,
    take_sorted,
    validate_batch,
)
from bookkeeper.storage.tablet.compaction import INPUTS_MAX, Merge, due_merges, smallest
from bookkeeper.storage.tablet.memtable import FrozenMemtable
from bookkeeper.storage.tablet.scans.cell_versions import VersionFilter
from bookkeeper.storage.tablet.scans.scan import ScanPage
from bookkeeper.storage.tablet.scans.visibility import Authorizations, authorizations_of, check_label, check_labels
from bookkeeper.storage.tablet.segments.block_cache import BlockCache
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap, mask_for_groups
from bookkeeper.storage.tablet.segments.segment_format import NewSegment, SegmentRef, parse_name
from bookkeeper.storage.tablet.segments.segment_writer import leftovers
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.tablet.tablet_resources import TabletResources
from bookkeeper.storage.tablet.tablet_settings import BatchLimits, TabletSettings

__all__ = [
    "INPUTS_MAX",
    "Authorizations",
    "BatchLimits",
    "BlockCache",
    "FrozenMemtable",
    "GroupMap",
    "Merge",
    "NewSegment",
    "ScanPage",
    "SegmentRef",
    "TabletData",
    "TabletResources",
    "TabletSettings",
    "VersionFilter",
    "authorizations_of",
    "check_batch",
    "check_label",
    "check_labels",
    "check_times",
    "due_merges",
    "indices_by_tablet",
    "leftovers",
    "mask_for_groups",
    "parse_name",
    "smallest",
    "split_by_tablets",
    "take_sorted",
    "validate_batch",
]
