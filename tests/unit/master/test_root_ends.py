"""A cluster's answers about logs of others over the wire, and its forgetting by time alone (rule R22).

``origin_termination`` decides when a log is over; whole schedules are in
``tests/simulation/test_schedules_paths.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.coordination.masters import MasterFinder
from bookkeeper.errors import InvalidInputError, NotFoundError, UnauthorizedError
from bookkeeper.master.calls.peer_masters import PeerMasters
from bookkeeper.master.operations.streams import forget_streams_args
from bookkeeper.master.origins.end_origins import forget_roots_args
from bookkeeper.master.origins.origin_books import cells_to_purge
from bookkeeper.master.origins.origin_service import OriginService
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import MetadataTable, RowPut
from bookkeeper.metadata.values import Received
from bookkeeper.model import StreamKey, TargetKey
from bookkeeper.origins import RootLog, root_of
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, HandedOn, Hello, RootQuestion, RootStanding
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.security.access import peer_credentials
from bookkeeper.security.file_roots import FileRoots
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.tserver.origins.origin_marks import marks_of
from combiners import ReplicationStatus
from tests.support.faults import fault
from tests.support.master_world import LATE_MS, UNHURRIED, Master, World
from tests.support.masters import LocalMaster
from tests.support.must_raise import must_raise
from tests.support.tservers import wait_until

LOG = RootLog("north-instance", "north/wal/t-1/000001.wal")
ASKED = RootQuestion(LOG)
HANDED = HandedOn("south-instance", "east/wal/t-1/000001.wal")
DAY_MS = 86_400_000


def announce(table: MetadataTable, log: RootLog, at_ms: int) -> None:
    """As a tserver does before it takes the first record."""
    table.put([RowPut(keys.root_row(log), {keys.ROOT_HERE: values.EMPTY})], at_ms)


def hand_on(table: MetadataTable, log: RootLog) -> None:
    """As the collector does before it deletes a log that brought south some of it."""
    cell = keys.destination_cell(log, HANDED.instance_id, HANDED.file)
    table.put([RowPut(cell.key, {cell.column: values.EMPTY})], 6)


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


def test_r22_a_cluster_names_recipients_of_records_and_ends_a_log_on_a_message(
    east: LocalMaster, asking: RpcPool
) -> None:
    table, calls = east.leadership.gc.runner.stores.table, asking.master(east.address)
    assert list(calls.root_standings([], [ASKED])) == [RootStanding(False, False, ())]
    announce(table, LOG, SystemClock().wall_ms())
    hand_on(table, LOG)
    (said,) = calls.root_standings([], [ASKED])
    assert said == RootStanding(False, False, (HANDED,))
    calls.roots_over([], [LOG])
    calls.roots_over([], [LOG])
    wait_until(lambda: not is_known(table, LOG), "it is forgotten")


def check_a_late_put_of_a_stream_from_the_writer_stays_hidden(table: MetadataTable) -> None:
    """R4, R22: the put of a tserver is on its way when the log is over, and neither of its cells was there before."""
    table.purge(cells_to_purge(LOG, None))
    table.put([RowPut(keys.root_row(LOG), marks_of(LOG.instance_id))], SystemClock().wall_ms())
    assert not is_known(table, LOG), "R22: a log that is over is remembered for tserver.paths_apart_ms"


def test_r22_a_late_put_about_a_log_that_is_over_stays_hidden(east: LocalMaster) -> None:
    check_a_late_put_of_a_stream_from_the_writer_stays_hidden(east.leadership.gc.runner.stores.table)


def test_r22_if_a_purge_did_not_name_the_writer_a_late_put_would_stay(east: LocalMaster) -> None:
    with (
        fault("purges-of-roots-name-no-writer"),
        pytest.raises(AssertionError, match="R22: a log that is over is remembered"),
    ):
        check_a_late_put_of_a_stream_from_the_writer_stays_hidden(east.leadership.gc.runner.stores.table)


def check_only_those_who_brought_it_end_a_log(east: LocalMaster) -> None:
    """The law: neither a cluster that has nothing to do with a log, nor one that brought another log, speaks of it."""
    table = east.leadership.gc.runner.stores.table
    own, relayed = RootLog(east.settings.instance.instance_id, "own"), RootLog("north-instance", "n/2")
    for log, senders in ((LOG, ("west-instance",)), (relayed, ("west-instance", "south-instance"))):
        for sender in senders:
            table.put([RowPut(keys.root_row(log), marks_of(sender))], SystemClock().wall_ms())
    hand_on(table, own)
    hello = Hello(PROTOCOL_VERSION, "south-instance", "south", "master")
    pool = RpcPool(hello, east.settings.rpc, None, peer_credentials(east.settings))
    try:
        calls = pool.master(east.address)
        said = calls.root_standings([], [RootQuestion(log) for log in (own, LOG, relayed)])
        assert [found.refused for found in said] == [True, True, None], "R22: a stranger to a log may speak of it"
        assert [found.handed for found in said] == [(), (), ()]
        for route in ([], ["somewhere"]):
            for log in (own, LOG):
                with must_raise(
                    UnauthorizedError, "R22: an unrelated cluster ends a log", match="instance south-instance can't end"
                ):
                    calls.roots_over(route, [log])
        with pytest.raises(UnauthorizedError):
            calls.roots_over([], [LOG, relayed])
        wait_until(lambda: not is_known(table, relayed), "south has brought it, and may say so")
        calls.roots_over([], [RootLog("north-instance", "n/3")])
        announce(table, RootLog("north-instance", "n/3"), SystemClock().wall_ms())
        east.leadership.gc.runner.origin_gc.read_rows()
        assert is_known(table, RootLog("north-instance", "n/3")), "records that are not here yet can't be ended"
        assert is_known(table, LOG)
        assert is_known(table, own)
        for sender in ("south-instance", LOG.instance_id):
            table.put([RowPut(keys.root_row(LOG), marks_of(sender))], SystemClock().wall_ms())
        assert not calls.root_standings([], [ASKED])[0].refused
        with must_raise(
            UnauthorizedError,
            "R22: a relay ends a log whose writer is a peer",
            match="north-instance sends here and ends it itself",
        ):
            calls.roots_over([], [LOG])
    finally:
        pool.close()


def test_r22_only_the_writer_or_a_sender_of_a_log_ends_it(east: LocalMaster) -> None:
    check_only_those_who_brought_it_end_a_log(east)


@pytest.mark.parametrize(
    ("switch", "says"),
    [
        ("any-cluster-ends-a-log", "a stranger to a log may speak of it"),
        ("relays-end-any-log", "a relay ends a log whose writer is a peer"),
    ],
)
def test_r22_red_when_others_end_a_log(east: LocalMaster, switch: str, says: str) -> None:
    with fault(switch), pytest.raises(AssertionError, match=says):
        check_only_those_who_brought_it_end_a_log(east)


def test_r22_a_question_goes_no_way_that_is_not_defined(east: LocalMaster, asking: RpcPool) -> None:
    calls = asking.master(east.address)
    with pytest.raises(NotFoundError, match="south-instance is not defined"):
        calls.root_standings(["south-instance"], [ASKED])
    with pytest.raises(InvalidInputError, match="divide the logs"):
        calls.root_standings(["south-instance"] * 17, [ASKED])


def test_r22_a_question_goes_by_way_of_others(tmp_path: Path, east: LocalMaster) -> None:
    with LocalMaster(init_cluster(tmp_path / "west", "west", overrides=UNHURRIED)) as west:
        west.calls.define_cluster("east", east.address)
        table = east.leadership.gc.runner.stores.table
        brought = marks_of(west.settings.instance.instance_id)
        table.put([RowPut(keys.root_row(LOG), brought)], SystemClock().wall_ms())
        hand_on(table, LOG)
        instance_id = east.settings.instance.instance_id
        (said,) = west.calls.root_standings([instance_id], [ASKED])
        assert said == east.leadership.origins.service.standings([], [ASKED])[0]
        assert said.handed == (HANDED,)
        west.calls.roots_over([instance_id], [LOG])
        wait_until(lambda: not is_known(table, LOG), "it is forgotten")


# ---- streams that are not over


STREAM = StreamKey("south-instance", "south/wal/t-1/000001.wal", "5", "1", 1)
ABOUT_STREAM = RootQuestion(LOG, (root_of(STREAM).log,))


def origin_service_of(world: World, master: Master) -> OriginService:
    """The origin service, without a network."""
    peers = PeerMasters(world.pool, world.settings.instance.instance_id, FileRoots(), MasterFinder(world.clock))
    memory = master.collector.origin_gc.memory
    return OriginService(master.books.stores, world.clock, master.tservers, peers, master.fate, memory)


def is_under_way(world: World, master: Master, question: RootQuestion) -> bool:
    """Whether the cluster calls the question's log under way."""
    (said,) = origin_service_of(world, master).standings([], [question])
    assert not said.owed
    return said.under_way


