"""Tablets move between the Volume and hosts: no switch without copies, late names lose, tables that have to move."""

from __future__ import annotations

import pytest

from bookkeeper.config.table_properties import TableProperties
from bookkeeper.errors import UnavailableError
from bookkeeper.master.index.snapshot import tablet_view
from bookkeeper.master.index.tablet_replicas import replicas_of
from bookkeeper.master.operations.hosts.change_store import change_store_args
from bookkeeper.master.operations.replica_hosts import COPIES_WAIT_MS
from bookkeeper.master.operations.split_merge import STORE_KIND
from bookkeeper.master.replicas.store_plan import tables_elsewhere
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import FlushState
from tests.support.faults import fault
from tests.support.hosted_scenes import HOSTED, TO_HOSTS, TO_VOLUME
from tests.support.operation_scenes import NAME, Scene
from tests.support.scripted_tserver import ScriptedTServer


def rows(scene: Scene) -> list[bytes]:
    """The rows of the table's tablets."""
    table_id = scene.world.config().table_named(NAME).table_id
    return [row.key for row in scene.world.table.scan(*keys.table_section(table_id)) if keys.is_tablet(row)]


def replicas(scene: Scene) -> list[int]:
    """The number of replicas of each tablet."""
    found = [scene.world.table.get(row, ("tablet", "location", keys.REPLICA_FAMILY)) for row in rows(scene)]
    return [len(tablet_view(row).replicas) for row in found if row is not None]


STEP_MS = 300
"""An operation that waits for copies looks more often."""
NAMES = ("tablet", "segment", keys.REPLICA_FAMILY)


def step_until(scene: Scene, step: str, steps: int = 40) -> None:
    """Steps of the operation until it is at this one, and some more there, in less than it waits."""
    assert steps * STEP_MS < COPIES_WAIT_MS
    for _ in range(steps):
        scene.world.clock.jump(STEP_MS)
        scene.master.fate.step_once()
    (running,) = [running for running in scene.master.fate.pending() if not running.ended]
    assert running.step == step


def names(scene: Scene) -> list[tuple[tuple[str, ...], list[str]]]:
    """The files of each tablet's named state, and those of which it has a cell."""
    found = []
    for row in rows(scene):
        cells = scene.world.table.get(row, NAMES)
        assert cells is not None
        state = FlushState.decode(cells.cells[keys.FLUSH].value)
        found.append((state.segments, sorted(map(keys.parse_file, cells.family("segment")))))
    return found


def to_hosts_with_one_copy(scene: Scene) -> None:
    """h2 and h3 can't copy; each tablet is to have two replicas, which need two copies."""
    args = HOSTED[TO_HOSTS].prepare(scene)
    for host in scene.hosts[1:]:
        host.trouble["take_replica"] = UnavailableError("the disk is full")
    scene.master.fate.submit(STORE_KIND, args)


def test_n3_a_tablet_is_placed_on_hosts_only_when_enough_of_them_have_its_files(scene: Scene) -> None:
    to_hosts_with_one_copy(scene)
    step_until(scene, "take")
    for host in scene.hosts:
        host.trouble.clear()
    HOSTED[TO_HOSTS].go_on(scene)
    assert replicas(scene) == [2, 2]


def test_n3_red_a_tablet_is_placed_on_hosts_with_too_few_copies(scene: Scene) -> None:
    to_hosts_with_one_copy(scene)
    with fault("a-move-needs-no-copies"):
        step_until(scene, "place")
    assert sum(len(host.copied) for host in scene.hosts) == 4, "two tablets of two files have one copy each"


def end_session(scene: Scene, host: ScriptedTServer) -> None:
    """A host dies."""
    scene.world.kill(host.session)


def test_tablets_go_back_to_the_volume_when_live_hosts_cannot_copy_them(scene: Scene) -> None:
    """The hosts that failed are not chosen again for a while."""
    period_ms = scene.world.settings.replicas.repair_after_ms
    scene.late_ms = period_ms / 10
    to_hosts_with_one_copy(scene)
    step_until(scene, "take")
    HOSTED[TO_HOSTS].go_on(scene)
    assert replicas(scene) == [0, 0]
    assert names(scene) == [((f"s/{n}/first", f"s/{n}/whole"), [f"s/{n}/first", f"s/{n}/whole"]) for n in (1, 2)]
    for host in scene.hosts:
        host.trouble.clear()
    scene.run(STORE_KIND, change_store_args(NAME))
    assert replicas(scene) == [0, 0], "a host that failed is chosen at once"
    scene.world.clock.jump(period_ms)
    HOSTED[TO_HOSTS].run(scene, change_store_args(NAME))
    assert replicas(scene) == [2, 2]


def hosts_die_before_they_copy(scene: Scene) -> None:
    """Two of four, each chosen for a tablet; their sessions end while the operation waits for them."""
    args = HOSTED[TO_HOSTS].prepare(scene)
    scene.start_host("h4")
    for host in scene.hosts:
        host.trouble["take_replica"] = UnavailableError("the machine is down")
    scene.master.fate.submit(STORE_KIND, args)
    step_until(scene, "take")
    for host in scene.hosts[1:3]:
        end_session(scene, host)
    for host in scene.hosts:
        host.trouble.clear()


