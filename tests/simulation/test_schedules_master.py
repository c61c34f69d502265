"""The schedules of books.md that are the master's alone, each by its number: green with its rule, red without.

One schedule is one function that plays it and tells what is left in the end. It is played twice: as the code is, and
with the switch that breaks the rule.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bookkeeper.coordination.config_changes import set_table_state
from bookkeeper.coordination.config_tree import table_path
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import CorruptionError, LeaseLostError
from bookkeeper.master.assigner import next_range
from bookkeeper.master.leader import RankAboveError
from bookkeeper.master.shipping import Shipping
from bookkeeper.metadata.table import CellKey
from bookkeeper.model import Barrier, TargetKey
from tests.support.faults import fault
from tests.support.master_faults import forget_everything
from tests.support.master_world import LATE_MS, Master, World

LAST = b"1<"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A cluster whose table 1 has one tablet."""
    forget_everything()
    made = World.at(tmp_path / "west")
    made.create_table("1")
    yield made
    made.close()


def _used(world: World, records: int = 3, *, seal: bool = False) -> tuple[str, str]:
    """A tserver's log with records of table 1, all of them needed; returns session and file."""
    session = world.tserver()
    file = world.log(session, records, seal=seal)
    world.use(LAST, file, records)
    return session, file


def _sealed(world: World, records: int = 3) -> str:
    """The same, rolled: CLOSED and flushed."""
    _, file = _used(world, records, seal=True)
    world.closed(LAST, file, records)
    world.flushed(LAST, file)
    return file


# ---- 1: a deposed leader with an old configuration


def _peer_enabled_behind_the_back_of_a_leader(world: World) -> tuple[World, str, TargetKey]:
    world.define("north")
    first = world.enable("1", "east")
    m1 = world.master()
    m1.cycle()
    old = world.config()
    second = world.enable("1", "north", "r2")
    file = _sealed(world)
    m2 = world.depose(m1)
    m2.cycle()
    world.ship(file, first, 3)
    m1.books._read_config = lambda: old
    m1.cycle()
    return world, file, second


def test_1_a_deposed_leader_deletes_nothing_by_an_old_configuration(world: World) -> None:
    with fault("ranks-above-are-not-seen"):  # else it would notice by the ranks that it was deposed
        _, file, second = _peer_enabled_behind_the_back_of_a_leader(world)
    assert list(world.repl(file)) == [LAST]
    assert second in world.needed(file)


def test_1_a_deposed_leader_that_meets_its_successors_ranks_steps_down(world: World) -> None:
    with fault("one-look-is-enough"), pytest.raises(LeaseLostError):
        _peer_enabled_behind_the_back_of_a_leader(world)
    (entry,) = world.table.scan(b"~repl_", b"~repl`")
    assert world.repl(entry.key.removeprefix(b"~repl_").decode())


def test_1_red_one_look_is_enough(world: World) -> None:
    with fault("one-look-is-enough"), fault("ranks-above-are-not-seen"):
        _, file, _ = _peer_enabled_behind_the_back_of_a_leader(world)
    assert not world.repl(file), "without R7 the file goes before the second peer has it"


def _peer_enabled_between_two_cycles(world: World) -> str:
    world.define("north")
    first = world.enable("1", "east")
    master = world.master()
    master.cycle()
    world.enable("1", "north", "r2")
    file = _sealed(world)
    world.ship(file, first, 3)
    master.cycle()
    master.cycle()
    return file


def test_1_the_configuration_is_read_in_each_cycle(world: World) -> None:
    assert world.repl(_peer_enabled_between_two_cycles(world))


def test_1_red_the_configuration_is_remembered(world: World) -> None:
    with fault("configuration-is-remembered"):
        file = _peer_enabled_between_two_cycles(world)
    assert not world.repl(file), "without R6 the file goes before the second peer has it"


# ---- 2 and 3: a leader whose snapshot lacks a file deletes its row


def _row_deleted_by_a_leader_that_saw_no_columns(world: World) -> tuple[str, TargetKey, Master]:
    target = world.enable("1")
    m1 = world.master()
    m1.cycle()
    view = m1.look()
    file = _sealed(world)
    m2 = world.depose(m1)
    m2.cycle()
    world.ship(file, target, 3)
    with fault("ranks-above-are-not-seen"):  # else it would notice by the ranks that it was deposed
        m1.act(view)
    for _ in range(3):
        m2.cycle()
    return file, target, m2


def test_2_a_row_that_a_later_leader_made_is_not_hidden(world: World) -> None:
    file, _, _ = _row_deleted_by_a_leader_that_saw_no_columns(world)
    assert not world.repl(file), "shipped to its end, the file is done with"


