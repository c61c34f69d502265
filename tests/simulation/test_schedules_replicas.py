"""Directed schedules of tablets with replicas: the real leaders, followers, logs and books over simulated hosts.

Each schedule is a function of a world. It is played as the code is, and with the switches that break one of its rules.
Rules: N1, N3, N4, N5, N6, P1, P5 and P10 of the page *The machine of replicas*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from bookkeeper.model import RowRange
from tests.support.faults import fault
from tests.support.simulation.hosted import ELECTED, Hosted, node_of
from tests.support.simulation.network import Net, once
from tests.support.simulation.world import LawBrokenError, World, simulation

Settings = Mapping[str, object] | None
"""Settings of a cluster beside those of each simulation."""


def all_replicas_become_the_named_state(world: World) -> None:
    """Writes and flushes, and the leader compacts meanwhile."""
    hosted = Hosted(world)
    values = []
    for _ in range(3):
        values += hosted.put(b"a", b"m")
        hosted.flush()
    hosted.until_same()
    hosted.rest_with(values)


def the_leader_dies(world: World, settings: Settings = None) -> None:
    """It has records in memory, and states that no other host has."""
    hosted = Hosted(world, settings=settings)
    values = hosted.put(b"a")
    hosted.flush()
    hosted.until_same()
    with world.held("sender-"):
        values += hosted.put(b"b")
        hosted.flush()
        values += hosted.put(b"c")
        hosted.leader.kill(power=True)
        world.until(hosted.west.is_served, "another host leads")
    hosted.rest_with(values)


def tablets_split_and_merge(world: World) -> None:
    """A host loses its power before the split, another one is away during the merge."""
    hosted = Hosted(world)
    values = hosted.put(b"a", b"m")
    hosted.flush()
    hosted.until_same()
    lost = hosted.followers[0]
    lost.kill(power=True)
    world.command(hosted.west, "add_splits", "t", [b"g"], [])
    world.until(hosted.west.is_served, "the parts are served")
    assert len(hosted.extents) == 2
    values += hosted.put(b"b", b"n")
    hosted.flush()
    lost.start()
    hosted.until_same()
    away = hosted.leader_of(hosted.extents[0])
    values += hosted.put(b"c", b"o")
    away.kill(power=True)
    world.command(hosted.west, "merge_tablets", "t", RowRange(None, None))
    world.until(hosted.west.is_served, "the merged tablet is served")
    assert len(hosted.extents) == 1
    values += hosted.put(b"d")
    away.start()
    hosted.rest_with(values)


def a_name_comes_late(world: World, settings: Settings = None) -> None:
    """A leader is stopped in front of its name; the next leader has replayed its logs and leads when it goes on."""
    hosted = Hosted(world, settings=settings)
    values = hosted.put(b"a")
    hosted.flush()
    hosted.until_same()
    values += hosted.put(b"b")
    first = hosted.leader
    with world.held("namer", "tablet:flush", process=first.process):
        hosted.flush()
        world.until_at("namer", "tablet:flush", process=first.process)
        first.stop()
        hosted.until_led_by_another(first)
    values += hosted.put(b"c")
    first.resume()
    world.kernel.run_for(3)
    hosted.flush()
    hosted.rest_with(values)


def a_flush_comes_late(world: World) -> None:
    """A leader is stopped while it flushes; the next one leads, writes and names when it goes on."""
    hosted = Hosted(world)
    values = hosted.put(b"a")
    first = hosted.leader
    with world.held("write a segment", process=first.process):
        hosted.begin_flush()
        world.until_at("write a segment", process=first.process)
        first.stop()
        hosted.until_led_by_another(first)
    values += hosted.put(b"b")
    hosted.flush()
    first.resume()
    world.kernel.run_for(3)
    hosted.rest_with(values)


def two_hosts_lead(world: World, settings: Settings = None) -> None:
    """A leader goes on although its session is over, beside the next one; both send to the third host."""
    hosted = Hosted(world, settings=settings)
    values = hosted.put(b"a")
    hosted.flush()
    hosted.until_same()
    first = hosted.leader
    values += hosted.put(b"b")
    with world.held("lease", process=first.process):
        hosted.flush()
        hosted.west.expire(node_of(first))
        hosted.until_led_by_another(first)
        values += hosted.put(b"c")
        hosted.flush()
        world.kernel.run_for(3)
    hosted.rest_with(values)


def a_host_is_away_for_many_changes(world: World) -> None:
    """A follower comes back when the leader has compacted what it lacks."""
    hosted = Hosted(world, settings={"replicas.repair_after_ms": 3_600_000})
    values = hosted.put(b"a")
    hosted.flush()
    hosted.until_same()
    away = hosted.followers[0]
    away.kill(power=True)
    for _ in range(6):
        values += hosted.put(b"a", b"z")
        hosted.flush()
        world.kernel.run_for(3)
    away.start()
    hosted.rest_with(values)


def a_disk_is_wiped(world: World, settings: Settings = None) -> None:
    """A follower loses its disk; the host gets a new replica, or another host does."""
    hosted = Hosted(world, hosts=4, settings=settings)
    values = hosted.put(b"a")
    hosted.flush()
    hosted.until_same()
    wiped = hosted.followers[0]
    wiped.wipe()
    values += hosted.put(b"b")
    hosted.flush()
    wiped.start()
    hosted.rest_with(values)


def a_disk_is_wiped_while_nobody_writes(world: World) -> None:
    """A follower loses its disk, and the tablet gets no new state."""
    hosted = Hosted(world)
    values = hosted.put(b"a")
    hosted.flush()
    hosted.until_same()
    wiped = hosted.followers[0]
    wiped.wipe()
    wiped.start()
    hosted.rest_with(values)


def a_state_waits_for_the_copy_of_a_wiped_disk(world: World) -> None:
    """One of two replicas loses its disk, and the row has one voter while it joins again. A majority of the table's
    replicas is two.
    """
    hosted = Hosted(world, hosts=2, properties={"table.replicas": "2"})
    values = hosted.put(b"a")
    hosted.flush()
    hosted.until_same()
    wiped = hosted.followers[0]
    wiped.wipe()
    wiped.start()
    for row in (b"b", b"c", b"d"):
        values += hosted.put(row)
        hosted.flush()
    hosted.rest_with(values)


def messages_are_lost_late_and_repeated(world: World) -> None:
    """Each offer and each part may be lost, come late or come twice."""
    hosted = Hosted(world)
    values, dice = [], world.kernel.rng

    def arrivals(caller: str, method: str) -> Sequence[int]:
        if not method.startswith("segment_"):
            return once(caller, method)
        return [dice.randrange(2_000_000_000) for _ in range(dice.choice((0, 1, 1, 2, 3)))]

    Net.now.arrivals = arrivals
    for _ in range(4):
        values += hosted.put(b"a", b"m")
        hosted.flush()
        world.kernel.run_for(2)
    Net.now.calm()
    hosted.rest_with(values)


def a_state_waits_for_its_copies(world: World) -> None:
    """No follower gets a new state; the leader compacts and collects meanwhile."""
    hosted = Hosted(world)
    with world.held("compactor"):
        values = hosted.put(b"a")
        hosted.flush()
        values += hosted.put(b"b")
        hosted.flush()
        hosted.until_same()
    with world.held("sender-"):
        world.until(lambda: len(hosted.root_of(hosted.leader)) == 1, "the leader has compacted")
        world.kernel.run_for(7)
    hosted.rest_with(values)


def a_disk_is_full_at_the_end_of_a_segment(world: World) -> None:
    """A follower has the content, and no room for the manifest that lists it. When there is room again, the leader goes
    on, and compacts the files of this segment.
    """
    hosted, words = Hosted(world), ("/manifest:", "write")
    values = hosted.put(b"a")
    hosted.flush()
    hosted.until_same()
    follower = hosted.followers[0]
    values += hosted.put(b"b")
    with world.held(*words, process=follower.process):
        hosted.begin_flush()
        world.until_at(*words, process=follower.process)
        follower.fill()
    world.kernel.run_for(2)
    follower.make_room()
    for _ in range(6):
        values += hosted.put(b"a", b"z")
        hosted.flush()
        world.kernel.run_for(3)
    hosted.rest_with(values)


def content_is_on_its_way_when_the_leader_changes(world: World) -> None:
    """The content of a deposed leader's segment comes after a segment of the next one."""
    hosted = Hosted(world)
    values = hosted.put(b"a")
    hosted.flush()
    hosted.until_same()
    first, (second, third) = hosted.leader, hosted.followers
    values += hosted.put(b"b")
    with world.held("sender-", process=first.process):
        hosted.flush()
    late = [hosted.held_call(host, "segment_transit") for host in (second, third)]
    first.kill()
    hosted.until_led_by_another(first)
    follower = next(host for host in (second, third) if host is not hosted.leader)
    hosted.flush()
    world.until(lambda: hosted.root_of(follower) == hosted.root_of(hosted.leader), "the follower has the next state")
    before = hosted.root_id_of(follower)
    late[(second, third).index(follower)]()
    if (after := hosted.root_id_of(follower)) != before:
        raise LawBrokenError(f"overtaken: a deposed leader's state {after} replaces {before} at {follower.name}")
    hosted.rest_with(values)


