"""Directed schedules of logs on hosts' disks: a peer gets no record that this cluster can lose with one disk (R15).

Each schedule is a function of a world. It is played as the code is, and with the switches that break the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import pytest

from tests.simulation.test_schedules_given_up import GIVEN_UP, OWN_LOGS
from tests.support.faults import fault
from tests.support.simulation.cluster import Cluster
from tests.support.simulation.hosted import PROPERTIES, Hosted, node_of
from tests.support.simulation.kernel import StuckError
from tests.support.simulation.world import LawBrokenError, World, simulation

LONG_S = 12
"""Longer than a record takes to a peer."""


def values_at(peer: Cluster) -> set[bytes]:
    """The values that a peer has of the table."""
    return {entry.value for entry in peer.entries("2")}


def peer_has(peer: Cluster, values: Collection[bytes]) -> bool:
    """Whether a peer has these values of the table, and no other."""
    return values_at(peer) == values


def check_that_it_lacks(peer: Cluster, values: list[bytes]) -> None:
    """None of the values is at the peer after a while without names. Raises LawBrokenError."""
    with peer.world.held("namer"):
        peer.world.kernel.run_for(LONG_S)
    found = values_at(peer).intersection(values)
    if found:
        raise LawBrokenError(f"R15: the peer has {sorted(found)}, which one disk of this cluster has alone")


def with_one_named(world: World) -> tuple[Hosted, Cluster, list[bytes]]:
    """The peer has a record that the books name, from a log on the leader's host."""
    hosted = Hosted(world, properties=GIVEN_UP, settings=OWN_LOGS)
    east = hosted.replicate_to("east")
    named = hosted.put(b"a")
    hosted.flush()
    hosted.until_same()
    world.until(lambda: values_at(east) == set(named), "the peer has the named record", limit_s=30)
    return hosted, east, named


def right_behind_a_full_cycle(world: World, cluster: Cluster) -> None:
    """So the next cycle is a quick one, if something happens."""
    leader = cluster.leader()
    assert leader is not None, "no master leads"
    health = leader.part.leadership.cycle.health
    before_ns = health.known_ns
    world.until(lambda: health.known_ns != before_ns, "a full cycle")


def no_master_lives(world: World) -> None:
    """The leader names its states, so their records go, also from the next log; the others wait."""
    hosted, east, values = with_one_named(world)
    for master in hosted.west.alive(hosted.west.masters):
        hosted.west.kill(master)
    for row in (b"b", b"c"):
        new = hosted.put(row)
        check_that_it_lacks(east, new)
        hosted.flush()
        values.extend(new)
        wanted = frozenset(values)
        world.until(partial(peer_has, east, wanted), "the peer has what the named state has", limit_s=30)
        world.roll(node_of(hosted.leader))
    hosted.rest_with(values)


def a_first_record_waits_for_copies(world: World) -> None:
    """Nothing of the log is named; the tablet is flushed because of the record's age."""
    hosted = Hosted(world, settings=OWN_LOGS)
    east = hosted.replicate_to("east")
    values = hosted.put(b"a")
    check_that_it_lacks(east, values)
    world.until(lambda: values_at(east) == set(values), "the record is old enough", limit_s=60)
    hosted.rest_with(values)


def a_disk_is_lost_with_its_newest_record(world: World) -> None:
    """The tablet has let the log go, and uses it again between two full cycles of the master."""
    hosted, east, named = with_one_named(world)
    right_behind_a_full_cycle(world, hosted.west)
    lost = hosted.put(b"b")
    check_that_it_lacks(east, lost)
    first = hosted.leader
    first.kill(power=True)
    first.wipe()
    hosted.until_led_by_another(first)
    check_that_it_lacks(east, lost)
    assert values_at(east) == set(named), "the peer has lost a record"


def a_sealed_log_waits_for_copies(world: World) -> None:
    """The host comes back with its log, which is sealed; its records are in memory again and in no named state."""
    hosted = Hosted(world, settings=OWN_LOGS)
    east = hosted.replicate_to("east")
    values = hosted.put(b"a")
    first = hosted.leader
    with world.held("namer"):
        first.kill()
        first.start()
        world.until(hosted.west.is_served, "the tablet is served")
        check_that_it_lacks(east, values)
    world.until(lambda: values_at(east) == set(values), "the state is named", limit_s=90)
    hosted.rest_with(values)


def one_copy_is_asked_for(world: World) -> None:
    """The log is the one copy that the table asks for, so its peer does not wait."""
    hosted = Hosted(world, properties={**PROPERTIES, "table.copies_min": "1"}, settings=OWN_LOGS)
    east = hosted.replicate_to("east")
    values = hosted.put(b"a")
    world.until(lambda: values_at(east) == set(values), "the peer has it before a flush", limit_s=LONG_S * 2)
    hosted.rest_with(values)


SCHEDULES = (
    a_first_record_waits_for_copies,
    a_disk_is_lost_with_its_newest_record,
    a_sealed_log_waits_for_copies,
    one_copy_is_asked_for,
    no_master_lives,
)

BROKEN: list[tuple[Callable[[World], None], str]] = [
    (a_first_record_waits_for_copies, "one-disk-is-enough"),
    (a_disk_is_lost_with_its_newest_record, "quick-cycles-trust-one-disk"),
    (a_sealed_log_waits_for_copies, "sealed-logs-are-copied"),
    (no_master_lives, "logs-on-hosts-go-by-themselves"),
]


@pytest.mark.parametrize(("play", "switch"), BROKEN, ids=lambda part: getattr(part, "__name__", part))
def test_red(play: Callable[[World], None], switch: str, tmp_path: Path) -> None:
    with (
        simulation(tmp_path / "world") as world,
        fault(switch),
        pytest.raises(LawBrokenError, match=r"R15: the peer has .* which one disk"),
    ):
        play(world)


@pytest.mark.parametrize("play", SCHEDULES, ids=lambda play: play.__name__)
def test_r15_a_peer_has_nothing_that_the_cluster_can_lose(play: Callable[[World], None], tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        play(world)


def test_while_no_master_lives_a_log_on_a_host_goes_by_the_names_of_its_states(tmp_path: Path) -> None:
    with (
        simulation(tmp_path / "world") as world,
        fault("logs-on-hosts-wait-for-the-master"),
        pytest.raises(StuckError, match="never: the peer has what the named state has"),
    ):
        no_master_lives(world)
