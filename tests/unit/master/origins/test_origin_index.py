"""Which logs of others a log may hand records of on (rule R22): read once, from its headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.master.origins.origin_index import OriginIndex, handed_on
from bookkeeper.model import Origin, StreamKey
from bookkeeper.origins import Root, RootLog, Runs, root_of
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.blocks.block_messages import origin_to_pb
from bookkeeper.storage.wal.blocks.block_origins import BlockOrigins, block_origins_to_pb
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from tests.support.volumes import MACHINE, name_at, path_of
from tests.support.wal_files import WEST, Spec, block, damage

STREAM = StreamKey("south", "south/1.wal", "1", "t1", 1)
NORTH = RootLog("north", "north/1.wal")


def received(first: int, *, told: bool = True, stamped: bool = True) -> Block:
    """A block of one record that came from south and was written in north."""
    made = block(Spec([b"r"]), first)
    made.header.origin.CopyFrom(origin_to_pb(Origin(STREAM, 0, 1)))
    if told:
        root = Root(NORTH.instance_id, NORTH.file, "1")
        made.header.block_origins.CopyFrom(
            block_origins_to_pb(BlockOrigins(((root, Runs.of((1, 1))),), ()), root_of(STREAM))
        )
    if not stamped:
        del made.header.block_targets[:]
    return made


@pytest.mark.parametrize(
    ("told", "stamped", "found"),
    [(True, True, {NORTH}), (False, True, {root_of(STREAM).log}), (True, False, set())],
    ids=["where it was written", "an older version does not say it", "nobody gets it"],
)
def test_r22_the_root_logs_that_a_block_forwards(told: bool, stamped: bool, found: set[RootLog]) -> None:
    assert handed_on(received(1, told=told, stamped=stamped).header) == found
    assert handed_on(block(Spec([b"own"]), 1).header) == frozenset()


def test_r22_a_log_that_is_written_is_read_on_and_a_damaged_one_may_hold_anything(tmp_path: Path) -> None:
    writer = WalWriter.create(
        MACHINE, name_at(tmp_path / "1.wal"), FileHeader(instance_id=WEST, session_id="s", created_time_ms=1)
    )
    origin_index, name = OriginIndex(MACHINE), writer.name
    assert origin_index.of([name]) == {name: frozenset()}
    writer.append([block(Spec([b"own"]), 1)])
    writer.sync()
    assert origin_index.of([name]) == {name: frozenset()}
    writer.append([received(2)])
    writer.sync()
    assert origin_index.of([name]) == {name: frozenset({NORTH})}
    writer.seal()
    assert origin_index.of([name]) == {name: frozenset({NORTH})}
    damage(name, 1, header=True)
    assert origin_index.of([name]) == {name: frozenset({NORTH})}, "a sealed log is read once"
    assert OriginIndex(MACHINE).of([name]) == {name: None}
    path_of(name).unlink()
    origin_index.retain([])
    assert origin_index.of([name]) == {name: frozenset()}