def a_name_comes_after_the_tablet_has_moved(world: World) -> None:
    """A live leader is slow to name; its host is drained, another one replays the log and dies with it in memory."""
    hosted = Hosted(world, hosts=4, settings={"replicas.repair_after_ms": 3_600_000})
    values = hosted.put(b"a")
    hosted.flush()
    hosted.until_same()
    first = hosted.leader
    slow = world.hold("namer", "tablet:flush", process=first.process)
    values += hosted.put(b"b")
    hosted.flush()
    world.command(hosted.west, "drain_host", first.name, True)
    hosted.until_led_by_another(first)
    second = hosted.leader
    with world.held("flusher", process=second.process):
        world.kernel.run_for(1)
        world.kernel.release(slow)
        world.kernel.run_for(3)
        second.kill(power=True)
    hosted.rest_with(values)


def a_peer_gets_each_record_once(world: World) -> None:
    """The table replicates to another cluster; its leader dies twice, the second time with its disk."""
    hosted = Hosted(world, hosts=4)
    east = hosted.replicate_to("east")
    values = hosted.put(b"a")
    for disk_too in (False, True):
        hosted.flush()
        with world.held("sender-"):
            values += hosted.put(b"a", b"m")
            hosted.flush()
            values += hosted.put(b"z")
            first = hosted.leader
            first.wipe() if disk_too else first.kill(power=True)
            hosted.until_led_by_another(first)
        first.start()
    hosted.rest_with(values)
    found = sorted(entry.value for entry in east.entries(east.table_id("t")))
    if found != sorted(values):
        raise LawBrokenError(f"the peer has {found}: want {sorted(values)}")


