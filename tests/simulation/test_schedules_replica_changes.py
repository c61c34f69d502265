"""Directed schedules of a change of ``table.replicas`` while users write: tablets move to hosts, and to the Volume.

Each schedule is a function of a world. Masters and hosts die at each step of a move, stop and go on, or lose their
disks. It is played as the code is, and with the switches that break its rules. Rules: R1, R7, N1, N3 and N4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from bookkeeper.master.gc.orphan_files import SCAN_INTERVAL_MS
from bookkeeper.master.index.tablet_replicas import replicas_of
from bookkeeper.metadata import keys
from bookkeeper.model import Extent, RowRange
from tests.support.faults import fault
from tests.support.simulation.hosted import Hosted
from tests.support.simulation.hosts import Host
from tests.support.simulation.kernel import StuckError
from tests.support.simulation.laws import judge_at_rest
from tests.support.simulation.replicas import names_in
from tests.support.simulation.world import LawBrokenError, World, simulation

ROWS = (b"a", b"m", b"z")

UNHURRIED = {"replicas.repair_after_ms": 3_600_000}
"""No host is replaced because it is away."""


def replicas(count: int) -> Mapping[str, str]:
    """The properties of a table with so many replicas; one lies on the Volume."""
    return {"table.replicas": str(count)}


class Changing:
    """A table of a cluster with hosts, and a peer. Its two tablets come from a split and share a file; or they are
    there from the beginning, ``apart``: then their replicas are on different hosts.
    """

    def __init__(self, world: World, before: int, hosts: int = 4, *, apart: bool = False) -> None:
        self.world = world
        splits = [b"m"] if apart else []
        self.hosted = Hosted(world, hosts, properties=replicas(before), settings=UNHURRIED, splits=splits)
        self.west = self.hosted.west
        self.hosted.replicate_to("east")
        self.hosted.put(*ROWS)
        self.hosted.flush()
        self.hosted.until_same()
        world.command(self.west, "add_splits", "t", [b"m"], [])
        world.until(self.west.is_served, "both tablets are served")
        self.hosted.put(*ROWS)
        self.leader = self.hosted.leader

    def change(self, count: int) -> None:
        """An operator changes the table."""
        self.world.command(self.west, "change_properties", "t", replicas(count), [])

    def write(self) -> None:
        """Users write, whether hosts serve the tablets or not."""
        for row in ROWS:
            self.world.write(self.west, "t", [row])

    def rest(self) -> None:
        """The change is over, the tablets lie where their table has them, no file stays, and both clusters have each
        record once. Raises LawBrokenError.
        """
        self.write()
        try:
            self.world.rest(steps_max=14_000)
        except StuckError as error:
            raise LawBrokenError("; ".join([str(error), *error.__notes__])) from error
        judge_at_rest(self.world)


MOMENTS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "it leaves the Volume": (1, 3, ("rpc-unload_tablet",)),
    "it has replicas without files": (1, 3, ("fate-", "put", "tablet:flush")),
    "a host copies it": (1, 3, ("rpc-take_replica", "rename", "manifests/")),
    "it leaves its hosts": (3, 1, ("rpc-unload_tablet",)),
    "it is published on the Volume": (3, 1, ("rpc-publish_replica", "publish")),
    "its replicas go": (3, 1, ("fate-", "delete", "replica:")),
}
"""Moments of a change: the numbers of replicas, and parts of the step that a task is about to do."""


def the_master_dies(changing: Changing) -> None:
    """The next one goes on with the change."""
    master = changing.west.leader()
    assert master is not None
    changing.west.kill(master)
    changing.west.start_master()


def the_leader_dies(changing: Changing) -> None:
    """The machine of the tablet's host loses its power; the host comes back."""
    changing.leader.kill(power=True)
    changing.world.kernel.run_for(2)
    changing.leader.start()


def the_leader_outlives_its_session(changing: Changing) -> None:
    """It is stopped, and goes on while others write and the tablet is on its way."""
    changing.leader.stop()
    changing.world.kernel.run_for(3)
    changing.write()
    changing.leader.resume()
    changing.world.kernel.run_for(2)


def the_leader_loses_its_disk(changing: Changing) -> None:
    """The Volume has all that the disk had, or another host has."""
    changing.leader.wipe()
    changing.world.kernel.run_for(2)
    changing.leader.start()


