"""Files that tablets take as they are, between their holds and their names: R4 and R17."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from bookkeeper.bulk.adoption import INCOMING, import_directory, is_adoptable
from bookkeeper.bulk.file_holds import end_holds, put_holds
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, Column, Row, RowPut
from bookkeeper.metadata.values import SegmentEntry
from tests.support.faults import fault
from tests.support.master_world import LATE_MS, Master, World
from tests.support.session_holds import held_files

ROW = b"1<"
FILE = f"{import_directory('1', 'a' * 32)}/attempt/000000.parquet"
OPERATION = keys.hold_column("0c")


@pytest.fixture
def master(world: World) -> Master:
    """The leader of a cluster with one table."""
    return world.master()


@pytest.fixture(autouse=True)
def _file(world: World) -> None:
    world.path(FILE).parent.mkdir(parents=True)
    world.path(FILE).write_bytes(b"segment")


def name_it(world: World, rank: int = 1) -> None:
    entry = SegmentEntry("default", 1, 7, b"a", b"a", 1, 1, 1).encode()
    world.table.put([RowPut(ROW, {keys.segment_column(FILE): entry})], rank)


def give_it_up(world: World) -> None:
    """As a compaction: the collector may delete the file, says the tablet."""
    world.table.put([RowPut(keys.del_row(FILE), {keys.DEL: values.EMPTY})], keys.ONCE_RANK)
    world.table.delete([CellKey(ROW, keys.segment_column(FILE))], 2)


def is_there(world: World) -> bool:
    return world.path(FILE).exists()


@pytest.mark.parametrize(
    ("name", "may_be_taken"),
    [
        (FILE, True),
        (f"{INCOMING}/tserver-1/a.parquet", True),
        (f"{import_directory('1', 'a')}/000000.parquet", False),
        ("tables/1/t-00000/c0000000001-import-.parquet", False),
        ("wal/import/import-1.wal", False),
    ],
)
def test_tablets_take_files_of_imports_and_of_other_clusters(name: str, may_be_taken: bool) -> None:
    assert is_adoptable(name) is may_be_taken


# ---- R4: nothing can be in flight


def given_up_and_named_late(world: World, master: Master) -> None:
    """A tablet gives the file up, and the put of another one, which has waited for it, is in flight."""
    give_it_up(world)
    master.collect()
    name_it(world, 3)
    world.clock.jump(LATE_MS)
    master.collect()
    assert is_there(world), "R4: a file is deleted while a put that names it is in flight"


def test_r4_a_file_that_a_tablet_gave_up_may_be_named_by_another_one_for_a_while(world: World, master: Master) -> None:
    given_up_and_named_late(world, master)


def test_r4_red_the_first_tablet_that_gives_a_file_up_decides(world: World, master: Master) -> None:
    with fault("given-up-files-go-at-once"), pytest.raises(AssertionError, match="R4: a file is deleted while a put"):
        given_up_and_named_late(world, master)


def test_a_file_goes_when_nothing_has_needed_it_for_longer_than_a_write_is_in_flight(
    world: World, master: Master
) -> None:
    give_it_up(world)
    assert master.collect() == []
    world.clock.jump(LATE_MS)
    assert master.collect() == [FILE]
    assert not is_there(world)


def test_the_wait_begins_again_when_a_file_was_needed_meanwhile(world: World, master: Master) -> None:
    give_it_up(world)
    master.collect()
    put_holds(world.table, keys.taking_column(world.tserver(), "order"), [FILE])
    world.clock.jump(LATE_MS)
    assert master.collect() == []
    world.table.purge([CellKey(row.key, column) for row in holds_in(world) for column in row.cells])
    assert master.collect() == []
    world.clock.jump(LATE_MS)
    assert master.collect() == [FILE]


def holds_in(world: World) -> list[Row]:
    return list(world.table.scan(*keys.section(keys.HOLD_PREFIX), keys.HOLD_FAMILIES))


# ---- R17: from a hold to a name


@pytest.fixture
def hand_over(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on a tablet names the file, and its hold ends, between two reads of each run of the collector: that of
    the tablets, and that of the last holds.
    """

    def begin() -> None:
        scan = world.table.scan

        def scan_between(start: bytes, stop: bytes | None, families: Sequence[str]) -> Iterator[Row]:
            rows = list(scan(start, stop, families))
            if (start, "segment" in families) == (keys.TABLETS_START, True):
                name_it(world)
                end_holds(world.table, OPERATION, [FILE])
            return iter(rows)

        monkeypatch.setattr(world.table, "scan", scan_between)

    return begin


