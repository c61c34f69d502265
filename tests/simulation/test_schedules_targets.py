"""The schedules of docs/design/rules.md that are about targets: only what is configured counts, by its whole key.

Each by its number: green with its rule, red without. One schedule is one function that plays it and tells what is left
in the end; it is played as the code is, and with the switch that breaks the rule. They need a master only.
Rules: R2, R5, R6 and R9.
"""

from __future__ import annotations

import pytest

from bookkeeper.coordination.config_tree import table_path
from bookkeeper.errors import CorruptionError
from bookkeeper.model import TargetKey
from tests.support.faults import fault
from tests.support.master_logs import LAST, sealed, used
from tests.support.master_world import Master, World

# ---- 5 and 6: targets that are configured no more


def _disabled_with_a_closed_file_outstanding(world: World) -> str:
    world.enable("1")
    file = sealed(world)
    master = world.master()
    master.cycle()
    assert world.needed(file)
    world.disable("1")
    for _ in range(3):
        master.cycle()
    return file


def test_5_a_closed_file_without_any_target_left_is_complete(world: World) -> None:
    file = _disabled_with_a_closed_file_outstanding(world)
    assert (world.repl(file), world.needed(file)) == ({}, {})


def test_5_red_every_target_ever_counts(world: World) -> None:
    with fault("every-target-ever-counts"):
        file = _disabled_with_a_closed_file_outstanding(world)
    assert world.repl(file), "without R9 the file is kept for ever"


def _remote_table_changes(world: World) -> tuple[str, TargetKey, TargetKey]:
    old = world.enable("1", remote_table_id="r1")
    file = sealed(world)
    master = world.master()
    master.cycle()
    world.disable("1")
    new = world.enable("1", remote_table_id="r2")
    master.cycle()
    return file, old, new


def test_6_the_column_of_a_former_remote_table_is_deleted(world: World) -> None:
    file, _, new = _remote_table_changes(world)
    assert set(world.needed(file)) == {new}


def test_6_red_columns_of_others_stay(world: World) -> None:
    with fault("unconfigured-columns-stay"):
        file, old, _ = _remote_table_changes(world)
    assert old in world.needed(file), "without R9 it stays, and never fills"


def test_6_the_books_of_a_deleted_table_go(world: World) -> None:
    world.enable("1")
    file = sealed(world)
    master = world.master()
    master.cycle()
    master.fate.submit("delete_table", {"name": "table-1"})
    world.kill(next(iter(world.sessions)))
    master.recovery.run_once(master.recovery.tservers.sessions())
    master.run_fate()
    for _ in range(3):
        master.cycle()
    assert (world.repl(file), world.needed(file), world.config().tables) == ({}, {}, {})


# ---- 7: the configuration can't be read


def _unreadable_for_a_cycle(world: World, master: Master) -> None:
    good = world.coordination.get(table_path("1"))
    assert good is not None
    world.coordination.put(table_path("1"), b"{")
    try:
        for _ in range(2):
            master.cycle()
    finally:
        world.coordination.put(table_path("1"), good.value)


def test_7_a_cycle_without_readable_configuration_does_nothing(world: World) -> None:
    world.enable("1")
    file, master = sealed(world), world.master()
    master.cycle()
    with pytest.raises(CorruptionError, match="/tables/1"):
        _unreadable_for_a_cycle(world, master)
    master.cycle()
    assert world.repl(file)


def test_7_red_unreadable_means_nothing_configured(world: World) -> None:
    world.enable("1")
    file, master = sealed(world), world.master()
    master.cycle()
    with fault("unreadable-means-empty"):
        _unreadable_for_a_cycle(world, master)
    assert not world.repl(file), "without R6 the data is lost"


# ---- 9: two tables, one remote table


def _two_tables_into_one(world: World) -> tuple[str, TargetKey, TargetKey]:
    (other,) = world.create_table("2")
    first, second = world.enable("1"), world.enable("2")
    session = world.tserver()
    file = world.log(session, 4, tablets=[LAST, other], seal=True)
    for row in (LAST, other):
        world.closed(row, file, 4)
    master = world.master()
    master.cycle()
    world.ship(file, first, 4)
    for _ in range(2):
        master.cycle()
    return file, first, second


def test_9_two_tables_that_map_to_one_remote_table_stay_apart(world: World) -> None:
    file, _, second = _two_tables_into_one(world)
    assert set(world.repl(file)) == {b"1<", b"2<"}
    assert second in world.needed(file)


def test_9_red_one_target_for_a_remote_table(world: World) -> None:
    with fault("one-target-for-a-remote-table"):
        file, _, _ = _two_tables_into_one(world)
    assert not world.repl(file), "without R5 the second table's records are lost"


# ---- 27: disabled, then enabled again


def _enabled_again_with_old_entries(world: World) -> tuple[str, TargetKey, Master]:
    old = world.enable("1")
    file = sealed(world)
    master = world.master()
    master.cycle()
    world.ship(file, old, 3)
    world.disable("1")
    new = world.enable("1")
    master.cycle()
    return file, new, master


def test_27_a_target_enabled_again_begins_anew(world: World) -> None:
    file, new, master = _enabled_again_with_old_entries(world)
    (entry,) = master.books.snapshot.files.values()
    assert set(world.needed(file)) == {new}
    assert entry.progress_of(new).offset == 0
    master.cycle()
    assert world.repl(file)


def test_27_red_incarnations_share_cells(world: World) -> None:
    with fault("incarnations-share-cells"):
        file, _, _ = _enabled_again_with_old_entries(world)
    assert not world.repl(file), "without R5 the new target counts as served, by what its old self got"


def test_27_a_needed_cell_deleted_at_a_rank_can_be_written_again_above_it(world: World) -> None:
    old = world.enable("1")
    _, file = used(world)
    master = world.master()
    master.cycle()
    world.disable("1")
    master.cycle()
    assert world.needed(file) == {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bookkeeper.coordination.config_changes.next_count", lambda *_: old.incarnation)
        world.enable("1")
        master.cycle()
    assert old in world.needed(file), "even the same incarnation shows again: nothing was hidden for good (R2)"
