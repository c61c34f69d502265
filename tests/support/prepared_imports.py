"""Imports that are under way, as the master has prepared them: files, their holds, an open stream, and a log for a
target.
"""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa

from bookkeeper.bulk.booked_segment import segment_entry
from bookkeeper.bulk.file_holds import put_holds
from bookkeeper.bulk.import_log import ImportLogs
from bookkeeper.bulk.segment_conversion import SegmentDirectory, convert
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import Received
from bookkeeper.model import BlockTarget, Extent, StreamKey, Target
from bookkeeper.rpc.contract.messages import AdoptRequest, ImportedSegment
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from bookkeeper.storage.volume.names import log_directory
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from tests.support.tservers import Ground
from tests.support.volumes import name_at

HOLD = keys.hold_column("0c")
"""Of each import, on its files."""


def prepared_import(west: Ground, extent: Extent, batch: pa.RecordBatch, target: Target | None = None) -> AdoptRequest:
    """The order to take the records of a batch; with their log for the table's target."""
    directory = west.settings.tables_dir / extent.table_id / f"import-{uuid4().hex}"
    directory.mkdir(parents=True)
    place = SegmentDirectory(west.volume, name_at(directory, west.settings.directory), TabletSettings())
    refs = convert([batch], [extent], GroupMap({}), place, lambda: None)
    own_id = west.settings.instance.instance_id
    stream = StreamKey(own_id, name_at(directory, west.settings.directory), extent.table_id, extent.table_id, 0)
    cell = keys.recv_cell(stream)
    west.metadata.put([RowPut(cell.key, {cell.column: Received(0).encode()})], keys.recv_rank(0, False))
    put_holds(west.metadata, HOLD, [ref.name for ref in refs])
    segments = tuple(ImportedSegment(ref.name, segment_entry(ref).encode()) for ref in refs)
    if target is None:
        return AdoptRequest(extent, stream, segments)
    header = FileHeader(instance_id=own_id, session_id="import", created_time_ms=9)
    logs = ImportLogs(
        west.volume,
        log_directory("import"),
        uuid4().hex,
        header,
        [extent],
        GroupMap({}),
        [BlockTarget(target.key, target.groups)],
        [target.peer_instance_id],
    )
    logs.add(batch)
    return AdoptRequest(extent, stream, segments, logs.finish()[extent])