def test_r22_records_are_under_way_until_the_stream_that_brings_them_is_over_at_every_tserver(world: World) -> None:
    master = world.master()
    assert not is_under_way(world, master, ABOUT_STREAM)
    cell = keys.recv_cell(STREAM)
    world.table.put([RowPut(cell.key, {cell.column: Received(1).encode()})], keys.recv_rank(1, False))
    assert is_under_way(world, master, ABOUT_STREAM), "a message may come"
    master.fate.submit("forget_streams", forget_streams_args([STREAM]))
    world.table.purge([cell])
    assert is_under_way(world, master, ABOUT_STREAM), "a tserver may be in the middle of one"
    world.clock.jump(LATE_MS)
    master.run_fate()
    assert not is_under_way(world, master, ABOUT_STREAM)
    assert not is_under_way(world, master, ASKED)


def test_r22_records_are_under_way_until_the_peer_learns_that_the_stream_is_over(world: World) -> None:
    announce(world.table, LOG, world.clock.wall_ms())
    hand_on(world.table, LOG)
    master = world.master()
    assert not is_under_way(world, master, ASKED)
    done = keys.done_column(TargetKey("south", "1", "1", 1))
    world.table.put([RowPut(keys.repl_row(HANDED.file), {done: values.encode_status(ReplicationStatus())})], 1)
    assert is_under_way(world, master, ASKED), "a sender that was stopped may still begin it"


