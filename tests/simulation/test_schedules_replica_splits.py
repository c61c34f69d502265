"""Directed schedules of splits of tablets with replicas: halves in place, halves on chosen hosts, with deaths between.

Each schedule is a function of a world. Rules: R1, R16, N3 and N4; requirements E-55 and E-56.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.faults import fault
from tests.support.simulation.hosted import Hosted
from tests.support.simulation.kernel import StuckError
from tests.support.simulation.network import Net
from tests.support.simulation.world import LawBrokenError, World, simulation

LONG = {"replicas.repair_after_ms": 3_600_000}
"""No host is replaced while a schedule runs."""


def filled(world: World, hosts: int = 3) -> tuple[Hosted, list[bytes]]:
    """A tablet whose replicas are the named state, and its values."""
    hosted = Hosted(world, hosts, settings=LONG)
    values = hosted.put(b"a", b"m", b"z")
    hosted.flush()
    hosted.until_same()
    return hosted, values


def on_two_hosts(world: World, settings: Mapping[str, object] | None = None) -> tuple[Hosted, list[bytes]]:
    """The same on two hosts of three; without ``settings`` a host that stays away is replaced."""
    hosted = Hosted(world, properties={"table.replicas": "2"}, settings=settings)
    values = hosted.put(b"a", b"m", b"z")
    hosted.flush()
    hosted.until_same()
    return hosted, values


def split(hosted: Hosted, onto: Sequence[str] = ()) -> None:
    """An operator splits the tablet at m."""
    hosted.world.command(hosted.west, "add_splits", "t", [b"m"], list(onto))
    hosted.world.until(hosted.west.is_served, "both halves are served")


def a_tablet_is_split(world: World) -> None:
    """Both halves are written afterwards."""
    hosted, values = filled(world)
    split(hosted)
    values += hosted.put(b"a", b"z")
    hosted.flush()
    hosted.rest_with(values)


def a_host_sleeps_through_a_split(world: World) -> None:
    """A follower has the undivided tablet when it comes back, and the halves have states that it lacks."""
    hosted, values = filled(world)
    away = hosted.followers[0]
    away.kill(power=True)
    split(hosted)
    values += hosted.put(b"a", b"z")
    hosted.flush()
    away.start()
    hosted.rest_with(values)


def a_leader_that_slept_comes_back(world: World) -> None:
    """The leader of the undivided tablet is stopped with an acknowledged record in its memory; another one leads, the
    tablet is split, and then it goes on.
    """
    hosted, values = filled(world)
    values += hosted.put(b"b")
    first = hosted.leader
    first.stop()
    hosted.until_led_by_another(first)
    split(hosted)
    values += hosted.put(b"c", b"y")
    first.resume()
    world.kernel.run_for(3)
    hosted.flush()
    hosted.rest_with(values)


def halves_lose_their_leaders(world: World) -> None:
    """Both leaders die with records in memory, right after the split."""
    hosted, values = filled(world)
    split(hosted)
    values += hosted.put(b"a", b"z")
    for host in {hosted.leader_of(extent).name: hosted.leader_of(extent) for extent in hosted.extents}.values():
        host.kill(power=True)
        host.start()
    world.until(hosted.west.is_served, "both halves are served")
    hosted.rest_with(values)


def a_half_moves_to_chosen_hosts(world: World) -> None:
    """The lower half ends up on three hosts of four, one of which had nothing of it."""
    hosted, values = filled(world, 4)
    chosen = sorted(host.name for host in hosted.west.hosts if host is not hosted.leader)
    split(hosted, chosen)
    values += hosted.put(b"a", b"z")
    hosted.rest_with(values)
    assert sorted(hosted.tablet.cells) == chosen, "the half is not on the chosen hosts"


def hosts_die_while_a_half_moves(world: World) -> None:
    """The leader of the half dies, then the host that joins, then the master."""
    hosted, values = filled(world, 4)
    joins = next(host for host in hosted.west.hosts if host.name not in hosted.tablet.cells)
    chosen = sorted(host.name for host in hosted.west.hosts if host is not hosted.leader)
    split(hosted, chosen)
    values += hosted.put(b"b")
    for host in (hosted.leader, joins):
        host.kill(power=True)
        world.kernel.run_for(1)
        host.start()
        world.until(hosted.west.is_served, "both halves are served")
        values += hosted.put(b"c", b"y")
    hosted.rest_with(values)
    assert sorted(hosted.tablet.cells) == chosen, "the half is not on the chosen hosts"


def a_disk_is_lost_in_a_split(world: World) -> None:
    """Each of two hosts is to link the files; the disk of one of them is destroyed before."""
    hosted, values = on_two_hosts(world, LONG)
    lost = hosted.followers[0]
    with world.held("rpc-divide_replica", process=lost.process):
        world.ask(hosted.west, "add_splits", "t", [b"m"], [])
        world.until_at("rpc-divide_replica", process=lost.process)
        lost.wipe()
    lost.start()
    world.until(lambda: lost.serves and hosted.west.is_served(), "both halves are served")
    values += hosted.put(b"a", b"z")
    hosted.rest_with(values)


def a_host_is_dead_before_a_split(world: World) -> None:
    """One of two hosts is dead, and its session is not yet: the tablet is served until the third host has a copy."""
    hosted, values = on_two_hosts(world)
    hosted.followers[0].kill(power=True)
    asked = world.ask(hosted.west, "add_splits", "t", [b"m"], [])
    for _ in range(5):
        world.kernel.run_for(0.5)
        if not hosted.west.is_served():
            raise LawBrokenError("nobody serves the tablet while the split waits for a host")
    values += hosted.put(b"a", b"z")
    world.until(lambda: asked.done and hosted.west.is_served(), "both halves are served")
    values += hosted.put(b"a", b"z")
    hosted.rest_with(values)


def a_host_dies_in_a_split(world: World) -> None:
    """One of two hosts dies when it is to link the files, and stays away."""
    hosted, values = on_two_hosts(world)
    dead = hosted.followers[0]
    with world.held("rpc-divide_replica", process=dead.process):
        world.ask(hosted.west, "add_splits", "t", [b"m"], [])
        world.until_at("rpc-divide_replica", process=dead.process)
        dead.kill(power=True)
    world.until(lambda: len(hosted.extents) == 2 and hosted.west.is_served(), "both halves are served")
    assert not dead.serves, "the halves waited for the host"
    values += hosted.put(b"a", b"z")
    hosted.rest_with(values)


def a_split_begins_before_a_name(world: World) -> None:
    """The newest state has its copies and is slow to be named."""
    hosted, values = filled(world)
    values += hosted.put(b"a", b"z")
    with world.held("namer", "tablet:flush"):
        hosted.flush()
        world.until_at("namer", "tablet:flush")
        asked = world.ask(hosted.west, "add_splits", "t", [b"m"], [])
        world.kernel.run_for(3)
    world.until(lambda: asked.done and hosted.west.is_served(), "both halves are served")
    hosted.rest_with(values)


def one_host_links_and_loses_its_disk(world: World) -> None:
    """The others begin late and hear nothing of the half meanwhile, and the disk of the first one is destroyed. All
    rows of the only file are those of this half: the other one does not keep it.
    """
    hosted = Hosted(world, settings=LONG)
    values = hosted.put(b"a")
    hosted.flush()
    hosted.until_same()
    first, others = hosted.leader, [host.process for host in hosted.followers]
    late = [world.hold("rpc-divide_replica", process=process) for process in others]
    with world.held("rpc-segment_offer", "get b'1;m'"):
        world.ask(hosted.west, "add_splits", "t", [b"m"], [])
        for process in others:
            world.until_at("rpc-divide_replica", process=process)
        world.kernel.run_for(60)
        first.wipe()
    for number in late:
        world.kernel.release(number)
    first.start()
    hosted.rest_with(values)


def a_peer_sends_again_after_a_split(world: World) -> None:
    """The tablet took a record of another cluster, whose sender got no answer and sends it to a half. Rule: R18."""
    hosted = Hosted(world, settings=LONG)
    east = hosted.replicate_to("east")
    world.enable(east, "t", hosted.west)
    Net.now.lose_answer = lambda _caller, method: method == "replicate"
    values = [write.value for write in world.put(east, "t", b"a")]
    world.until(lambda: bool(hosted.west.entries(hosted.extent.table_id)), "the record is here")
    hosted.flush()
    split(hosted)
    Net.now.calm()
    hosted.rest_with(values)


SCHEDULES = (
    a_tablet_is_split,
    a_host_sleeps_through_a_split,
    a_leader_that_slept_comes_back,
    halves_lose_their_leaders,
    a_half_moves_to_chosen_hosts,
    hosts_die_while_a_half_moves,
    a_disk_is_lost_in_a_split,
    a_host_is_dead_before_a_split,
    a_host_dies_in_a_split,
    a_split_begins_before_a_name,
    one_host_links_and_loses_its_disk,
    a_peer_sends_again_after_a_split,
)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_record_is_lost_or_twice_and_each_half_has_its_replicas(
    tmp_path: Path, schedule: Callable[[World], None]
) -> None:
    with simulation(tmp_path / "world") as world:
        schedule(world)


def test_a_split_ends_when_no_host_can_take_the_copies_of_a_dead_one(tmp_path: Path) -> None:
    """It would keep all other operations from the table."""
    with simulation(tmp_path / "world") as world:
        hosted = Hosted(world, hosts=2, properties={"table.replicas": "2"})
        hosted.put(b"a", b"z")
        hosted.flush()
        hosted.until_same()
        hosted.followers[0].kill(power=True)
        asked = world.ask(hosted.west, "add_splits", "t", [b"m"], [])
        world.until(lambda: asked.done, "the split ends")
        (said,) = [line for line in world.kernel.trace if "add_splits: unavailable: " in line]
        assert "1 of 2 hosts hold the data of tablet" in said
        assert "start these hosts, or repeat the split when others have copies" in said
        assert len(hosted.extents) == 1
        assert hosted.west.is_served()
        world.command(hosted.west, "delete_table", "t")


RED: Sequence[tuple[str, Callable[[World], None], str]] = (
    ("destroyed-disks-are-waited-for", a_disk_is_lost_in_a_split, "never: both halves are served"),
    ("splits-begin-without-hosts", a_host_is_dead_before_a_split, "nobody serves the tablet while the split waits"),
    ("absent-hosts-are-waited-for", a_host_dies_in_a_split, "never: both halves are served"),
    ("one-link-is-enough", one_host_links_and_loses_its_disk, "never: all is served"),
    ("busy-tablets-split", a_split_begins_before_a_name, "deleted early: wal/"),
    ("halves-forget-streams", a_peer_sends_again_after_a_split, "is applied again in tablet"),
)
"""Switches, the schedules that show them, and the laws that break."""


@pytest.mark.long
@pytest.mark.parametrize(("switch", "schedule", "law"), RED, ids=[switch for switch, _, _ in RED])
def test_without_the_rule_a_law_breaks(
    tmp_path: Path, switch: str, schedule: Callable[[World], None], law: str
) -> None:
    red = pytest.raises((LawBrokenError, StuckError), match=law)
    with fault(switch), simulation(tmp_path / "world") as world, red:
        schedule(world)