def test_2_red_needed_cells_deleted_for_good(world: World) -> None:
    target = world.enable("1")
    m1 = world.master()
    m1.cycle()
    view = m1.look()
    file = _sealed(world)
    m2 = world.depose(m1)
    m2.cycle()
    assert target in world.needed(file)
    with fault("needed-deleted-for-good"), fault("ranks-above-are-not-seen"):
        m1.act(view)
    m2.cycle()
    assert not world.needed(file), "without R2 the leader writes what nobody sees: no work, stuck"


def test_3_a_finished_offset_survives_the_removal_of_a_row(world: World) -> None:
    file, target, _ = _row_deleted_by_a_leader_that_saw_no_columns(world)
    assert world.done(file) == {target: 3}


def test_3_red_done_cells_go_with_the_needed_ones(world: World) -> None:
    with fault("done-goes-with-needed"):
        file, target, m2 = _row_deleted_by_a_leader_that_saw_no_columns(world)
        world.ship(file, target, 3)  # the worker tries again, finds it all there, and writes the same at the same rank
        m2.cycle()
    assert world.done(file) == {}
    assert world.repl(file), "without R3 the file is never done with"


# ---- 4: a write that comes when everything is over


def _late_first_use(world: World) -> str:
    witness = world.tserver()
    world.log(witness, 1)
    world.enable("1")
    session, file = _used(world)
    world.kill(session)
    master = world.master()
    master.cycle()
    for target in world.config().targets_of("1"):
        world.ship(file, target.key, 3)
    master.cycle()
    master.cycle()
    world.flushed(LAST, file)
    assert master.collect() == [file]
    world.table.compact()
    world.use(LAST, file, 2, log=False)
    master.cycle()
    assert world.repl(file)
    assert world.needed(file)
    for _ in range(2):
        master.collect(1)
        world.clock.jump(LATE_MS)
    return file


def test_4_books_of_a_file_that_is_gone_are_purged_after_a_while(world: World) -> None:
    file = _late_first_use(world)
    assert (world.repl(file), world.needed(file)) == ({}, {})


def test_4_red_they_stay(world: World) -> None:
    with fault("books-of-missing-files-stay"):
        file = _late_first_use(world)
    assert world.repl(file), "without R4 they leak"


def test_4_books_of_a_file_made_after_the_listing_stay(world: World) -> None:
    world.enable("1")
    witness = world.tserver()
    world.log(witness, 1)
    master = world.master()
    seen = master.collector.look()
    _, file = _used(world)
    late = replace(seen, named=frozenset({file}))
    master.collector.void(late)
    assert world.repl(file)
    with fault("missing-is-void-at-once"):
        master.collector.void(late)
    assert not world.repl(file), "without the grace of R4 a newborn's books go"


# ---- 5 and 6: targets that are configured no more


def _disabled_with_a_closed_file_outstanding(world: World) -> str:
    world.enable("1")
    file = _sealed(world)
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
    file = _sealed(world)
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
    file = _sealed(world)
    master = world.master()
    master.cycle()
    master.fate.submit("delete_table", {"name": "table-1"})
    world.kill(next(iter(world.sessions)))
    master.recovery.run_once()
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
    file, master = _sealed(world), world.master()
    master.cycle()
    with pytest.raises(CorruptionError, match="/tables/1"):
        _unreadable_for_a_cycle(world, master)
    master.cycle()
    assert world.repl(file)


def test_7_red_unreadable_means_nothing_configured(world: World) -> None:
    world.enable("1")
    file, master = _sealed(world), world.master()
    master.cycle()
    with fault("unreadable-means-empty"):
        _unreadable_for_a_cycle(world, master)
    assert not world.repl(file), "without R6 the data is lost"


# ---- 8: the epoch counter begins again


def _coordination_store_lost(world: World) -> tuple[str, TargetKey, Master]:
    target = world.enable("1")
    session = world.tserver()
    file = world.log(session, 5)
    world.use(LAST, file, 3)
    m1 = world.master()
    world.coordination.raise_epoch(m1.session, 41)
    m1.session.close()
    m1 = world.master()
    assert m1.reign.epoch > 41
    m1.cycle()
    table = world.coordination.get(table_path("1"))
    assert table is not None
    world.coordination.close()
    shutil.rmtree(world.settings.coordination_dir)
    world.coordination = open_coordination(world.settings)
    world.define("east")
    world.coordination.put(table_path("1"), table.value)
    world.use(LAST, file, 5)
    m2 = world.master()
    assert m2.reign.epoch == 1
    return file, target, m2


def test_8_a_leader_that_meets_a_higher_rank_raises_its_epoch_above_it(world: World) -> None:
    file, target, master = _coordination_store_lost(world)
    with pytest.raises(RankAboveError):
        master.cycle()
    assert master.reign.epoch > 42
    master.cycle()
    assert world.needed(file)[target].replication_needed_offset == 5


