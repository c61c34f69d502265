"""Which books go, and when: R2, R3, R7 and R9. (What the rules are for is played in ``tests/simulation``.)"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bookkeeper.master.books import books_cycle, remover
from bookkeeper.master.books.remover import MissingFile
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey
from bookkeeper.model import TargetKey
from tests.support.faults import fault
from tests.support.master_values import EAST, books_row, by_name, entry, name, scopes, status_value, tablet_row
from tests.support.master_world import World

W1, W2, W3 = name("s1"), name("s2"), name("s3")


def test_a_leader_deletes_only_what_an_earlier_cycle_of_its_own_saw_closed() -> None:
    made = entry(W1, 5, closed=True, done={EAST: 5})
    assert [remover.is_removable(made, cycle) for cycle in (1, 2, 9)] == [False, True, True]


def test_an_incomplete_file_stays_however_long_it_is_closed() -> None:
    assert not remover.is_removable(entry(W1, 5, closed=True, done={EAST: 4}), 9)


def test_a_row_without_columns_is_a_leftover_only_if_the_cycle_before_saw_none_either() -> None:
    assert not remover.is_orphan(W1, None)
    assert not remover.is_orphan(W1, by_name(entry(W1, 5)))
    assert remover.is_orphan(W1, by_name(entry(W2, 5)))


def test_only_needed_cells_of_a_row_go() -> None:
    row = books_row(W1, {EAST: status_value(5)}, {EAST: 5})
    assert remover.needed_cells(row) == [CellKey(row.key, keys.needed_column(EAST))]


def test_the_second_scan_finds_the_columns_of_the_files_that_go_and_no_others() -> None:
    rows = [
        tablet_row(b"m", None, {W1: b"", W2: b""}),
        tablet_row(None, b"m", {W2: b"", W3: b""}),
    ]
    found = list(remover.repl_cells(rows, {W1, W2}))
    assert [(cell.key, cell.column.qualifier) for cell in found] == [(b"1;m", W1), (b"1;m", W2), (b"1<", W2)]


def test_the_moment_at_which_a_missing_file_was_first_noticed_is_kept() -> None:
    first = remover.note_missing({}, [W1, W2], {W2}, 10)
    second = remover.note_missing(first, [W1, W2, W3], {W2}, 50)
    assert second == {W1: MissingFile(W1, 10), W3: MissingFile(W3, 50)}
    assert remover.note_missing(second, [W1], {W1}, 90) == {}
    assert [remover.is_void(second[W1], now, 100) for now in (50, 110, 111)] == [False, False, True]


# ---- on the real stores: a cut between the two deletes


def _complete(world: World) -> tuple[str, TargetKey]:
    target = world.enable("1")
    session = world.tserver()
    file = world.log(session, 3, seal=True)
    world.closed(b"1<", file, 3)
    world.ship(file, target, 3)
    return file, target


def test_columns_go_first_then_the_row_and_the_finished_side_stays(world: World) -> None:
    file, target = _complete(world)
    master = world.master()
    assert master.cycle() == []
    assert set(world.needed(file)) == {target}
    assert master.cycle() == [file.encode()]
    assert (world.repl(file), world.needed(file), world.done(file)) == ({}, {}, {target: 3})


def test_a_crash_between_the_two_deletes_leaves_a_row_that_the_next_leader_deletes(world: World) -> None:
    file, target = _complete(world)
    master = world.master()
    master.cycle()
    world.table.purge([CellKey(b"1<", keys.repl_column(file))])
    successor = world.depose(master)
    successor.cycle()
    assert set(world.needed(file)) == {target}, "the first cycle of a reign deletes nothing"
    successor.cycle()
    assert world.needed(file) == {}
    assert world.done(file) == {target: 3}


def test_the_first_cycle_of_a_reign_would_delete_the_row_of_a_file_it_could_not_have_seen(world: World) -> None:
    file, _ = _complete(world)
    master = world.master()
    master.cycle()
    world.table.purge([CellKey(b"1<", keys.repl_column(file))])
    with fault("no-reading-is-enough"):
        world.depose(master).cycle()
    assert world.needed(file) == {}


def test_a_file_that_two_tables_share_waits_for_the_targets_of_both(world: World) -> None:
    (other,) = world.create_table("2")
    first, second = world.enable("1"), world.enable("2", remote_table_id="r2")
    session = world.tserver()
    file = world.log(session, 4, tablets=[b"1<", other], seal=True)
    for row in (b"1<", other):
        world.closed(row, file, 4)
    master = world.master()
    world.ship(file, first, 4)
    for _ in range(3):
        master.cycle()
    assert set(world.repl(file)) == {b"1<", other}
    world.ship(file, second, 4)
    assert master.cycle() == [file.encode()]
    assert world.repl(file) == {}


def test_scopes_follow_the_configuration(world: World) -> None:
    file, _ = _complete(world)
    master = world.master()
    master.cycle()
    (made,) = master.books.snapshot.files.values()
    assert made.scope.table_ids == ("1",)
    world.define("north")
    added = world.enable("1", "north", "r2")
    master.cycle()
    (made,) = master.books.snapshot.files.values()
    assert added in {target.key for target in made.scope.targets}
    assert world.repl(file), "the new target has nothing of it yet"
    assert scopes().of(("1",)).targets


def test_files_that_are_complete_together_go_in_batches_and_their_columns_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the last peer is taken away, all that it lacked is complete in one cycle."""
    target = world.enable("1")
    (other,) = world.create_table("2", [])
    world.enable("2")
    session = world.tserver()
    files = [world.name(session, number) for number in range(1, 8)]
    for file in files:
        world.closed(b"1<", file, 5)
        world.closed(other, file, 5)
    master = world.master()
    master.cycle()
    assert all(target in world.needed(file) for file in files)
    for table_id in ("1", "2"):
        world.disable(table_id)
    steps: list[tuple[str, int]] = []
    purge, delete = world.table.purge, world.table.delete

    def purged(cells: Sequence[CellKey]) -> None:
        steps.append(("purge", len(cells)))
        purge(cells)

    def deleted(cells: Sequence[CellKey], rank: int) -> None:
        steps.append(("delete", len(cells)))
        delete(cells, rank)

    monkeypatch.setattr(books_cycle, "BATCH_CELLS", 3)
    monkeypatch.setattr(world.table, "purge", purged)
    monkeypatch.setattr(world.table, "delete", deleted)
    removed = [file for _ in range(3) for file in master.cycle()]
    assert sorted(removed) == [file.encode() for file in files]
    assert [size for step, size in steps if step == "purge"] == [3, 3, 3, 3, 2]
    assert not any(world.needed(file) for file in files)
    rows = world.table.scan(families=("repl",))
    assert list(rows) == []
