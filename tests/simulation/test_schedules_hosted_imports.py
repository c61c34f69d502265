"""Directed schedules of imports into tablets with replicas: leaders, hosts and masters die while a tablet takes one.

Each schedule is a function of a world. Rules: R18, R24, N2 to N4 and N6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.faults import fault
from tests.support.simulation.hosted import Hosted
from tests.support.simulation.laws import nothing_twice
from tests.support.simulation.world import LawBrokenError, World, simulation

ROWS = (b"a", b"m", b"z")


class Importing:
    """A tablet with three replicas on four hosts, and a peer; an import is asked for."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.hosted = Hosted(world, 4)
        self.east = self.hosted.replicate_to("east")
        self.values = self.hosted.put(*ROWS)
        self.hosted.flush()
        self.values += self.hosted.put(b"a", b"b")
        self.leader, self.followers = self.hosted.leader, self.hosted.followers
        self.task, made = world.import_files(self.hosted.west, "t", ROWS)
        self.values += [write.value for write in made]

    def is_over(self) -> bool:
        """Whether no operation is left, and the tablet takes writes."""
        operations = [line for line in self.hosted.west.books() if " fate:" in line]
        return self.task.done and not operations and self.hosted.west.is_served()

    def rest(self) -> None:
        """Each record is once on the cluster and on its peer; the next master goes on with the import of a dead one."""
        self.world.mend()
        self.world.until(self.is_over, "the import is over", look_every=20)
        if twice := nothing_twice(self.hosted.west):
            raise LawBrokenError(twice[0])
        self.values += self.hosted.put(b"a", b"z")
        self.hosted.rest_with(self.values)
        found = sorted(entry.value for entry in self.east.entries(self.east.table_id("t")))
        if found != sorted(self.values):
            raise LawBrokenError(f"the peer has {found}: want {sorted(self.values)}")


MOMENTS: dict[str, tuple[str, ...]] = {
    "a copy is made": ("rpc-adopt_segments", "write", "tables/"),
    "its state is saved": ("rpc-adopt_segments", "manifests/"),
    "it is sent": ("rpc-segment_transit",),
    "its name is put": ("namer", "repl:"),
}
"""Moments of an adoption: parts of the step that a task is about to do."""


def the_leader_dies(importing: Importing) -> None:
    """Its machine loses its power; its process starts again when another host leads."""
    first = importing.leader
    first.kill(power=True)
    importing.hosted.until_led_by_another(first)
    first.start()


def the_leader_loses_its_disk(importing: Importing) -> None:
    """Everything that this host alone has is gone."""
    first = importing.leader
    first.wipe()
    importing.hosted.until_led_by_another(first)
    first.start()


def a_receiver_loses_its_disk(importing: Importing) -> None:
    """A follower begins anew."""
    receiver = importing.followers[0]
    receiver.wipe()
    receiver.start()


def the_followers_die(importing: Importing) -> None:
    """Too few hosts can have the files for a while."""
    followers = importing.followers
    for host in followers:
        host.kill(power=True)
    importing.world.kernel.run_for(1)
    for host in followers:
        host.start()


def the_leader_outlives_its_session(importing: Importing) -> None:
    """It is stopped, another host leads and takes the import, and then it goes on."""
    first = importing.leader
    first.stop()
    importing.hosted.until_led_by_another(first)
    importing.world.kernel.run_for(3)
    first.resume()


def the_master_dies(importing: Importing) -> None:
    """The next one asks again."""
    master = importing.hosted.west.leader()
    assert master is not None
    importing.hosted.west.kill(master)
    importing.hosted.west.start_master()


ACCIDENTS: Sequence[Callable[[Importing], None]] = (
    the_leader_dies,
    the_leader_loses_its_disk,
    a_receiver_loses_its_disk,
    the_followers_die,
    the_leader_outlives_its_session,
    the_master_dies,
)


def interrupted(world: World, moment: str, accident: Callable[[Importing], None]) -> None:
    """Something happens at a moment of an adoption."""
    importing = Importing(world)
    with world.held(*MOMENTS[moment]):
        world.until_at(*MOMENTS[moment])
        accident(importing)
    importing.rest()


@pytest.mark.parametrize("accident", ACCIDENTS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_each_imported_record_is_there_once(tmp_path: Path, moment: str, accident: Callable[[Importing], None]) -> None:
    with simulation(tmp_path / "world") as world:
        interrupted(world, moment, accident)


RED = (
    ("imports-are-applied-again", "it is sent", the_master_dies, "twice"),
    ("one-copy-is-enough", "it is sent", the_leader_loses_its_disk, "N3: .* is durable on"),
    ("holds-outlive-their-operation", "it is sent", the_master_dies, "left over in west: b'~hold_"),
)
"""Switches, the moments and accidents that show them, and the laws that break."""


@pytest.mark.parametrize(("switch", "moment", "accident", "law"), RED, ids=[switch for switch, *_ in RED])
def test_without_the_rule_a_law_breaks(
    tmp_path: Path, switch: str, moment: str, accident: Callable[[Importing], None], law: str
) -> None:
    red = pytest.raises(LawBrokenError, match=law)
    with fault(switch), simulation(tmp_path / "world") as world, red:
        interrupted(world, moment, accident)
