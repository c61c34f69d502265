"""The schedules of docs/design/rules.md that are about leaders: deposed ones, and epochs that begin again.

Each by its number: green with its rule, red without. One schedule is one function that plays it and tells what is left
in the end; it is played as the code is, and with the switch that breaks the rule. They need a master only.
Rules: R2, R3, R6, R7 and R8.
"""

from __future__ import annotations

import shutil
from unittest.mock import patch

import pytest

from bookkeeper.coordination.config_tree import table_path
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import LeaseLostError
from bookkeeper.master.reign.leader import RankAboveError
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, RowPut
from bookkeeper.model import TargetKey
from tests.support.faults import fault
from tests.support.master_logs import LAST, sealed
from tests.support.master_world import Master, World

# ---- 1: a deposed leader with an old configuration


def _peer_enabled_behind_the_back_of_a_leader(world: World) -> tuple[World, str, TargetKey]:
    world.define("north")
    first = world.enable("1", "east")
    m1 = world.master()
    m1.cycle()
    old = world.config()
    second = world.enable("1", "north", "r2")
    file = sealed(world)
    m2 = world.depose(m1)
    m2.cycle()
    world.ship(file, first, 3)
    with patch.object(ReignStores, "config", lambda _stores: old):
        m1.cycle()
    return world, file, second


def test_1_a_deposed_leader_deletes_nothing_by_an_old_configuration(world: World) -> None:
    with fault("ranks-above-are-not-seen"):  # else it would notice by the ranks that it was deposed
        _, file, second = _peer_enabled_behind_the_back_of_a_leader(world)
    assert list(world.repl(file)) == [LAST]
    assert second in world.needed(file)


def test_1_a_deposed_leader_that_meets_its_successors_ranks_steps_down(world: World) -> None:
    with fault("one-reading-is-enough"), pytest.raises(LeaseLostError, match="counts as dead"):
        _peer_enabled_behind_the_back_of_a_leader(world)
    (entry,) = world.table.scan(b"~repl_", b"~repl`")
    assert world.repl(entry.key.removeprefix(b"~repl_").decode())


def test_1_red_one_reading_is_enough(world: World) -> None:
    with fault("one-reading-is-enough"), fault("ranks-above-are-not-seen"):
        _, file, _ = _peer_enabled_behind_the_back_of_a_leader(world)
    assert not world.repl(file), "without R7 the file goes before the second peer has it"


def _peer_enabled_between_two_cycles(world: World) -> str:
    world.define("north")
    first = world.enable("1", "east")
    master = world.master()
    master.cycle()
    world.enable("1", "north", "r2")
    file = sealed(world)
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
    view = m1.read_books()
    file = sealed(world)
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
    view = m1.read_books()
    file = sealed(world)
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
    shutil.rmtree(world.settings.directory / "coordination")
    world.coordination = open_coordination(world.settings)
    world.define("east")
    world.coordination.put(table_path("1"), table.value)
    world.use(LAST, file, 5)
    world.table.purge([CellKey(keys.FATE_REIGN_ROW, keys.FATE_REIGN)])  # a leader would meet that first
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


def test_8_a_leader_that_takes_over_operations_meets_a_higher_rank_first(world: World) -> None:
    m1 = world.master()
    rank = keys.master_rank(m1.reign.epoch + 41, 1)
    world.table.put([RowPut(keys.FATE_REIGN_ROW, {keys.FATE_REIGN: b""})], rank)
    with pytest.raises(RankAboveError):
        m1.fate.store.load()
    assert keys.master_rank(m1.reign.epoch, 0) > rank
    assert m1.fate.store.load() == []


def test_8_red_ranks_above_are_not_seen(world: World) -> None:
    with fault("ranks-above-are-not-seen"):
        file, target, master = _coordination_store_lost(world)
        for _ in range(3):
            master.cycle()
    assert world.needed(file)[target].replication_needed_offset == 3, "without R8 its writes are hidden"