def test_r22_one_call_is_about_a_bounded_number_of_streams(world: World) -> None:
    streams = tuple(RootLog("south-instance", str(number)) for number in range(1_001))
    with pytest.raises(InvalidInputError, match="streams at most"):
        origin_service_of(world, world.master()).standings([], [RootQuestion(LOG, streams)])


def test_r22_a_log_that_is_over_can_not_be_announced_again(world: World) -> None:
    master = world.master()
    master.fate.submit("forget_roots", forget_roots_args([LOG]))
    master.run_fate()
    announce(world.table, LOG, world.clock.wall_ms())
    assert not is_known(world.table, LOG), "by a process that was stopped, though nobody had announced it before"


# ---- time


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A cluster."""
    made = World.at(tmp_path / "west")
    made.create_table("1")
    yield made
    made.close()


def test_r22_a_log_without_news_for_a_week_is_dropped_with_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    now_ms = world.clock.wall_ms()
    young = RootLog("north-instance", "north/wal/t-1/000002.wal")
    announce(world.table, LOG, now_ms - 8 * DAY_MS)
    announce(world.table, young, now_ms - 6 * DAY_MS)
    master = world.master()
    with caplog.at_level(logging.WARNING):
        master.collect(1)
    master.run_fate()
    assert (is_known(world.table, LOG), is_known(world.table, young)) == (False, True)
    assert "tserver.paths_apart_ms" in caplog.text
    assert master.collector.origin_gc.forgotten == 1
    announce(world.table, LOG, now_ms)
    assert is_known(world.table, LOG), "a path that is slower than that may still bring it"


def check_a_clock_that_is_set_makes_nothing_old(world: World) -> None:
    """The law: a week is over when it has passed."""
    announce(world.table, LOG, world.clock.wall_ms() - 6 * DAY_MS)
    master = world.master()
    world.clock.set_by_ms = 8 * DAY_MS
    master.collect(1)
    master.run_fate()
    assert is_known(world.table, LOG), "R22: a wall clock that is set ahead makes a path be forgotten"


def test_r22_a_wall_clock_that_is_set_ahead_forgets_nothing(world: World) -> None:
    check_a_clock_that_is_set_makes_nothing_old(world)


def test_r22_red_when_the_wall_clock_is_believed(world: World) -> None:
    with fault("the-wall-clock-is-believed"), pytest.raises(AssertionError, match="a wall clock that is set ahead"):
        check_a_clock_that_is_set_makes_nothing_old(world)


def test_r22_while_the_logs_own_stream_is_open_its_cluster_will_say_when_it_is_over(world: World) -> None:
    announce(world.table, LOG, world.clock.wall_ms() - 8 * DAY_MS)
    stream = keys.recv_cell(StreamKey(LOG.instance_id, LOG.file, "1", "1", 1))
    world.table.put([RowPut(stream.key, {stream.column: Received(1).encode()})], keys.recv_rank(1, False))
    master = world.master()
    master.collect(1)
    master.run_fate()
    assert is_known(world.table, LOG)
