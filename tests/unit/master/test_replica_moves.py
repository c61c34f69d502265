"""Moves of replicas to chosen hosts: what the operation waits for, and what it asks of the repair."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from bookkeeper.coordination.config_changes import create_table_record, remove_table_record, set_table_state
from bookkeeper.coordination.config_tree import TableConfig, read_config
from bookkeeper.errors import InvalidInputError, NotFoundError, RefusedError, UnavailableError
from bookkeeper.master.fate.engine import State
from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.index.tablet_replicas import TabletReplica
from bookkeeper.master.operations.hosts.replica_moves import (
    MOVE_KIND,
    Standing,
    check_hosts,
    move_args,
    moves_under_way,
    standing_of,
)
from bookkeeper.master.operations.split_merge import SPLIT_KIND
from bookkeeper.master.splits.split_rules import shares_files
from bookkeeper.metadata import keys
from bookkeeper.metadata.values import JOINING, VOTER, FateOp, ReplicaCell, ReplicaRole
from bookkeeper.model import Extent
from tests.support import move_scenes
from tests.support.border_world import held_row, hold
from tests.support.master_world import LATE_MS
from tests.support.operation_scenes import NAME, Scene

CHOSEN = ("h3", "h4")
EVERY_HOST = ("h1", "h2", "h3", "h4", "h5")


def view(**roles: ReplicaRole) -> TabletView:
    """A tablet on these hosts."""
    replicas = tuple(TabletReplica(host, ReplicaCell(f"p-{host}", "d", role)) for host, role in roles.items())
    return TabletView(b"1;m", Extent("1", b"m", None), "t-0", "s", "a:1", None, 0, replicas)


@pytest.mark.parametrize(
    ("tablet", "able", "standing"),
    [
        (view(h1=VOTER, h2=VOTER), EVERY_HOST, Standing.MOVING),
        (view(h1=VOTER, h2=VOTER, h3=JOINING), EVERY_HOST, Standing.MOVING),
        (view(h2=JOINING, h3=VOTER, h4=VOTER), EVERY_HOST, Standing.MOVING),
        (view(h3=VOTER), EVERY_HOST, Standing.MOVING),
        (view(h3=VOTER, h4=VOTER), EVERY_HOST, Standing.THERE),
        (view(h3=VOTER, h4=VOTER), ("h1",), Standing.THERE),
        (view(h1=VOTER, h3=VOTER), ("h1", "h2", "h3"), Standing.WITHOUT),
        (view(h1=VOTER, h3=VOTER), ("h2", "h3"), Standing.MOVING),
        (view(h1=VOTER, h3=JOINING), ("h1", "h3"), Standing.MOVING),
        (view(h1=VOTER, h3=VOTER, h4=VOTER), EVERY_HOST, Standing.MOVING),
        (view(), EVERY_HOST, Standing.THERE),
    ],
)
def test_how_far_a_tablet_is(tablet: TabletView, able: tuple[str, ...], standing: Standing) -> None:
    assert standing_of(tablet, CHOSEN, able, 2) is standing


def test_more_replicas_than_chosen_hosts_are_no_reason_to_wait() -> None:
    assert standing_of(view(h1=VOTER, h3=VOTER, h4=VOTER), CHOSEN, EVERY_HOST, 3) is Standing.THERE


def test_hosts_are_refused_in_words() -> None:
    table = TableConfig("1", "t", "online", (), {"table.replicas": "2"}, ())
    check_hosts(table, CHOSEN, EVERY_HOST)
    with pytest.raises(InvalidInputError, match=r"has table.replicas = 2: name 2 hosts"):
        check_hosts(table, ("h3", "h3"), EVERY_HOST)
    with pytest.raises(RefusedError, match=r"h9 can't take replicas now .*; the hosts that can are h1, h2"):
        check_hosts(table, ("h1", "h9"), EVERY_HOST)
    with pytest.raises(InvalidInputError, match="it has no hosts to choose"):
        check_hosts(replace(table, properties={}), CHOSEN, EVERY_HOST)


@dataclass
class Pending:
    """A running operation."""

    op: FateOp
    step: str
    state: State = field(default_factory=dict)


def test_the_repair_gets_the_hosts_only_when_the_tablet_has_files_of_its_own() -> None:
    op = FateOp(MOVE_KIND, move_args("t", [b"m", None], CHOSEN), 1)
    preparing = moves_under_way([Pending(op, "rewrite"), Pending(FateOp(SPLIT_KIND, {}, 1), "settle")])
    assert (preparing.chosen, preparing.are_prepared) == ({}, True)
    found = moves_under_way([Pending(op, "settle", {"table_id": "1"})])
    rows = [keys.tablet_row("1", b"m"), keys.tablet_row("1", None)]
    assert (found.chosen, found.are_prepared) == (dict.fromkeys(rows, frozenset(CHOSEN)), False)
    assert moves_under_way([Pending(op, "failed")]).chosen == {}


def steps(scene: Scene, count: int = 6, pause_ms: int = LATE_MS) -> None:
    """Some steps of the master."""
    for _ in range(count):
        scene.world.clock.jump(pause_ms)
        scene.master.fate.step_once()


def test_no_host_is_asked_for_while_the_tablet_shares_a_file(scene: Scene) -> None:
    running = scene.master.fate.submit(MOVE_KIND, move_scenes.prepare(scene))
    steps(scene)
    row = scene.world.table.get(move_scenes.row_of(scene))
    assert row is not None
    assert shares_files(row)
    assert running.step == "rewrite", "a host would get rows of another tablet"
    assert [extent.end_row for extent in scene.hosts[0].compactions] == [b"m"]
    move_scenes.finish(scene)
    assert running.error is None
    row = scene.world.table.get(move_scenes.row_of(scene))
    assert row is not None
    assert not shares_files(row)


def test_it_ends_in_words_when_the_tablet_is_whole_without_a_chosen_host(scene: Scene) -> None:
    args = move_scenes.prepare(scene)
    running = scene.master.fate.submit(MOVE_KIND, {**args, "hosts": ["h9"]})
    while running.step != "settle":
        put = held_row(move_scenes.row_of(scene), {}, 1, (scene.file, 1), serial=2)
        hold(scene.world.table, put, serial=2)
        steps(scene, 1)
    assert moves_under_way([running]).chosen == {move_scenes.row_of(scene): frozenset({"h9"})}
    steps(scene, 3, 1_000)
    assert not running.ended, "a host that is away for a moment is given up"
    steps(scene, 2, scene.world.settings.replicas.repair_after_ms)
    assert isinstance(running.error, UnavailableError)
    assert "because h9 can't take them: start these hosts, and repeat the command" in running.error.message


def test_a_row_that_ends_no_tablet_any_more_is_left_out(scene: Scene) -> None:
    move_scenes.prepare(scene)
    running = scene.master.fate.submit(MOVE_KIND, move_args(NAME, [b"zz"], ["h2"]))
    steps(scene)
    assert running.ended
    assert running.error is None


def test_it_ends_when_another_table_has_the_name(scene: Scene) -> None:
    args = move_scenes.prepare(scene)
    running = scene.master.fate.submit(MOVE_KIND, {**args, "hosts": ["h9"]})
    while running.step != "settle":
        put = held_row(move_scenes.row_of(scene), {}, 1, (scene.file, 1), serial=2)
        hold(scene.world.table, put, serial=2)
        steps(scene, 1)
    coordination = scene.world.coordination
    (table,) = (one for one in read_config(coordination).tables.values() if one.name == NAME)
    remove_table_record(coordination, table.table_id)
    create_table_record(coordination, "99", NAME, table.groups, table.properties)
    set_table_state(coordination, "99", "online")
    steps(scene, 1)
    assert isinstance(running.error, NotFoundError), "it waits for ever, and so does each later move of this name"
