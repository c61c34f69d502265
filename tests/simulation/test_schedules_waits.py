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
