"""Schedules in which several things fail at once: the simulation asks for the cause of each wait after each step.

The cause of this cluster comes before that of the peer. Real clusters over simulated edges. A red twin names the wrong
answer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.faults import fault
from tests.support.simulation.pair import Pair
from tests.support.simulation.world import LawBrokenError, World, simulation


def the_peer_dies_and_then_the_own_tservers(world: World) -> None:
    """East is away, west notices it, and then all tservers of west are killed, too."""
    pair = Pair(world)
    pair.enable()
    for node in [*pair.east.masters, *pair.east.tservers]:
        pair.east.kill(node)
    world.put(pair.west, "t", b"a")

    def has_noticed() -> bool:
        leader = pair.west.leader()
        return leader is not None and leader.part.leadership.cycle.dispatcher.shipping.peer("east").failures > 0

    world.until(has_noticed, "west knows that east is away")
    for node in pair.west.alive(pair.west.tservers):
        pair.west.kill(node)
    world.kernel.run_for(2.0)
    pair.rest()


def test_without_a_tserver_no_peer_is_blamed(tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        the_peer_dies_and_then_the_own_tservers(world)


def test_red_without_a_tserver_the_peer_is_blamed(tmp_path: Path) -> None:
    with (
        fault("the-peer-is-blamed-first"),
        simulation(tmp_path / "world") as world,
        pytest.raises(LawBrokenError, match=r"blames east \(peer_unreachable\), and no tserver lives"),
    ):
        the_peer_dies_and_then_the_own_tservers(world)


def a_tserver_dies_before_it_tells_of_its_last_records(world: World) -> None:
    """East has all that west's books name; the tserver's next records are durable and acknowledged, and it dies before
    the books name them. The recovery takes a while.
    """
    pair = Pair(world)
    pair.enable()
    pair.until_there(world.put(pair.west, "t", b"a"))
    world.kernel.run_for(1.0)
    owner = pair.owner()
    with world.held("books: put", process=owner.process):
        world.put(pair.west, "t", b"b")
        recovery = world.hold("recovery")
        pair.replace(owner)
    world.kernel.run_for(3.0)
    world.judge()
    world.kernel.release(recovery)
    pair.rest()


def test_a_log_of_a_dead_tserver_is_not_done_before_its_records_are_counted(tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        a_tserver_dies_before_it_tells_of_its_last_records(world)


def test_red_a_log_of_a_dead_tserver_is_done(tmp_path: Path) -> None:
    with (
        fault("unsealed-logs-are-done"),
        simulation(tmp_path / "world") as world,
        pytest.raises(LawBrokenError, match=r"is done for .*, which lacks"),
    ):
        a_tserver_dies_before_it_tells_of_its_last_records(world)