def named_while_the_collector_reads(world: World, master: Master, hand_over: Callable[[], None]) -> None:
    """Another tablet has given the file up long ago; the operation that has it still holds it for this one."""
    put_holds(world.table, OPERATION, [FILE])
    world.table.put([RowPut(keys.del_row(FILE), {keys.DEL: values.EMPTY})], keys.ONCE_RANK)
    with fault("given-up-files-go-at-once"):  # the wait would hide it
        hand_over()
        master.collect(1)
    assert is_there(world), "R17: the collector saw a file between its hold and its name"


def test_r17_the_collector_reads_holds_before_the_tablets_and_behind_them(
    world: World, master: Master, hand_over: Callable[[], None]
) -> None:
    named_while_the_collector_reads(world, master, hand_over)


def test_r17_red_holds_that_are_read_last_alone_miss_a_hand_over(
    world: World, master: Master, hand_over: Callable[[], None]
) -> None:
    with fault("holds-are-read-last"), pytest.raises(AssertionError, match="R17: the collector saw a file between"):
        named_while_the_collector_reads(world, master, hand_over)


# ---- R4: the end of a hold


def test_r4_a_hold_ends_with_its_holder(world: World, master: Master) -> None:
    living, dead = world.tserver(), world.tserver()
    log = world.log(living, 1, seal=True)
    world.use(ROW, log, 1)
    world.kill(dead)
    kept = [keys.arrival_column(living), keys.taking_column(living, "o"), keys.log_hold_column(log)]
    ended = [OPERATION, keys.arrival_column(dead), keys.log_hold_column(f"wal/{living}/000009.wal")]
    for column in (*kept, *ended):
        put_holds(world.table, column, [FILE])
    master.collect(1)
    assert columns(world) == set(kept)


def columns(world: World) -> set[Column]:
    return {column for row in holds_in(world) for column in row.cells}


def dead_taker(world: World, master: Master) -> None:
    """A tserver dies while its put is in flight; a tablet of another one has given the file up."""
    session = world.tserver()
    put_holds(world.table, keys.taking_column(session, "o"), [FILE])
    give_it_up(world)
    world.kill(session)
    with fault("given-up-files-go-at-once"):  # each of both rules alone keeps the file
        master.collect()
        name_it(world, 3)
        assert is_there(world), "R4: the hold of a put in flight ends with the session"
        world.table.delete([CellKey(ROW, keys.segment_column(FILE))], 4)
        world.clock.jump(LATE_MS)
        master.collect()
    assert not held_files(world.table), "the hold of a dead tserver stays"
    assert not is_there(world)


def test_r4_the_hold_of_a_dead_tserver_outlives_its_puts(world: World, master: Master) -> None:
    dead_taker(world, master)


def test_r4_red_a_file_goes_with_the_tserver_that_was_to_name_it(world: World, master: Master) -> None:
    with fault("takers-end-at-once"), pytest.raises(AssertionError, match="R4: the hold of a put in flight ends"):
        dead_taker(world, master)


def test_r4_a_log_that_can_t_be_seen_keeps_its_files(world: World, master: Master) -> None:
    """The directory of logs is not mounted: a live tserver has a log, and none is listed."""
    world.tserver()
    column = keys.log_hold_column("wal/import/name-00000.wal")
    put_holds(world.table, column, [FILE])
    master.collect(1)
    assert columns(world) == {column}


def log_deleted(world: World, master: Master) -> None:
    """A log with the file's records is complete at its peers, and its tablet has replaced the file."""
    living = world.tserver()
    kept, log = world.log(living, 1), world.log("import", 1, seal=True)
    world.use(ROW, kept, 1)
    put_holds(world.table, keys.log_hold_column(log), [FILE])
    give_it_up(world)
    assert master.collect(2) == [log]
    world.clock.jump(LATE_MS)
    master.collect(2)
    world.clock.jump(LATE_MS)
    master.collect(2)
    assert not held_files(world.table), "the hold of a deleted log stays"
    assert not is_there(world)


def test_the_files_of_a_log_go_when_the_log_is_gone(world: World, master: Master) -> None:
    log_deleted(world, master)


def test_r4_red_holds_that_nobody_ends_keep_files_of_deleted_logs(world: World, master: Master) -> None:
    with fault("holds-outlive-their-operation"), pytest.raises(AssertionError, match="the hold of a deleted log stays"):
        log_deleted(world, master)
