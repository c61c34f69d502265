"""The collector compacts the books: what is hidden goes once no write below its tombstone can be in flight (R4)."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, RowPut
from tests.support.faults import fault
from tests.support.master_world import LATE_MS, Master, World

ROW = b"1<"
LOCATION = keys.LOCATION
RANK = 7


def delete_it(world: World) -> None:
    world.table.put([RowPut(ROW, {LOCATION: b"here"})], RANK)
    world.table.delete([CellKey(ROW, LOCATION)], RANK)


def hidden_count(world: World) -> int:
    with closing(sqlite3.connect(world.settings.directory / "metadata.db")) as raw:
        count: int = raw.execute("SELECT count(*) FROM cells WHERE rank <= tombstone").fetchone()[0]
    return count


def late_put(world: World, master: Master) -> None:
    """A put from before the delete arrives behind two runs of the collector."""
    master.collect()
    delete_it(world)
    master.collect()
    world.clock.jump(LATE_MS // 2)
    master.collect()
    world.table.put([RowPut(ROW, {LOCATION: b"late"})], RANK - 1)
    assert world.table.get(ROW, ("location",)) is None, "R4: a put that was in flight shows below a dropped tombstone"


def test_r4_a_tombstone_stays_for_longer_than_a_put_is_in_flight(world: World) -> None:
    late_put(world, world.master())


def test_r4_red_each_run_of_the_collector_compacts(world: World) -> None:
    with fault("books-are-compacted-at-once"), pytest.raises(AssertionError, match="R4: a put that was in flight"):
        late_put(world, world.master())


def test_hidden_cells_go_after_the_flight_of_a_put(world: World) -> None:
    master = world.master()
    delete_it(world)
    master.collect()
    assert hidden_count(world)
    world.clock.jump(LATE_MS)
    master.collect()
    assert hidden_count(world) == 0
