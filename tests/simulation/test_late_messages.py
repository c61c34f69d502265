"""Calls that arrive again, or late, or out of a process that was stopped for long: nothing changes (R20)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.faults import fault
from tests.support.simulation.cluster import Node
from tests.support.simulation.kernel import Task
from tests.support.simulation.network import REPEATED, Net
from tests.support.simulation.pair import Pair
from tests.support.simulation.world import LawBrokenError, World, simulation

AGAIN_NS = (0, 20_000_000, 2_500_000_000)
"""At once, while its first copy may be under way still, and when most of what it began is over."""

ROWS = (b"a", b"k", b"x")
"""One in each tablet of east."""


def end_streams(pair: Pair) -> None:
    """Every log of west that holds something is rolled, shipped and deleted, and east remembers nothing of it."""
    used = {name for name, file in pair.world.ledger.files.items() if file.instance == pair.west.instance}
    for node in pair.west.booted(pair.west.tservers):
        pair.world.roll(node)
    pair.world.until(lambda: not used & set(pair.west.logs()), "the logs are gone")
    pair.world.until(lambda: not pair.east.books() and not pair.east.high_waters(), "the streams are over")


@pytest.mark.parametrize("method", [*REPEATED, "root_standings", "roots_over", "forget_roots"])
def test_a_call_that_arrives_three_times_changes_nothing(method: str, tmp_path: Path) -> None:
    arrived: list[str] = []

    def arrivals(_caller: str, called: str) -> Sequence[int]:
        if called != method:
            return (0,)
        arrived.append(called)
        return AGAIN_NS

    with simulation(tmp_path / "world") as world:
        pair = Pair(world, splits=[b"m"])
        Net.now.arrivals = arrivals
        pair.enable()
        (replay,) = pair.west.alive(pair.west.replays)
        pair.west.kill(replay)  # the master hands out what the tserver can't ship by itself
        wrote = [write for row in (*ROWS, *ROWS) for write in world.put(pair.west, "t", row)]
        world.kernel.run_for(0.5)
        pair.west.start_replay()
        pair.until_there(wrote)
        pair.west.start_tserver()
        end_streams(pair)
        world.kernel.run_for(3.0)
        pair.rest()
        assert arrived


# ---- processes that are stopped in the middle of a call, for longer than the peer remembers


def stop_at(world: World, node: Node, call: str) -> Task:
    """Stop a process that is about to make a call; all other processes believe that it is dead."""
    task = world.until_at(call, process=node.process)
    node.process.suspended = True
    world.kernel.holds.clear()
    world.clusters[node.process.cluster].expire(node)
    return task


def go_on_alone(world: World, node: Node, late: Task) -> None:
    """The process goes on for a moment: its other threads come too late to notice that its session is over."""
    node.process.suspended = False
    hold = world.kernel.hold(lambda task: task.process is node.process and task is not late)
    world.kernel.run_for(0.5)
    world.kernel.release(hold)


def stopped_receiver(world: World) -> None:
    """A tserver of east is stopped before it passes a tablet's part on to another one."""
    pair = Pair(world)
    pair.enable()
    world.hold("call apply_replicated")
    wrote = [write for row in ROWS for write in world.put(pair.west, "t", row)]
    late = world.until_at("call apply_replicated")
    stopped = next(node for node in pair.east.tservers if node.process is late.process)
    late = stop_at(world, stopped, "call apply_replicated")
    pair.east.start_tserver()
    pair.until_there(wrote)
    end_streams(pair)
    go_on_alone(world, stopped, late)
    pair.rest()


def stopped_sender(world: World, call: str) -> None:
    """West's replay process is stopped before a call to east."""
    pair = Pair(world)
    pair.enable()
    (stopped,) = pair.west.replays
    world.hold(call)
    wrote = world.put(pair.west, "t", b"a")
    late = stop_at(world, stopped, call)
    pair.west.start_replay()
    pair.until_there(wrote)
    end_streams(pair)
    go_on_alone(world, stopped, late)
    pair.rest()


STOPPED: dict[str, Callable[[World], None]] = {
    "receiver": stopped_receiver,
    "sender before it opens its stream": lambda world: stopped_sender(world, "call open_stream"),
    "sender with a token": lambda world: stopped_sender(world, "call replicate"),
}


@pytest.mark.parametrize("who", STOPPED)
def test_who_was_stopped_for_longer_than_the_peer_remembers_brings_nothing_back(who: str, tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        STOPPED[who](world)


@pytest.mark.parametrize("who", ["receiver", "sender before it opens its stream"])
def test_without_its_rule_the_peers_data_changes(who: str, tmp_path: Path) -> None:
    both = fault("ended-streams-are-accepted and paths-are-not-compared")
    with (
        both,
        simulation(tmp_path / "world") as world,
        pytest.raises(LawBrokenError, match=r"twice: .* is applied again"),
    ):
        STOPPED[who](world)
