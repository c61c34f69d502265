"""The rights of administrators at a cluster or a table that is read-only for users."""

from __future__ import annotations

import pytest

from bookkeeper.coordination.config_changes import set_read_only, set_table_state
from bookkeeper.errors import ReadOnlyError
from bookkeeper.master.fate.engine import Args
from bookkeeper.master.operations.properties import change_properties_args
from bookkeeper.master.operations.read_only import read_only_args
from bookkeeper.master.operations.table_lifecycle import create_table_args
from tests.support.faults import fault
from tests.support.master_world import Master, World


@pytest.fixture
def master(world: World) -> Master:
    """The leader of a cluster with one table, ``table-1``."""
    return world.master()


def _run(master: Master, kind: str, args: Args) -> None:
    running = master.fate.submit(kind, args)
    master.run_fate()
    master.fate.wait(running, 0)


def test_the_switch_is_in_force_when_every_live_tserver_has_confirmed(world: World, master: Master) -> None:
    session = world.tserver()
    running = master.fate.submit("set_read_only", read_only_args(True))
    master.run_fate()
    assert (running.step, running.ended) == ("confirm", False)
    assert session in running.note
    world.kill(session)
    world.clock.jump(1_000)
    master.run_fate()
    assert running.ended
    assert world.config().read_only


def test_without_confirmation_the_switch_is_done_while_a_tserver_takes_writes(world: World, master: Master) -> None:
    world.tserver()
    with fault("all-are-confirmed"):
        _run(master, "set_read_only", read_only_args(True))
    assert world.config().read_only, "without R14 that tserver takes the next write of a user"


def test_on_and_off_follow_each_other(world: World, master: Master) -> None:
    last = [master.fate.submit("set_read_only", read_only_args(on)) for on in (True, False)][-1]
    master.run_fate()
    assert last.ended
    assert not world.config().read_only


def test_a_table_that_is_read_only_is_not_deleted(world: World, master: Master) -> None:
    _run(master, "change_properties", change_properties_args("table-1", {"table.read_only": "true"}, []))
    with pytest.raises(ReadOnlyError, match="readonly -t table-1 off"):
        _run(master, "delete_table", {"name": "table-1"})
    _run(master, "change_properties", change_properties_args("table-1", {}, ["table.read_only"]))
    _run(master, "delete_table", {"name": "table-1"})
    assert not world.config().tables


def test_nothing_is_deleted_on_a_read_only_cluster_but_tables_for_replicas_can_be_made(
    world: World, master: Master
) -> None:
    set_read_only(world.coordination, True)
    with pytest.raises(ReadOnlyError, match="readonly --cluster off"):
        _run(master, "delete_table", {"name": "table-1"})
    _run(master, "create_table", create_table_args("replica", [], [], {}))
    assert world.config().table_named("replica").state == "online"


def test_a_started_deletion_is_finished_on_a_read_only_cluster(world: World, master: Master) -> None:
    set_table_state(world.coordination, "1", "deleting")
    set_read_only(world.coordination, True)
    _run(master, "delete_table", {"name": "table-1"})
    assert not world.config().tables
