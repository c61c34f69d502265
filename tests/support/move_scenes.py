"""A move of replicas for the kill matrix: the scene plays the tserver that rewrites a tablet, and the repair."""

from __future__ import annotations

from msgspec.structs import replace

from bookkeeper.master.fate.engine import Args
from bookkeeper.master.operations.hosts.replica_moves import move_args
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, RowPut
from bookkeeper.metadata.values import VOTER, ReplicaCell
from bookkeeper.model import RowRange
from tests.support.border_world import held_row, hold, segment
from tests.support.operation_scenes import NAME, Scene

HALF = replace(segment(b"a", b"t"), ranges=(RowRange(None, b"m"),))


def row_of(scene: Scene) -> bytes:
    """The row of the tablet that moves."""
    return keys.tablet_row(scene.world.config().table_named(NAME).table_id, b"m")


def prepare(scene: Scene) -> Args:
    """The tablet up to m shares a file with the next one, and lies on h1; it is to move to h2."""
    table_id = scene.create_table(b"m")
    scene.tserver = scene.start_host("h1")
    scene.start_host("h2")
    row = keys.tablet_row(table_id, b"m")
    hold(scene.world.table, held_row(row, {"s/1": HALF}, 1, (scene.file, 1)))
    cell = ReplicaCell("p-h1", "disk-h1", VOTER).encode()
    scene.world.table.put([RowPut(row, {keys.replica_column("h1"): cell})], 1)
    scene.world.locate(row, scene.tserver.session)
    return move_args(NAME, [b"m"], ["h2"])


def finish(scene: Scene) -> None:
    """Go on until the move has ended."""
    while pending := [running for running in scene.master.fate.pending() if not running.ended]:
        if pending[0].step == "rewrite" and scene.hosts[0].compactions:
            put = held_row(row_of(scene), {"s/2": segment(b"a", b"m")}, 1, (scene.file, 1), serial=2)
            hold(scene.world.table, put, serial=2)
        if pending[0].step == "settle":
            settle(scene)
        scene.wait()
        scene.master.fate.step_once()


def settle(scene: Scene) -> None:
    """The repair has done its part."""
    row, cell = row_of(scene), ReplicaCell("p-h2", "disk-h2", VOTER).encode()
    scene.world.table.put([RowPut(row, {keys.replica_column("h2"): cell})], 2)
    scene.world.table.delete([CellKey(row, keys.replica_column("h1"))], 2)
