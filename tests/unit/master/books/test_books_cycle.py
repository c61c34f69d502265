"""Quick cycles: the rows of one tserver, read in slices, and safe only at the second read."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from bookkeeper.errors import CorruptionError, UnavailableError
from bookkeeper.master.books import books_cycle
from bookkeeper.master.cycle.assigner import barrier_limit, next_range
from bookkeeper.master.index.file_entry import FileEntry
from bookkeeper.master.index.snapshot import BrokenChainError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable, PartReader, RowPut
from bookkeeper.model import Barrier, TargetKey
from bookkeeper.storage.wal.writing.seal import SEAL_SUFFIX
from combiners import CLOSED, OPEN
from tests.support.faults import fault
from tests.support.master_values import shipping
from tests.support.master_world import Master, World
from tests.support.wal_files import damage

LAST = b"1<"


def _directory(session: str) -> bytes:
    return f"wal/{session}/".encode()


def _look(master: Master, session: str, looks: int = 2) -> dict[str, FileEntry]:
    changed: dict[str, FileEntry] = {}
    for _ in range(looks):
        changed |= {made.entry.name(): made.entry for made in master.books.refresh(session, _directory(session))}
    return changed


@pytest.fixture
def target(world: World) -> TargetKey:
    """Table 1 is replicated."""
    return world.enable("1")


def test_a_quick_cycle_finds_a_new_file_and_writes_its_needed_cells(world: World, target: TargetKey) -> None:
    session = world.tserver()
    world.locate(LAST, session)
    master = world.master()
    master.cycle()
    file = world.name(session)
    world.use(LAST, file, 4)
    assert set(_look(master, session)) == {file}
    assert world.needed(file)[target].replication_needed_offset == 4
    assert _look(master, session) == {}


def test_the_growth_of_a_read_that_failed_is_told_by_the_next_one(world: World) -> None:
    world.enable("1")
    session = world.tserver()
    world.locate(LAST, session)
    master, file = world.master(), world.name(session)
    world.use(LAST, file, 2)
    master.cycle()
    world.use(LAST, file, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(master.books, "_write_needed", Mock(side_effect=UnavailableError("the books do not answer")))
        with pytest.raises(UnavailableError):
            _look(master, session)
    view = master.read_books()
    ((entry, before, is_new),) = master.books.growths(view)
    assert entry is view.snapshot.files[file.encode()]
    assert (entry.needed, before and before.needed, is_new) == (4, 2, False)
    master.act(view)
    ((_, before, _),) = master.books.growths(master.read_books())
    assert before is not None
    assert before.needed == 4, "it is told once"


def test_the_books_of_a_log_are_a_column_of_each_tablet_and_one_row_with_a_column_for_each_target(
    world: World, target: TargetKey
) -> None:
    """Two key structures, and no other: whatever else the books have of a log is not about replication."""
    session = world.tserver()
    world.locate(LAST, session)
    master, file = world.master(), world.name(session)
    world.use(LAST, file, 4)
    master.cycle()
    world.ship(file, target, 2)
    found = {
        (row.key, column.family, column.qualifier)
        for row in world.table.scan()
        for column in row.cells
        if file.encode() in row.key + b" " + column.qualifier and column.family != "log"
    }
    of_target = keys.needed_column(target).qualifier
    assert found == {
        (LAST, "repl", file.encode()),
        (keys.repl_row(file), "repl", of_target),
        (keys.repl_row(file), "done", of_target),
    }


@pytest.mark.parametrize("log", ["000001.wal", "taken-1.wal"])
def test_the_offsets_of_one_read_are_safe_after_the_next(world: World, target: TargetKey, log: str) -> None:
    session = world.tserver()
    world.locate(LAST, session)
    master = world.master()
    master.cycle()
    file = world.name(session).replace("000001.wal", log)
    world.use(LAST, file, 4)
    (made,) = _look(master, session, 1).values()
    assert (made.needed, made.safe, master.books.unsafe()) == (4, 0, [made])
    _look(master, session, 1)
    assert (made.safe, master.books.unsafe()) == (4, [])
    world.use(LAST, file, 9)
    _look(master, session, 1)
    assert (made.needed, made.safe) == (9, 4)
    assert target in made.scope.index_by_key


def check_that_it_waits_for_a_younger_log(world: World) -> None:
    """Rule R24: between a master's scan and its look at the logs, tablet ``2;m`` writes for the first time, moves,
    writes again, and its second server, which has others, dies.
    """
    moved, other = world.create_table("2", [b"m"])
    target = world.enable("2")
    first, second = world.tserver(), world.tserver()
    before, file = world.name(first), world.name(second)
    world.use(other, file, 1)
    world.use(LAST, before, 0)
    master = world.master()
    view = master.read_books()
    assert {made.name() for made in view.snapshot.files.values()} == {before, file}, "for another table"
    assert world.log(first, 1, tablets=[moved]) == before
    world.use(moved, before, 1)
    world.log(second, 2, tablets=[other, moved], after=[(2, before, 1)])
    world.kill(second)
    master.act(view)
    entry = master.books.snapshot.files[file.encode()]
    assert entry.is_closed()
    limit, _ = barrier_limit(entry, target, master.books.snapshot.files, shipping())
    assert limit < 2, "R24: a log is shipped before one that it waits for"
    assert master.books.unsafe() == [entry], "so that the next scan comes at once"
    master.cycle()
    files = master.books.snapshot.files
    limit, barrier = barrier_limit(files[file.encode()], target, files, shipping())
    assert limit == 1
    assert barrier is not None
    assert barrier.file == before.encode()


def test_r24_a_log_waits_for_one_that_is_younger_than_the_scan(world: World, target: TargetKey) -> None:
    del target
    check_that_it_waits_for_a_younger_log(world)


def test_r24_else_it_would_be_shipped_first(world: World, target: TargetKey) -> None:
    del target
    with (
        fault("unknown-logs-are-passed"),
        pytest.raises(AssertionError, match="a log is shipped before one that it waits for"),
    ):
        check_that_it_waits_for_a_younger_log(world)


def test_a_quick_cycle_reads_no_older_files_and_no_other_sessions(world: World, target: TargetKey) -> None:
    session, other = world.tserver(), world.tserver()
    world.locate(LAST, session)
    for owner, number in ((session, 1), (session, 2), (other, 1)):
        world.use(LAST, world.name(owner, number), 3)
    world.closed(LAST, world.name(session, 1), 3)
    master = world.master()
    for _ in range(2):
        master.cycle()
    world.use(LAST, world.name(other), 8)
    world.use(LAST, world.name(session, 2), 8)
    world.use(LAST, world.name(session, 3), 1)
    assert set(_look(master, session)) == {world.name(session, 2), world.name(session, 3)}
    assert target in world.needed(world.name(session, 3))


def test_a_new_log_is_found_when_all_older_ones_are_closed(world: World, target: TargetKey) -> None:
    session = world.tserver()
    world.locate(LAST, session)
    world.closed(LAST, world.name(session, 1), 3)
    master = world.master()
    for _ in range(2):
        master.cycle()
    world.use(LAST, world.name(session, 2), 5)
    assert set(_look(master, session)) == {world.name(session, 2)}
    assert target in world.needed(world.name(session, 2))


def test_a_closed_cell_of_a_quick_cycle_counts_for_the_next_full_cycle(world: World, target: TargetKey) -> None:
    session = world.tserver()
    world.locate(LAST, session)
    file = world.name(session)
    world.use(LAST, file, 3)
    master = world.master()
    master.cycle()
    world.closed(LAST, file, 5)
    _look(master, session)
    world.ship(file, target, 5)
    assert master.cycle() == [file.encode()]


@pytest.mark.parametrize("still_there", [True, False])
def test_a_barrier_of_an_unknown_file_holds_only_while_that_file_is_outstanding(
    world: World, target: TargetKey, still_there: bool
) -> None:
    before, session = world.tserver(), world.tserver()
    world.locate(LAST, session)
    master = world.master()
    master.cycle()
    first, second = world.name(before), world.name(session)
    world.use(LAST, first, 7)
    world.ship(first, target, 5)
    if not still_there:
        world.table.purge([CellKey(LAST, keys.repl_column(first))])
    world.use(LAST, second, 9, [Barrier(4, first, 6)])
    _look(master, session)
    files = master.books.snapshot.files
    assert (first.encode() in files) == still_there
    expected = (1, 3) if still_there else (1, 9)
    assert next_range(files[second.encode()], target, files, shipping()) == expected
    if still_there:
        assert files[first.encode()].progress_of(target).offset == 5


def test_quick_cycles_read_tablets_that_were_just_assigned(world: World, target: TargetKey) -> None:
    session = world.tserver()
    master = world.master()
    master.cycle()
    world.use(LAST, world.name(session), 3)
    assert _look(master, session) == {}
    master.books.note_assigned(session, LAST)
    assert set(_look(master, session)) == {world.name(session)}
    assert target in world.needed(world.name(session))


def _read_too_early(world: World) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """A look reads tablet 2;m, which then begins to use the log behind a barrier; then tablet 2< shows needed 9.

    Returns the range that may go after this look, and after the next two.
    """
    world.create_table("2", [b"m"])
    target = world.enable("2")
    session, before = world.tserver(), world.tserver()
    for row in (b"2;m", b"2<"):
        world.locate(row, session)
    file, first = world.name(session), world.name(before)
    world.use(b"2;m", first, 6)
    world.use(b"2<", file, 3)
    master = world.master()
    for _ in range(2):
        master.cycle()
    books = master.books
    read = books._refresh_row

    def torn(row: bytes, *rest: object) -> None:
        read(row, *rest)  # type: ignore[arg-type]
        if row == b"2;m":
            world.use(b"2;m", file, 3, [Barrier(4, first, 6)])
            world.use(b"2<", file, 9)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(books, "_refresh_row", torn)
        books.refresh(session, _directory(session))
    files = books.snapshot.files
    early = next_range(files[file.encode()], target, files, shipping())
    _look(master, session)
    return early, next_range(files[file.encode()], target, files, shipping())


def test_a_row_that_was_read_too_early_lets_nothing_pass_its_barrier(world: World) -> None:
    assert _read_too_early(world) == ((1, 3), (1, 3))


def test_without_the_second_read_records_pass_an_unread_barrier(world: World) -> None:
    with fault("unsafe-offsets-travel"):
        early, later = _read_too_early(world)
    assert early == (1, 9), "what lies behind offset 3 overtakes the other log"
    assert later == (1, 3)


def _barrier_on_a_parents_log(world: World) -> tuple[int, int] | None:
    """A tablet was split while a log of it is outstanding, and the new half writes to another log; both are new to the
    master. Returns what may be shipped of the new half's log.
    """
    rows = world.create_table("2", [b"m"])
    target = world.enable("2")
    session, before = world.tserver(), world.tserver()
    master = world.master()
    master.cycle()
    file, first = world.name(session), world.name(before)
    world.use(rows[1], first, 6)
    world.use(rows[0], file, 4, [Barrier(2, first, 6)])
    master.books.note_assigned(session, rows[0])
    for _ in range(2):
        _look(master, session)
    files = master.books.snapshot.files
    return next_range(files[file.encode()], target, files, shipping())


def test_r24_a_log_that_only_the_row_of_a_parent_names_is_waited_for(world: World) -> None:
    assert _barrier_on_a_parents_log(world) == (1, 1)


def test_r24_without_reading_other_rows_a_record_overtakes_the_log_of_its_parent(world: World) -> None:
    with fault("only-the-own-row-is-read"):
        assert _barrier_on_a_parents_log(world) == (1, 4)


def _barrier_on_a_shared_log(world: World) -> tuple[int, int] | None:
    """The scan met a log as one of table 1; then a tablet of table 2 uses it, too, and goes on in another log. Returns
    what may be shipped of the latter.
    """
    (row,) = world.create_table("2", [])
    world.enable("1")
    target = world.enable("2")
    session, before = world.tserver(), world.tserver()
    file, first = world.name(session), world.name(before)
    world.use(LAST, first, 6)
    master = world.master()
    master.cycle()
    world.use(row, first, 6)
    world.use(row, file, 4, [Barrier(2, first, 6)])
    master.books.note_assigned(session, row)
    for _ in range(2):
        _look(master, session)
    files = master.books.snapshot.files
    return next_range(files[file.encode()], target, files, shipping())


def test_r24_a_log_that_the_scan_knew_of_another_table_only_is_waited_for(world: World) -> None:
    assert _barrier_on_a_shared_log(world) == (1, 1)


def test_r24_without_asking_for_each_table_a_record_overtakes_a_shared_log(world: World) -> None:
    with fault("one-table's-word-is-enough"):
        assert _barrier_on_a_shared_log(world) == (1, 4)


def test_r24_the_master_finds_logs_whose_barrier_a_coarser_one_implies(world: World) -> None:
    (row,) = world.create_table("2", [])
    target = world.enable("2")
    session, before = world.tserver(), world.tserver()
    master = world.master()
    master.cycle()
    file = world.name(session)
    world.use(row, world.name(before, 5), 6)
    world.use(
        row, file, 9, [Barrier(at, world.name(before, number), 6) for at, number in enumerate((1, 2, 3, 8, 5), 1)]
    )
    master.books.note_assigned(session, row)
    for _ in range(2):
        _look(master, session)
    files = master.books.snapshot.files
    kept = files[file.encode()].barriers
    assert world.name(before, 5).encode() not in [barrier.file for barrier in kept]
    assert next_range(files[file.encode()], target, files, shipping()) == (1, 3)


def test_a_log_that_no_row_names_was_passed_and_is_searched_once(world: World) -> None:
    rows = world.create_table("2", [b"m"])
    world.enable("2")
    session = world.tserver()
    master = world.master()
    master.cycle()
    world.use(rows[0], world.name(session), 4, [Barrier(2, "gone/000001.wal", 6)])
    master.books.note_assigned(session, rows[0])
    asked: list[str] = []

    def nowhere(_table: MetadataTable, table_id: str) -> list[bytes]:
        asked.append(table_id)
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(books_cycle, "predecessor_rows", nowhere)
        for _ in range(3):
            _look(master, session)
    assert asked == ["2"]


def test_a_full_cycle_starts_over_when_tablets_do_not_join_up_and_gives_up_at_last(world: World) -> None:
    master = world.master()
    rows = world.create_table("2", [b"m"])
    scans = []
    assert isinstance(world.table, PartReader)
    scan = world.table.scan_parts

    def meets_a_merge(*args: object) -> object:
        scans.append(args)
        if len(scans) == 2:
            world.table.delete([CellKey(rows[1], keys.PREV_ROW)], 9)
            world.table.put([RowPut(rows[1], {keys.PREV_ROW: b"\x01m"})], 10)
        return scan(*args)  # type: ignore[arg-type]

    world.table.put([RowPut(rows[1], {keys.PREV_ROW: b"\x01x"})], 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.table, "scan_parts", meets_a_merge)
        assert master.read_books().snapshot.tablets.keys() == {LAST, *rows}
    world.table.put([RowPut(rows[1], {keys.PREV_ROW: b"\x01x"})], 20)
    with pytest.raises(BrokenChainError):
        master.read_books()


def test_garbage_in_one_cell_stops_neither_the_cycle_nor_other_files(world: World, target: TargetKey) -> None:
    session = world.tserver()
    world.table.put([RowPut(LAST, {keys.repl_column("garbage"): b"\xff"})], 7)
    file = world.name(session)
    world.use(LAST, file, 3)
    master = world.master()
    view = master.read_books()
    master.act(view)
    assert target in world.needed(file)
    assert "garbage" in view.snapshot.problems[0]


@pytest.mark.parametrize("sealed", [False, True], ids=["not sealed", "sealed"])
def test_a_damaged_log_stays_open_and_stops_no_other_file(world: World, target: TargetKey, sealed: bool) -> None:
    session = world.tserver()
    damaged, whole = (world.log(session, 5, number, seal=sealed) for number in (1, 2))
    damage(damaged, 3, header=True, root=world.settings.directory)
    for file in (damaged, whole):
        world.use(b"1<", file, 5)
    world.kill(session)
    master = world.master()
    view = master.read_books()
    master.act(view)
    assert [problem for problem in view.snapshot.problems if damaged in problem and "is damaged at byte" in problem]
    assert world.repl(damaged)[b"1<"].state == OPEN
    assert world.repl(whole)[b"1<"].state == CLOSED
    assert world.exists(damaged)
    assert target in world.needed(damaged)


@pytest.mark.usefixtures("target")
def test_a_seal_that_can_not_be_read_stops_no_other_file_and_no_master(world: World) -> None:
    """The disk does not give it: here a directory has its name."""
    session = world.tserver()
    world.locate(LAST, session)
    unread, whole = (world.log(session, 5, number, seal=number == 2) for number in (1, 2))
    (world.settings.directory / (unread + SEAL_SUFFIX)).mkdir()
    for file in (unread, whole):
        world.use(LAST, file, 5)
    master = world.master()
    view = master.read_books()
    try:
        master.act(view)
    except OSError as error:
        raise AssertionError("an error of the disk ends the master") from error
    assert [world.repl(file)[LAST].state for file in (unread, whole)] == [OPEN, CLOSED]
    assert [problem for problem in view.snapshot.problems if unread in problem and "can't be read" in problem]


@pytest.mark.usefixtures("target")
def test_r10_a_cycle_closes_what_is_sealed_and_leaves_an_unsealed_log_to_its_living_owner(world: World) -> None:
    session = world.tserver()
    world.locate(LAST, session)
    sealed, growing = (world.log(session, 5, number, seal=number == 1) for number in (1, 2))
    for file in (sealed, growing):
        world.use(LAST, file, 5)
    master = world.master()
    master.act(master.read_books())
    assert [world.repl(file)[LAST].state for file in (sealed, growing)] == [CLOSED, OPEN]


def test_garbage_where_a_tablet_should_be_is_said(world: World) -> None:
    world.table.put([RowPut(b"no tablet", {keys.DIR: b"d"})], 1)
    with pytest.raises(CorruptionError, match="not a tablet row"):
        world.master().cycle()


def test_a_cycle_writes_nothing_when_nothing_changed(world: World, target: TargetKey) -> None:
    session = world.tserver()
    world.use(LAST, world.name(session), 3)
    master = world.master()
    master.cycle()
    puts = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.table, "put", lambda rows, rank: puts.append((rows, rank)))
        for _ in range(3):
            master.cycle()
        _look(master, session)
    assert puts == []
    assert target in world.needed(world.name(session))
