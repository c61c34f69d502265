"""Directed schedules of logs that are given up: the real master, leaders and hosts, with logs on hosts' disks.

Each schedule is a function of a world. It is played as the code is, and with the switches that break one of its rules:
each acknowledged record is there once when all is at rest, at the cluster and at its peer (N6, P17, R18, R24).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.faults import fault
from tests.support.simulation.hosted import PROPERTIES, Hosted
from tests.support.simulation.hosts import Host
from tests.support.simulation.kernel import StuckError
from tests.support.simulation.world import LawBrokenError, World, simulation

FAILOVER_MS = 2_000
GIVEN_UP = {**PROPERTIES, "table.failover": str(FAILOVER_MS)}
OWN_LOGS = {"storage.logs": "host"}


def hosted_with_tail(world: World) -> tuple[Hosted, Host, list[bytes]]:
    """A leader has named one record, acknowledged another one, and its host goes away; another host leads."""
    hosted = Hosted(world, properties=GIVEN_UP, settings=OWN_LOGS)
    hosted.replicate_to("east")
    values = hosted.put(b"a")
    hosted.flush()
    hosted.until_same()
    values += hosted.put(b"b")
    first = hosted.leader
    first.kill(power=True)
    hosted.until_led_by_another(first)
    return hosted, first, values


def flush_and_name(world: World, hosted: Hosted) -> None:
    """Memory becomes a state, and the books name it."""
    before = hosted.tablet.named_id
    hosted.flush()
    world.until(lambda: hosted.tablet.named_id != before, "the books name the state")


def the_host_comes_back(world: World) -> None:
    """The next leader writes and names a state while the tail is away."""
    hosted, first, values = hosted_with_tail(world)
    values += hosted.put(b"b", b"c")
    hosted.flush()
    world.kernel.run_for(3)
    first.start()
    rest(hosted, values)


def the_peer_waits_for_no_tail(world: World) -> None:
    """Newer records arrive at the peer while the host is away."""
    hosted, first, values = hosted_with_tail(world)
    values += hosted.put(b"c")
    east = world.clusters["east"]
    try:
        world.until(lambda: values[-1] in {e.value for e in east.entries("2")}, "the peer has it", limit_s=60)
    except StuckError as error:
        raise LawBrokenError("R24: the peer waits for the log of a host that was given up") from error
    first.start()
    rest(hosted, values)


def no_queue_of_the_master_waits_for_a_tail(world: World) -> None:
    """The same where the master hands out each range, and no tserver goes on by itself."""
    with fault("logs-on-hosts-wait-for-the-master"):
        the_peer_waits_for_no_tail(world)


def the_next_leader_dies_too(world: World) -> None:
    """It has merged the tail into memory, and no state with it is named."""
    hosted, first, values = hosted_with_tail(world)
    values += hosted.put(b"c")
    second = hosted.leader
    with world.held("namer", process=second.process):
        first.start()
        world.until(lambda: tails_merged(second) == 1, "the tail is merged")
        second.kill(power=True)
        hosted.until_led_by_another(second)
    second.start()
    rest(hosted, values)


def the_next_leader_flushes_and_dies(world: World) -> None:
    """Segments have a part of the log, and its offset is in the newest state alone."""
    hosted, first, values = hosted_with_tail(world)
    for row in (b"c", b"d"):
        values += hosted.put(row)
        flush_and_name(world, hosted)
    world.kernel.run_for(20)
    values += hosted.put(b"e")
    flush_and_name(world, hosted)
    second = hosted.leader
    second.kill(power=True)
    first.start()
    hosted.until_led_by_another(second)
    second.start()
    rest(hosted, values)


def both_hosts_stay_away(world: World) -> None:
    """The second leader's log is given up, too; then both come back."""
    hosted, first, values = hosted_with_tail(world)
    values += hosted.put(b"b", b"c")
    second = hosted.leader
    second.kill(power=True)
    first.start()
    world.until(hosted.west.is_served, "the first host leads again, or the third one")
    values += hosted.put(b"c", b"d")
    second.start()
    rest(hosted, values)


def tails_merged(host: Host) -> int:
    """How many tails a host's process has merged."""
    assert host.node is not None
    return int(host.node.part.parts.tablets.leading.tails.tails_merged)


def rest(hosted: Hosted, values: list[bytes]) -> None:
    """All is at rest, and the tablet has each record once."""
    try:
        hosted.rest_with(values)
    except AssertionError as error:
        found = sorted(entry.value for entry in hosted.west.entries(hosted.extent.table_id))
        twice, lost = {value for value in found if found.count(value) > 1}, set(values) - set(found)
        raise LawBrokenError(f"N6: {sorted(twice)} are applied twice, {sorted(lost)} are lost") from error


SCHEDULES = {
    play.__name__: play
    for play in (
        the_host_comes_back,
        the_peer_waits_for_no_tail,
        no_queue_of_the_master_waits_for_a_tail,
        the_next_leader_dies_too,
        the_next_leader_flushes_and_dies,
        both_hosts_stay_away,
    )
}


BROKEN: list[tuple[Callable[[World], None], str, str]] = [
    (the_host_comes_back, "tails-are-merged-again", r"N6: \[b.* are applied twice"),
    (the_peer_waits_for_no_tail, "tails-are-waited-for", "R24: the peer waits for the log of a host"),
    (no_queue_of_the_master_waits_for_a_tail, "peers-wait-for-hosts", "R24: the peer waits for the log of a host"),
    (the_next_leader_flushes_and_dies, "states-forget-where-tails-begin", r"N6: \[b.* are applied twice"),
]


@pytest.mark.long
@pytest.mark.parametrize(("play", "switch", "said"), BROKEN, ids=lambda part: getattr(part, "__name__", part))
def test_red(play: Callable[[World], None], switch: str, said: str, tmp_path: Path) -> None:
    with (
        simulation(tmp_path / "world") as world,
        fault(switch),
        pytest.raises(LawBrokenError, match=said),
    ):
        play(world)


@pytest.mark.parametrize("play", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_each_record_is_there_once(play: Callable[[World], None], tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        play(world)