def test_tablets_go_to_other_hosts_when_the_chosen_ones_die(scene: Scene) -> None:
    hosts_die_before_they_copy(scene)
    HOSTED[TO_HOSTS].go_on(scene)
    assert replicas(scene) == [2, 2]
    found = [scene.world.table.get(row, (keys.REPLICA_FAMILY,)) for row in rows(scene)]
    assert {one.host for row in found if row is not None for one in replicas_of(row)} == {"h1", "h4"}


def test_red_tablets_wait_for_ever_for_hosts_that_died(scene: Scene) -> None:
    hosts_die_before_they_copy(scene)
    with fault("moves-never-turn-back"), pytest.raises(AssertionError, match=r"something does not end: .* at take"):
        HOSTED[TO_HOSTS].go_on(scene)


def to_volume_without_files(scene: Scene) -> None:
    """No host can publish the files."""
    args = HOSTED[TO_VOLUME].prepare(scene)
    for host in scene.hosts:
        host.trouble["publish_replica"] = UnavailableError("the Volume is full")
    scene.master.fate.submit(STORE_KIND, args)


def test_replicas_stay_until_the_volume_has_the_files(scene: Scene) -> None:
    to_volume_without_files(scene)
    step_until(scene, "publish")
    assert replicas(scene) == [2, 2]
    for host in scene.hosts:
        host.trouble.clear()
    HOSTED[TO_VOLUME].go_on(scene)
    assert replicas(scene) == [0, 0]


def test_tablets_are_served_while_the_volume_takes_no_files(scene: Scene) -> None:
    to_volume_without_files(scene)
    step_until(scene, "publish")
    before = names(scene)
    HOSTED[TO_VOLUME].go_on(scene)
    assert replicas(scene) == [2, 2]
    assert names(scene) == before
    assert not any("unload" in order for host in scene.hosts for order in host.orders)


def test_tablets_stay_on_hosts_when_the_volume_takes_no_more_files(scene: Scene) -> None:
    """It took those of before, and fills when nobody serves the tablets."""
    args = HOSTED[TO_VOLUME].prepare(scene)
    full = UnavailableError("the Volume is full")

    def fill(method: str) -> None:
        if method == "unload_tablet":
            for host in scene.hosts:
                host.trouble["publish_replica"] = full

    for host in scene.hosts:
        host.look = fill
    scene.master.fate.submit(STORE_KIND, args)
    step_until(scene, "write")
    before = names(scene)
    HOSTED[TO_VOLUME].go_on(scene)
    assert replicas(scene) == [2, 2]
    assert names(scene) == before


def test_red_replicas_go_although_the_volume_lacks_the_files(scene: Scene) -> None:
    to_volume_without_files(scene)
    with fault("a-move-needs-no-copies"):
        step_until(scene, "place")
    assert replicas(scene) == [0, 0], "the files are nowhere that the books name"


def test_n1_a_late_name_of_an_earlier_leader_is_hidden_after_a_move(scene: Scene) -> None:
    play = HOSTED[TO_VOLUME]
    args = play.prepare(scene)
    row = rows(scene)[0]
    before = scene.world.table.get(row, ("tablet", "segment"))
    assert before is not None
    play.run(scene, args)
    state = FlushState.decode(before.cells[keys.FLUSH].value)
    late = FlushState(state.flush_id + 1, {}, 9, 9, {}, (), ("tables/1/t-00000/late.parquet",))
    scene.world.table.put([RowPut(row, {keys.FLUSH: late.encode()})], late.flush_id)
    after = scene.world.table.get(row, ("tablet", "segment"))
    assert after is not None
    named = FlushState.decode(after.cells[keys.FLUSH].value)
    assert named.flush_id > late.flush_id
    assert named.segments == tuple(sorted(keys.parse_file(name) for name in after.family("segment")))
    assert named.segments == tuple(sorted(keys.parse_file(name) for name in before.family("segment"))), (
        "the Volume has the files under the names that the hosts have"
    )


def test_tables_move_when_their_tablets_are_elsewhere_and_enough_hosts_live(scene: Scene) -> None:
    HOSTED[TO_HOSTS].prepare(scene)
    table_id = scene.world.config().table_named(NAME).table_id
    found = [scene.world.table.get(row, ("tablet", "location", keys.REPLICA_FAMILY)) for row in rows(scene)]
    views = [tablet_view(row) for row in found if row is not None]
    two, one = TableProperties(replicas=2), TableProperties()
    assert tables_elsewhere(views, {table_id: two}, 2) == {table_id}
    assert tables_elsewhere(views, {table_id: two}, 1) == set(), "it would wait for hosts that are not there"
    assert tables_elsewhere(views, {table_id: one}, 0) == set()
    assert tables_elsewhere(views, {}, 3) == set(), "the table is being made or deleted"