ACCIDENTS: Sequence[Callable[[Changing], None]] = (
    the_master_dies,
    the_leader_dies,
    the_leader_outlives_its_session,
    the_leader_loses_its_disk,
)


def interrupted(world: World, moment: str, accident: Callable[[Changing], None]) -> None:
    """Something happens at a moment of a change, while users write."""
    before, after, words = MOMENTS[moment]
    changing = Changing(world, before)
    with world.held(*words):
        changing.change(after)
        changing.write()
        world.until_at(*words)
        accident(changing)
    changing.rest()


@pytest.mark.parametrize("accident", ACCIDENTS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_no_record_is_lost_or_twice_and_no_file_stays(
    tmp_path: Path, moment: str, accident: Callable[[Changing], None]
) -> None:
    with simulation(tmp_path / "world") as world:
        interrupted(world, moment, accident)


def a_table_changes_and_changes_back(world: World) -> None:
    """To hosts, to another number of these, and to the Volume."""
    changing = Changing(world, 1)
    for count in (3, 2, 3, 1):
        changing.change(count)
        changing.rest()


def a_table_changes_back_on_its_way(world: World) -> None:
    """An operator thinks better of it before hosts have the files, and another time before the Volume has them."""
    changing = Changing(world, 1)
    turn_back(changing, 3, "rpc-take_replica", 1)
    changing.change(3)
    changing.rest()
    turn_back(changing, 1, "rpc-publish_replica", 3)


def turn_back(changing: Changing, there: int, rpc: str, back: int) -> None:
    """A change, and the opposite one while hosts are about to copy."""
    with changing.world.held(rpc):
        changing.change(there)
        changing.world.until_at(rpc)
        changing.write()
        changing.world.ask(changing.west, "change_properties", "t", replicas(back), [])
        changing.world.kernel.run_for(1)
    changing.rest()


def a_disk_is_lost_while_a_host_copies(world: World) -> None:
    """Both hosts are to have the files; the disk of one of them is destroyed before it has them."""
    changing, words = Changing(world, 1), ("rpc-take_replica", "volume.part")
    with world.held(*words):
        changing.change(2)
        host = host_at(changing, *words)
        host.wipe()
        host.start()
        world.until(lambda: host.serves, "the host is back")
    changing.rest()


def a_disk_is_lost_on_the_way_to_the_volume(world: World) -> None:
    """Two hosts have the table; one loses its disk before the records of the logs are flushed."""
    changing = Changing(world, 2)
    with world.held("rpc-publish_replica"):
        changing.change(1)
        world.until_at("rpc-publish_replica")
        (victim,) = changing.hosted.followers
        victim.wipe()
        changing.write()
        victim.start()
        world.until(lambda: victim.serves, "the host is back")
    changing.rest()


def tablets_are_to_merge_before_they_move(world: World) -> None:
    """The operator merges them before the master has begun to move them to the Volume."""
    changing = Changing(world, 3, apart=True)
    with world.held("/cycle"):
        changing.change(1)
        asked = world.ask(changing.west, "merge_tablets", "t", RowRange(None, None))
        world.kernel.run_for(1)
    changing.rest()
    world.until(lambda: asked.done, "the operator has an answer")


def two_hosts_copy_a_file(world: World) -> None:
    """The tablet is flushed when its other files are on the Volume. The first host takes longer than the master waits,
    and ends when the next one has begun; this one dies.
    """
    changing, words = Changing(world, 3), ("rpc-publish_replica", "append")
    with world.held("rpc-unload_tablet"):
        changing.change(1)
        world.until_at("rpc-unload_tablet")
        everywhere = world.hold(*words)
    first = world.until_at(*words)
    world.kernel.step(first)

    def copying() -> list[Host]:
        others = (host for host in changing.west.hosts if host.process is not first.process)
        return [host for host in others if world.waiting_at(*words, process=host.process)]

    world.until(lambda: bool(copying()), "another host copies the file")
    (second,) = copying()
    with world.held(*words, process=second.process):
        world.kernel.release(everywhere)
        world.kernel.run_for(1)
        second.kill(power=True)
    changing.rest()


def shared(changing: Changing, *extents: Extent) -> set[str]:
    """The files that all of these tablets name."""
    rows = (changing.west.table.row(keys.tablet_row(extent.table_id, extent.end_row)) for extent in extents)
    return set.intersection(*(names_in(row) for row in rows if row is not None))


def hosts_die_before_they_copy(world: World) -> None:
    """All that are to have the table are away for minutes. One tablet has a file in the directory of another one that
    does not need it any more; the collector looks for such files meanwhile.
    """
    changing = Changing(world, 1, hosts=5)
    lower, upper = changing.hosted.extents
    changing.hosted.begin_flush(upper)
    world.until(lambda: not shared(changing, lower, upper), "the upper tablet has a file of its own")
    with world.held("rpc-take_replica"):
        changing.change(2)
        world.until_at("rpc-take_replica")
        for host in changing.west.hosts[:4]:
            host.kill(power=True)
    for _ in range(5):
        world.kernel.run_for(3)
        world.kernel.advance(world.kernel.now_ns + SCAN_INTERVAL_MS * 1_000_000)
    changing.rest()


def a_chosen_host_dies_and_stays_away(world: World) -> None:
    """Tablets go to two of three hosts; one dies before it copies. The others get them, and users write meanwhile."""
    changing = Changing(world, 1, hosts=3)
    with world.held("rpc-take_replica"):
        changing.change(2)
        victim = host_at(changing, "rpc-take_replica")
        changing.write()
        victim.kill(power=True)
    placed = partial(is_on_hosts, changing, victim)
    world.until(lambda: changing.west.is_served() and placed(), "the other two hosts serve the tablets")
    changing.rest()


def host_at(changing: Changing, *words: str) -> Host:
    """The host of a task that stops there."""
    task = changing.world.until_at(*words)
    return next(host for host in changing.west.hosts if host.process is task.process)


def is_on_hosts(changing: Changing, victim: Host) -> bool:
    """Whether each tablet has two replicas, none of them on this host."""
    rows = [changing.west.table.row(keys.tablet_row(one.table_id, one.end_row)) for one in changing.hosted.extents]
    placed = [{one.host for one in replicas_of(row)} for row in rows if row is not None]
    return all(len(hosts) == 2 and victim.name not in hosts for hosts in placed)


SCHEDULES = (
    a_table_changes_and_changes_back,
    a_table_changes_back_on_its_way,
    a_disk_is_lost_while_a_host_copies,
    a_disk_is_lost_on_the_way_to_the_volume,
    tablets_are_to_merge_before_they_move,
    two_hosts_copy_a_file,
    hosts_die_before_they_copy,
    a_chosen_host_dies_and_stays_away,
)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_is_green_with_its_rule(tmp_path: Path, schedule: Callable[[World], None]) -> None:
    with simulation(tmp_path / "world") as world:
        schedule(world)


RED: Sequence[tuple[str, Callable[[World], None], str]] = (
    ("a-move-needs-no-copies", hosts_die_before_they_copy, "N3: .* goes and tablet .* has it on"),
    ("names-go-before-copies", hosts_die_before_they_copy, "N3: .* goes and tablet .* has it on"),
    ("destroyed-disks-stay-placed", a_disk_is_lost_while_a_host_copies, "never: .* is not served"),
    (
        "lost-replicas-stay-on-the-way-to-the-volume",
        a_disk_is_lost_on_the_way_to_the_volume,
        "rest; .* has replicas .*: its table has one",
    ),
    ("moving-tablets-merge", tablets_are_to_merge_before_they_move, "rest; .* has replicas .*: its table has one"),
    ("moves-never-turn-back", a_chosen_host_dies_and_stays_away, "never: the other two hosts serve the tablets"),
    ("hosts-share-a-scratch-file", two_hosts_copy_a_file, "L7: .* is published on the Volume, and west-h1 has other"),
)
"""Switches, the schedules that show them, and the laws that break."""


@pytest.mark.long
@pytest.mark.parametrize(("switch", "schedule", "law"), RED, ids=[switch for switch, _, _ in RED])
def test_a_schedule_is_red_without_its_rule(
    tmp_path: Path, switch: str, schedule: Callable[[World], None], law: str
) -> None:
    red = pytest.raises((LawBrokenError, StuckError), match=law)
    with fault(switch), simulation(tmp_path / "world") as world, red:
        schedule(world)
