"""An exported table, made without a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from bookkeeper.bulk.booked_segment import segment_entry
from bookkeeper.bulk.exported_table import Exported, ExportedTablet
from bookkeeper.bulk.log_segments import sha256_of
from bookkeeper.bulk.segment_conversion import SegmentDirectory, convert
from bookkeeper.model import Extent, LocalityGroup, RowRange
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from tests.support.tservers import records
from tests.support.volumes import MACHINE, name_at, path_of

GROUPS = (LocalityGroup("g", (b"f",)),)
PROPERTIES = {"table.versions.max": "3", "table.read_only": "true", "table.custom.key": "value"}
BATCH = records([(b"z", b"1"), (b"a", b"2"), (b"b", b"3")], timestamp=5)


def make_export(directory: Path, batch: pa.RecordBatch = BATCH, properties: Mapping[str, str] = PROPERTIES) -> Exported:
    """Two tablets, parted at m, each with one segment."""
    directory.mkdir(parents=True)
    extents = [Extent("1", b"m", None), Extent("1", None, b"m")]
    place = SegmentDirectory(MACHINE, name_at(directory), TabletSettings())
    refs = convert([batch], extents, GroupMap({"g": (b"f",)}), place, lambda: None)
    tablets = tuple(
        ExportedTablet(
            RowRange(extent.prev_row, extent.end_row),
            41,
            7,
            {path_of(ref.name).name: segment_entry(ref) for ref in refs if extent.contains(ref.min_row)},
        )
        for extent in extents
    )
    checksums = {path_of(ref.name).name: sha256_of(MACHINE, ref.name) for ref in refs}
    exported = Exported("cities", GROUPS, properties, tablets, checksums)
    exported.write(MACHINE, name_at(directory))
    return exported
