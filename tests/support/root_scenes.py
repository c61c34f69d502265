"""Books for operations about the end of streams and logs: rows of gone and received logs; see ``operation_scenes``."""

from __future__ import annotations

from bookkeeper.master.fate.engine import Args
from bookkeeper.master.operations.streams import forget_streams_args
from bookkeeper.master.origins.end_origins import forget_roots_args
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, RowPut
from bookkeeper.metadata.values import EMPTY, Received
from bookkeeper.model import StreamKey
from bookkeeper.origins import RootLog
from tests.support.master_world import World


def gone_log(world: World, file: str, peer_instance_id: str) -> Args:
    """A log of this cluster is gone that a peer got."""
    log = RootLog(world.settings.instance.instance_id, file)
    _put(world, keys.destination_cell(log, peer_instance_id, file))
    return forget_roots_args([log])


def log_of_another(world: World) -> Args:
    """Records of another cluster's log came here."""
    log = RootLog("source", "source/1")
    _put(world, CellKey(keys.root_row(log), keys.ROOT_HERE))
    return forget_roots_args([log])


def stream_of_another(world: World) -> Args:
    """Another cluster's log came here as a stream."""
    stream = StreamKey("source", "source/1", "1", "1", 1)
    cell = keys.recv_cell(stream)
    world.table.put([RowPut(cell.key, {cell.column: Received(9).encode()})], keys.recv_rank(9, False))
    return forget_streams_args([stream])


def _put(world: World, cell: CellKey) -> None:
    world.table.put([RowPut(cell.key, {cell.column: EMPTY})], world.clock.wall_ms())
