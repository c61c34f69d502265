"""What a cluster says of logs of others over the wire, and what it forgets by time alone (rule R22).

When a log is over is decided in ``root_waves``; whole schedules are in ``tests/simulation/test_schedules_paths.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.errors import InvalidInputError, NotFoundError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.table import MetadataTable, RowPut
from bookkeeper.metadata.values import Received
from bookkeeper.model import StreamKey
from bookkeeper.roots import RootLog
from bookkeeper.rpc.client import RpcPool
from bookkeeper.rpc.messages import PROTOCOL_VERSION, Hello, RootStanding
from bookkeeper.security.access import peer_credentials
from bookkeeper.standalone.directory import init_cluster
from tests.support.faults import fault
from tests.support.master_world import UNHURRIED, World
from tests.support.masters import LocalMaster
from tests.support.tservers import wait_until

LOG = RootLog("north-instance", "file:///north/wal/t-1/000001.wal")
DAY_MS = 86_400_000


def announce(table: MetadataTable, log: RootLog, at_ms: int) -> None:
    """As a tserver does before it takes the first record."""
    table.put([RowPut(keys.root_row(log), {keys.ROOT_HERE: values.EMPTY})], at_ms)


def is_known(table: MetadataTable, log: RootLog) -> bool:
    """Whether the books speak of a log."""
    row = table.get(keys.root_row(log), ("recv",))
    return row is not None and bool(row.cells)


# ---- over the wire


@pytest.fixture
def east(tmp_path: Path) -> Iterator[LocalMaster]:
    """A cluster that others ask."""
    with LocalMaster(init_cluster(tmp_path / "east", "east", overrides=UNHURRIED)) as found:
        yield found


@pytest.fixture
def asking(east: LocalMaster) -> Iterator[RpcPool]:
    """Another cluster's master calls."""
    hello = Hello(PROTOCOL_VERSION, LOG.instance_id, "north", "master")
    pool = RpcPool(hello, east.settings.rpc, None, peer_credentials(east.settings))
    yield pool
    pool.close()


def test_r22_a_cluster_says_whom_it_handed_records_on_to_and_forgets_when_it_is_told(
    east: LocalMaster, asking: RpcPool
) -> None:
    table, calls = east.leadership.collector.table, asking.master(east.address)
    assert list(calls.root_standings([], [LOG])) == [RootStanding(False, (), "")]
    announce(table, LOG, SystemClock().wall_ms())
    cell = keys.handed_cell(LOG, "south-instance", "file:///east/wal/t-1/000001.wal")
    table.put([RowPut(cell.key, {cell.column: values.EMPTY})], 6)
    (said,) = calls.root_standings([], [LOG])
    assert (said.owed, said.handed, bool(said.mark)) == (False, ("south-instance",), True)
    calls.roots_over([], [LOG])
    calls.roots_over([], [LOG])
    wait_until(lambda: not is_known(table, LOG), "it is forgotten")


def test_r22_a_question_goes_no_way_that_is_not_defined(east: LocalMaster, asking: RpcPool) -> None:
    calls = asking.master(east.address)
    with pytest.raises(NotFoundError, match="south-instance is not defined"):
        calls.root_standings(["south-instance"], [LOG])
    with pytest.raises(InvalidInputError, match="too much for one call"):
        calls.root_standings(["south-instance"] * 17, [LOG])


def test_r22_a_question_goes_by_way_of_others(tmp_path: Path, east: LocalMaster) -> None:
    with LocalMaster(init_cluster(tmp_path / "west", "west", overrides=UNHURRIED)) as west:
        west.calls.define_cluster("east", east.address)
        table = east.leadership.collector.table
        announce(table, LOG, SystemClock().wall_ms())
        instance_id = east.settings.instance.instance_id
        (said,) = west.calls.root_standings([instance_id], [LOG])
        assert said == east.leadership.roots.standings([], [LOG])[0]
        assert said.mark, "it has a row there"
        west.calls.roots_over([instance_id], [LOG])
        wait_until(lambda: not is_known(table, LOG), "it is forgotten")


# ---- time


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A cluster."""
    made = World.at(tmp_path / "west")
    made.create_table("1")
    yield made
    made.close()


def test_r22_what_nobody_speaks_of_for_a_week_is_forgotten_and_it_is_said_out_loud(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    now_ms = world.clock.wall_ms()
    young = RootLog("north-instance", "file:///north/wal/t-1/000002.wal")
    announce(world.table, LOG, now_ms - 8 * DAY_MS)
    announce(world.table, young, now_ms - 6 * DAY_MS)
    master = world.master()
    with caplog.at_level(logging.WARNING):
        master.collect(1)
    master.run_fate()
    assert (is_known(world.table, LOG), is_known(world.table, young)) == (False, True)
    assert "tserver.paths_apart_ms" in caplog.text
    assert master.collector.roots.forgotten == 1


def check_a_clock_that_is_set_makes_nothing_old(world: World) -> None:
    """The law: a week is over when it has passed."""
    announce(world.table, LOG, world.clock.wall_ms() - 6 * DAY_MS)
    master = world.master()
    world.clock.set_by_ms = 8 * DAY_MS
    master.collect(1)
    master.run_fate()
    assert is_known(world.table, LOG)


def test_r22_a_wall_clock_that_is_set_ahead_forgets_nothing(world: World) -> None:
    check_a_clock_that_is_set_makes_nothing_old(world)


def test_r22_red_when_the_wall_clock_is_believed(world: World) -> None:
    with fault("the-wall-clock-is-believed"), pytest.raises(AssertionError):
        check_a_clock_that_is_set_makes_nothing_old(world)


def test_r22_while_the_logs_own_stream_is_open_its_cluster_will_say_when_it_is_over(world: World) -> None:
    announce(world.table, LOG, world.clock.wall_ms() - 8 * DAY_MS)
    stream = keys.recv_cell(StreamKey(LOG.instance_id, LOG.file, "1", "1", 1))
    world.table.put([RowPut(stream.key, {stream.column: Received(1).encode()})], keys.recv_rank(1, False))
    master = world.master()
    master.collect(1)
    master.run_fate()
    assert is_known(world.table, LOG)