def test_8_red_ranks_above_are_not_seen(world: World) -> None:
    with fault("ranks-above-are-not-seen"):
        file, target, master = _coordination_store_lost(world)
        for _ in range(3):
            master.cycle()
    assert world.needed(file)[target].replication_needed_offset == 3, "without R8 its writes are hidden"


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


# ---- 14: nobody is left who would write CLOSED


def _all_flushed_then_a_crash(world: World) -> str:
    target = world.enable("1")
    session, file = _used(world)
    world.flushed(LAST, file)
    world.kill(session)
    master = world.master()
    master.cycle()
    world.ship(file, target, 3)
    for _ in range(2):
        master.cycle()
    return file


def test_14_the_master_closes_the_files_of_a_dead_tserver(world: World) -> None:
    assert not world.repl(_all_flushed_then_a_crash(world))


def test_14_red_nobody_closes(world: World) -> None:
    with fault("nobody-closes"):
        file = _all_flushed_then_a_crash(world)
    assert world.repl(file), "without R10 the file is stuck"


def test_14_the_master_closes_what_a_live_tserver_sealed_and_did_not_close(world: World) -> None:
    world.enable("1")
    _, file = _used(world, 5, seal=True)
    world.use(LAST, file, 2)
    world.master().cycle()
    (status,) = world.repl(file).values()
    assert (status.state, status.replication_needed_offset) == (1, 5)


def test_14_a_log_that_its_living_owner_writes_is_not_closed(world: World) -> None:
    world.enable("1")
    _, file = _used(world)
    world.master().cycle()
    (status,) = world.repl(file).values()
    assert status.state == 0


# ---- 17 and 28: what the collector may take


def _newborn(world: World) -> str:
    session = world.tserver()
    file = world.log(session, 1)
    world.master().collect(4)
    return file


def test_17_a_log_without_reference_whose_tserver_lives_may_be_a_newborn(world: World) -> None:
    assert world.exists(_newborn(world))


def test_17_red_newborns_go(world: World) -> None:
    with fault("newborns-go"):
        file = _newborn(world)
    assert not world.exists(file), "without R17 it is deleted alive"


def _table_deleted_and_its_tserver_dead(world: World) -> str:
    world.enable("1")
    session, file = _used(world)
    master = world.master()
    master.cycle()
    world.kill(session)
    world.table.purge([CellKey(row.key, column) for row in world.table.scan(b"", b"~") for column in row.cells])
    set_table_state(world.coordination, "1", "deleting")
    for _ in range(3):
        master.cycle()
    master.collect(4)
    return file


def test_28_a_log_of_a_dead_tserver_that_nobody_refers_to_goes(world: World) -> None:
    assert not world.exists(_table_deleted_and_its_tserver_dead(world))


def test_28_red_only_sealed_logs_go(world: World) -> None:
    with fault("only-sealed-logs-go"):
        file = _table_deleted_and_its_tserver_dead(world)
    assert world.exists(file), "without R17 it is kept for ever"


# ---- 22: two tablets swap servers


def _two_tablets_swap_servers(world: World) -> dict[str, int]:
    """Tablet a writes 1-5 to w1, then 6-10 to w2; tablet b the other way round. Returns how far each log comes."""
    a, b = world.create_table("2", [b"m"])
    target = world.enable("2")
    s1, s2 = world.tserver(), world.tserver()
    w1, w2 = world.uri(s1), world.uri(s2)
    for session in (s1, s2):
        world.log(session, 1)
    world.use(a, w1, 10)
    world.use(b, w2, 10)
    world.use(a, w2, 10, [Barrier(6, w1, 5)])
    world.use(b, w1, 10, [Barrier(6, w2, 5)])
    master = world.master()
    for _ in range(6):
        master.cycle()
        files = master.books.snapshot.files
        shipping = Shipping(1, 1, random.Random(1))
        ranges = {file: next_range(entry, target, files, shipping) for file, entry in files.items()}
        for file, found in ranges.items():
            if found is not None:
                world.ship(file.decode(), target, found[1])
    return {file: world.done(file).get(target, 0) for file in (w1, w2)}


def test_22_barriers_are_offsets_so_two_tablets_that_swap_servers_both_arrive(world: World) -> None:
    assert set(_two_tablets_swap_servers(world).values()) == {10}


def test_22_red_whole_files_wait(world: World) -> None:
    with fault("whole-files-wait"):
        reached = _two_tablets_swap_servers(world)
    assert set(reached.values()) == {0}, "with barriers between whole files nothing ever moves"


# ---- 27: disabled, then enabled again


def _enabled_again_with_old_entries(world: World) -> tuple[str, TargetKey, Master]:
    old = world.enable("1")
    file = _sealed(world)
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
    _, file = _used(world)
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
