"""A master gives up the logs of a host that stays away, by the clock, and lets the tablets go on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from bookkeeper.coordination.config_changes import set_table_properties
from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.master.books.books_cycle import View
from bookkeeper.master.replicas.failover import LogFailover
from bookkeeper.metadata import keys
from bookkeeper.metadata.lost_logs import given_up
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import VOTER, Location, LogHome, ReplicaCell
from bookkeeper.model import HostIdentity
from tests.support.jumping_clock import TestClock
from tests.support.master_world import World

HOME = LogHome("host1", "d1")
LOG = "wal/s1/000001.wal"
ROW = keys.tablet_row("1", None)
DEAD = SessionInfo("s1", "tserver", "127.0.0.1:1", False, HostIdentity("host1", "d1"))
NEXT = SessionInfo("s2", "tserver", "127.0.0.1:2", True, HostIdentity("host2", "d2"))


class Given:
    """A tablet whose last holder, on host1, is over, and the failover of one reign."""

    def __init__(self, world: World) -> None:
        self.world, self.clock, self.master = world, TestClock(), world.master()
        world.create_table("1")
        set_table_properties(world.coordination, "1", {"table.replicas": "2", "table.failover": "60000"})
        cells = {keys.replica_column(host): ReplicaCell("p", "d", VOTER).encode() for host in ("host1", "host2")}
        cells |= {keys.SERIAL: keys.SERIAL_VALUE, keys.LOCATION: Location("s1", "127.0.0.1:1").encode()}
        world.table.put([RowPut(ROW, {**cells, keys.log_column(LOG): b"{}"})], 1)
        stores = self.master.books.stores
        self.failover = LogFailover(stores, self.clock, lambda: {"s1": HOME}, lambda _session, _row: False)

    def run(self, *sessions: SessionInfo, claimed: Collection[bytes] = ()) -> None:
        view: View = self.master.read_books()
        self.failover.run(view.snapshot.tablets, view.config, sessions, claimed)

    def given_up(self) -> set[str]:
        row = self.world.table.get(ROW)
        return set() if row is None else set(given_up(row))


@pytest.fixture
def given(tmp_path: Path) -> Iterator[Given]:
    world = World.at(tmp_path)
    yield Given(world)
    world.close()


def test_a_host_is_given_up_when_its_time_is_over_and_not_before(given: Given) -> None:
    given.run(DEAD, NEXT)
    given.clock.jump(30_000)
    given.run(DEAD, NEXT)
    assert given.given_up() == set()
    assert given.failover.released == frozenset()
    given.clock.jump(30_000)
    given.run(DEAD, NEXT)
    assert given.given_up() == {LOG}
    assert given.failover.released == {ROW}
    given.run(DEAD, NEXT)
    assert f"records after 0 of {LOG} are missing: host host1 is away" in given.failover.losses[ROW]


def test_a_host_that_was_back_meanwhile_has_its_time_again(given: Given) -> None:
    back = SessionInfo("s3", "tserver", "127.0.0.1:3", True, HostIdentity("host1", "d1"))
    given.run(DEAD, NEXT)
    given.clock.jump(30_000)
    given.run(DEAD, NEXT, back)
    given.clock.jump(30_000)
    given.run(DEAD, NEXT)
    assert given.given_up() == set(), "a host is given up although it was there"


def test_a_tablet_of_an_operation_stays_as_it_is(given: Given) -> None:
    given.run(DEAD, NEXT)
    given.clock.jump(60_000)
    given.run(DEAD, NEXT, claimed=[ROW])
    assert given.given_up() == set()


def test_another_disk_is_named_as_lost(given: Given) -> None:
    replaced = SessionInfo("s3", "tserver", "127.0.0.1:3", True, HostIdentity("host1", "d9"))
    given.run(DEAD, NEXT, replaced)
    given.clock.jump(60_000)
    given.run(DEAD, NEXT, replaced)
    given.run(DEAD, NEXT, replaced)
    assert "a disk of host host1 (d1) that was replaced" in given.failover.losses[ROW]
    assert "host forget host1" in given.failover.losses[ROW]
