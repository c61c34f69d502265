"""Splits and merges as operations: the tservers that unload, the waits, and a cut between any two writes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress

import pytest

from bookkeeper.errors import InvalidInputError, NotFoundError, NotServingError, UnavailableError
from bookkeeper.master.fate.engine import Args
from bookkeeper.master.gc import gc_rules
from bookkeeper.master.gc.gc_runner import reference_rows
from bookkeeper.master.index.snapshot import BrokenChainError
from bookkeeper.master.operations.split_merge import (
    MERGE_KIND,
    SPLIT_KIND,
    add_splits_args,
    claimed_rows,
    merge_args,
)
from bookkeeper.master.operations.table_lifecycle import SPLIT_BYTES_MAX
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, Row, RowPut
from bookkeeper.model import RowRange
from tests.support.border_world import LETTERS, Meaning, ends_of, held_row, hold, meaning, segment
from tests.support.cuts import Crash, cut_at
from tests.support.master_values import status_value
from tests.support.master_world import Master, World
from tests.support.scripted_tserver import ScriptedTServer, scripted

EVERYTHING = RowRange(None, None)
WAL = "wal/gone-1/000001.wal"


def new_table(world: World, table_id: str, splits: Sequence[bytes]) -> list[bytes]:
    """A table in use: each tablet has a segment, one that reaches over all of it, a stream and a file to replicate."""
    made = world.create_table(table_id, splits)
    starts = [b"`", *splits]
    for number, (row, start) in enumerate(zip(made, starts, strict=True), 1):
        _, end = keys.parse_tablet_row(row)
        first, last = bytes([start[0] + 1]), end or b"z"
        segments = {f"s/{table_id}/{number}/{part}": segment(*span)
                    for part, span in (("whole", (first, last)), ("first", (first, first)))}  # fmt: skip
        hold(world.table, held_row(row, segments, 10 * number, (WAL, number)))
        world.table.put([RowPut(row, {keys.repl_column(WAL): status_value(number)})], keys.needed_rank(number))
    return made


def rows_of(world: World, table_id: str) -> list[Row]:
    return list(world.table.scan(*keys.table_section(table_id), ("tablet", "segment", "location", "log", "repl")))


def facts(world: World, table_id: str) -> dict[bytes, Meaning]:
    return meaning(rows_of(world, table_id))


def ends(world: World, table_id: str) -> list[bytes | None]:
    return ends_of(rows_of(world, table_id))


def finish(master: Master) -> None:
    while any(not running.ended for running in master.fate.pending()):
        if not master.fate.step_once():
            master.world.clock.jump(1_000)


def run(master: Master, kind: str, args: Args) -> None:
    running = master.fate.submit(kind, args)
    finish(master)
    master.fate.wait(running, 0)


# ---- arguments


@pytest.mark.parametrize("rows", [[], [b""], [b"a", b""], [b"x" * (SPLIT_BYTES_MAX + 1)]])
def test_invalid_splits_are_refused_before_an_operation_begins(rows: list[bytes]) -> None:
    with pytest.raises(InvalidInputError):
        add_splits_args("t", rows)


@pytest.mark.parametrize(("prev_row", "end_row"), [(b"b", b"a"), (b"a", b"a")])
def test_an_empty_range_is_not_merged(prev_row: bytes, end_row: bytes) -> None:
    with pytest.raises(InvalidInputError):
        merge_args("t", RowRange(prev_row, end_row))


@pytest.mark.parametrize("kind", [SPLIT_KIND, MERGE_KIND])
def test_a_table_that_is_not_there_is_neither_split_nor_merged(world: World, kind: str) -> None:
    args = {SPLIT_KIND: add_splits_args("no", [b"m"]), MERGE_KIND: merge_args("no", EVERYTHING)}[kind]
    with pytest.raises(NotFoundError):
        run(world.master(), kind, args)


# ---- what becomes of a table


def test_a_split_into_any_number_of_tablets_keeps_all_facts(world: World) -> None:
    new_table(world, "2", [b"m"])
    before, master = facts(world, "2"), world.master()
    run(master, SPLIT_KIND, add_splits_args("table-2", [b"t", b"c", b"m", b"f", b"c"]))
    assert ends(world, "2") == [b"c", b"f", b"m", b"t", None]
    assert facts(world, "2") == before
    directories = [row.cells[keys.DIR].value for row in rows_of(world, "2")]
    assert len(set(directories)) == 5


def test_borders_that_are_there_change_nothing(world: World) -> None:
    new_table(world, "2", [b"m"])
    before = rows_of(world, "2")
    run(world.master(), SPLIT_KIND, add_splits_args("table-2", [b"m"]))
    assert rows_of(world, "2") == before


def test_a_merge_keeps_the_facts_of_each_tablets_rows(world: World) -> None:
    new_table(world, "2", [b"f", b"m", b"t"])
    before = facts(world, "2")
    run(world.master(), MERGE_KIND, merge_args("table-2", RowRange(b"f", b"t")))
    assert ends(world, "2") == [b"f", b"t", None]
    after = facts(world, "2")
    assert {row: (m.segments, m.high_water) for row, m in after.items()} == {
        row: (m.segments, m.high_water) for row, m in before.items()
    }
    assert after[b"g"].after == {(WAL, 3)}, "the last record of both in that log"


def test_one_tablet_is_merged_already(world: World) -> None:
    new_table(world, "2", [b"m"])
    before = rows_of(world, "2")
    run(world.master(), MERGE_KIND, merge_args("table-2", RowRange(b"n", None)))
    assert rows_of(world, "2") == before


def test_files_to_replicate_stay_where_they_are_named_and_count_until_they_are_done(world: World) -> None:
    new_table(world, "2", [b"m"])
    master = world.master()
    run(master, SPLIT_KIND, add_splits_args("table-2", [b"c", b"t"]))
    run(master, MERGE_KIND, merge_args("table-2", EVERYTHING))
    assert set(world.repl(WAL)) == {b"2;m", b"2<"}
    assert master.read_books().snapshot.files[WAL.encode()].needed == 2
    assert WAL.encode() in set(gc_rules.references(reference_rows(world.table, {"2"}), ()))


def test_a_deleted_table_takes_its_remnants_along(world: World) -> None:
    new_table(world, "2", [b"m"])
    master = world.master()
    run(master, MERGE_KIND, merge_args("table-2", EVERYTHING))
    run(master, "delete_table", {"name": "table-2"})
    assert rows_of(world, "2") == []


def test_a_remnants_stale_use_of_a_log_does_not_come_back_with_its_row(world: World) -> None:
    new_table(world, "2", [b"m"])
    master = world.master()
    run(master, MERGE_KIND, merge_args("table-2", EVERYTHING))
    world.table.put([RowPut(b"2;m", {keys.log_column(WAL): values.LOG})], 99)
    run(master, SPLIT_KIND, add_splits_args("table-2", [b"m"]))
    assert ends(world, "2") == [b"m", None]
    assert all(not row.family("log") for row in rows_of(world, "2"))


# ---- who lets go


@pytest.fixture
def tservers(world: World) -> Iterator[list[ScriptedTServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(scripted(world)) for _ in range(2)]


def test_tablets_are_parked_before_any_live_tserver_unloads_them(world: World, tservers: list[ScriptedTServer]) -> None:
    (low, high) = new_table(world, "2", [b"m"])
    for row, tserver in ((low, tservers[0]), (high, tservers[1])):
        world.locate(row, tserver.session)
    seen: list[bool] = []

    def look(method: str) -> None:
        if method == "unload_tablet":
            locations = [row.cells[keys.LOCATION].value for row in rows_of(world, "2")]
            seen.append(all(values.Location.decode(raw).is_parked for raw in locations))

    for tserver in tservers:
        tserver.look = look
    master = world.master()
    master.fate.submit(MERGE_KIND, merge_args("table-2", EVERYTHING))
    master.run_fate()
    assert seen == [True] * 4
    assert [tserver.orders for tserver in tservers] == [["unload b'm'", "unload None"]] * 2
    assert ends(world, "2") == [None]
    assert [running.step for running in master.fate.pending()] == ["place"]
    location = values.Location.decode(rows_of(world, "2")[-1].cells[keys.LOCATION].value)
    assert (location.is_parked, location.session) == (True, tservers[1].session)


def test_nothing_is_written_while_a_tserver_may_still_hold_a_tablet(
    world: World, tservers: list[ScriptedTServer]
) -> None:
    new_table(world, "2", [b"m"])
    tservers[1].trouble["unload_tablet"] = UnavailableError("it does not answer")
    master = world.master()
    running = master.fate.submit(SPLIT_KIND, add_splits_args("table-2", [b"c"]))
    master.run_fate()
    assert (running.step, ends(world, "2")) == ("hold", [b"m", None])
    assert "does not answer" in running.note
    assert claimed_rows(master.fate.pending()) == {b"2;c", b"2;m"}
    del tservers[1].trouble["unload_tablet"]
    world.clock.jump(1_000)
    master.run_fate()
    assert ends(world, "2") == [b"c", b"m", None]
    assert claimed_rows(master.fate.pending()) == set()


def test_a_change_waits_for_a_tserver_of_a_tablet_with_records_in_a_log(
    world: World, tservers: list[ScriptedTServer]
) -> None:
    (row,) = new_table(world, "2", [])
    world.table.put([RowPut(row, {keys.log_column(WAL): values.LOG})], 1)
    master = world.master()
    running = master.fate.submit(SPLIT_KIND, add_splits_args("table-2", [b"c"]))
    master.run_fate()
    assert (running.step, claimed_rows(master.fate.pending())) == ("serve", set())
    world.locate(row, tservers[0].session)
    tservers[0].trouble["flush_tablet"] = NotServingError("it is not loaded yet")
    (tablet,) = master.read_books().snapshot.tablets_of_session()[tservers[0].session]
    world.clock.jump(1_000)
    master.run_fate()
    assert (running.step, tablet) == ("serve", row), "assigned and not loaded yet: it would never be"
    del tservers[0].trouble["flush_tablet"]
    world.clock.jump(1_000)
    master.run_fate(2)
    assert running.step == "serve", "it let go, and a log is needed still: its tserver must have died"
    assert claimed_rows(master.fate.pending()) == set()
    world.table.delete([CellKey(row, keys.log_column(WAL))], 2)
    world.clock.jump(1_000)
    master.run_fate()
    assert ends(world, "2") == [b"c", None]


# ---- a cut between any two writes


SEVERAL = "add_splits of several tablets"
KINDS: dict[str, Callable[[str], Args]] = {
    SPLIT_KIND: lambda name: add_splits_args(name, [b"c", b"h"]),
    SEVERAL: lambda name: add_splits_args(name, [b"c", b"h", b"m", b"p", b"w"]),
    MERGE_KIND: lambda name: merge_args(name, RowRange(b"m", None)),
}
BEFORE: dict[str, list[bytes]] = {SPLIT_KIND: [], SEVERAL: [b"m", b"s"], MERGE_KIND: [b"m", b"s"]}
LEFT: dict[str, list[bytes | None]] = {
    SPLIT_KIND: [b"c", b"h", None],
    SEVERAL: [b"c", b"h", b"m", b"p", b"s", b"w", None],
    MERGE_KIND: [b"m", None],
}


@pytest.mark.parametrize("behind", [False, True], ids=["before it", "behind it"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_next_master_goes_on_from_a_cut_between_any_two_writes(world: World, kind: str, behind: bool) -> None:
    master = world.master()
    for write in itertools.count():
        table_id = str(write + 2)
        new_table(world, table_id, BEFORE[kind])
        before = facts(world, table_id)
        with cut_at(world, write, behind) as has_died:
            with suppress(Crash):
                master.fate.submit(SPLIT_KIND if kind == SEVERAL else kind, KINDS[kind](f"table-{table_id}"))
                finish(master)
            survived = not has_died()
        try:
            assert _known(facts(world, table_id)) == _known(before)
        except AssertionError:
            with pytest.raises(BrokenChainError):
                master.read_books()
        master = world.depose(master)
        finish(master)
        if ends(world, table_id) != LEFT[kind]:
            assert write == 0, "cut before the operation was written: it has no record"
            assert _known(facts(world, table_id)) == _known(before)
            continue
        assert _known(facts(world, table_id)) == _known(before)
        assert [r for r in master.fate.pending() if r.error is not None] == []
        master.read_books()
        if survived:
            assert write > 8
            return


def _known(found: dict[bytes, Meaning]) -> dict[bytes, tuple[frozenset[str], int]]:
    assert set(found) == set(LETTERS)
    return {row: (known.segments, known.high_water) for row, known in found.items()}