SCHEDULES: Sequence[Callable[[World], None]] = (
    all_replicas_become_the_named_state,
    tablets_split_and_merge,
    the_leader_dies,
    a_name_comes_late,
    a_flush_comes_late,
    two_hosts_lead,
    a_host_is_away_for_many_changes,
    a_disk_is_wiped,
    a_disk_is_wiped_while_nobody_writes,
    a_state_waits_for_the_copy_of_a_wiped_disk,
    messages_are_lost_late_and_repeated,
    a_state_waits_for_its_copies,
    a_disk_is_full_at_the_end_of_a_segment,
    content_is_on_its_way_when_the_leader_changes,
    a_name_comes_after_the_tablet_has_moved,
    a_peer_gets_each_record_once,
)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_record_is_lost_or_twice_and_replicas_are_equal(tmp_path: Path, schedule: Callable[[World], None]) -> None:
    with simulation(tmp_path / "world") as world:
        schedule(world)


@pytest.mark.parametrize("schedule", [the_leader_dies, two_hosts_lead, a_disk_is_wiped, a_name_comes_late])
def test_e19_leaders_that_are_elected_through_coordination_break_no_law(
    tmp_path: Path, schedule: Callable[[World, Settings], None]
) -> None:
    with simulation(tmp_path / "world") as world:
        schedule(world, ELECTED)


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_table_can_be_deleted_when_all_its_disks_are_destroyed(tmp_path: Path, is_flushed: bool) -> None:
    with simulation(tmp_path / "world") as world:
        hosted = Hosted(world, properties={"table.replicas": "2"})
        hosted.put(b"a")
        if is_flushed:
            hosted.flush()
            hosted.until_same()
        lost = [hosted.leader, *hosted.followers]
        for host in lost:
            host.wipe()
        for host in lost:
            host.start()
        world.until(lambda: all(host.serves for host in hosted.west.hosts), "all hosts are back")
        assert not hosted.west.is_served()
        world.command(hosted.west, "delete_table", "t")
        world.rest(60.0)
        assert hosted.west.unrest() == []


RED: Sequence[tuple[str, Callable[[World], None], str]] = (
    ("replay-is-not-remembered", a_name_comes_after_the_tablet_has_moved, "deleted early: .* lacks"),
    ("one-copy-is-enough", a_host_is_away_for_many_changes, "N3: .* is durable on"),
    ("lost-voters-need-no-copy", a_state_waits_for_the_copy_of_a_wiped_disk, "N3: .* is durable on"),
    ("ack-at-accept", messages_are_lost_late_and_repeated, "N3: .* is durable on"),
    ("ack-before-sync", the_leader_dies, "not durable: the manifest of"),
    (
        "wiped-disk-is-the-same and copies-are-not-confirmed and older-disks-keep-their-name",
        a_disk_is_wiped_while_nobody_writes,
        "has no replica of tablet",
    ),
    ("deletion-by-local-root", a_state_waits_for_its_copies, "N4: h1 deletes .*, which state"),
    ("transfers-end-on-the-disk", a_disk_is_full_at_the_end_of_a_segment, "rest; left over in west: h2 has"),
    ("term-without-major and no-forced-major", the_leader_dies, "has root .* named is"),
    ("start-from-own-root", a_name_comes_late, "has another list of state"),
    ("segment-not-asked-again", content_is_on_its_way_when_the_leader_changes, "overtaken: a deposed leader"),
)
"""Switches, the schedules that show them, and the laws that break."""


@pytest.mark.long
@pytest.mark.parametrize(("switch", "schedule", "law"), RED, ids=[switch for switch, _, _ in RED])
def test_without_the_rule_a_law_breaks(
    tmp_path: Path, switch: str, schedule: Callable[[World], None], law: str
) -> None:
    red = pytest.raises(LawBrokenError, match=law)
    with fault(switch), simulation(tmp_path / "world") as world, red:
        schedule(world)
