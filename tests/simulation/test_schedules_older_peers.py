"""A peer comes back in an older state, and has the number of the last check-in: its source notices.

Each schedule is green with the product's code and red without the question for the last acknowledged block.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest

from bookkeeper.coordination.older_peers import CONFIRMED, lost_since
from tests.support.faults import fault
from tests.support.simulation.cluster import Cluster
from tests.support.simulation.pair import Pair
from tests.support.simulation.tree import SimCoordination
from tests.support.simulation.world import World, simulation


class Backup:
    """A copy of all stores of a cluster, at a moment when none of its processes lives."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._copy = cluster, cluster.settings.directory.with_name(f"{cluster.name}-backup")
        stop(cluster)
        shutil.copytree(cluster.settings.directory, self._copy)
        store = cluster.coordination
        assert isinstance(store, SimCoordination)
        self._store, self._rows, self._numbers = store, deepcopy(cluster.table._rows), dict(store.risen)
        self._sessions = dict(store.sessions_by_id)
        start(cluster)

    def restore(self) -> None:
        """The cluster dies, and comes back as it was."""
        stop(self._cluster)
        shutil.rmtree(self._cluster.settings.directory)
        shutil.copytree(self._copy, self._cluster.settings.directory)
        self._cluster.table._rows, self._store.risen = self._rows, self._numbers
        self._store.sessions_by_id = self._sessions
        start(self._cluster)


def stop(cluster: Cluster) -> None:
    """Kill all processes."""
    for node in cluster.alive([*cluster.masters, *cluster.tservers, *cluster.replays]):
        cluster.kill(node)


def start(cluster: Cluster) -> None:
    """Start processes, and wait until they work."""
    cluster.start_master()
    for _ in range(2):
        cluster.start_tserver()
    cluster.start_replay()
    cluster.world.until(lambda: cluster.leader() is not None and cluster.is_served(), f"{cluster.name} is back")


def opened(world: World) -> Pair:
    """A stream to east is open, and no check-in reaches it any more."""
    pair = Pair(world)
    pair.enable()
    pair.until_there(world.put(pair.west, "t", b"a"))
    world.until(lambda: any(name.startswith(CONFIRMED) for name in pair.west.coordination.risen), "a check-in")
    world.hold("check-in-east")
    return pair


def acknowledge(pair: Pair, row: bytes) -> None:
    """East acknowledges a row, and west knows it."""
    pair.until_there(pair.world.put(pair.west, "t", row))
    pair.world.kernel.run_for(2.0)


def must_be_noticed(pair: Pair) -> None:
    """After the next record, the source says that the peer lacks acknowledged ones, and since when."""
    pair.until_there(pair.world.put(pair.west, "t", b"z"))
    with pair.world.kernel.aside():
        found = lost_since(pair.west.coordination, pair.east.instance)  # type: ignore[arg-type]
    assert found is not None, "nobody says that the peer lacks acknowledged records"
    since_ms, incarnation = found
    assert 1 < since_ms < pair.world.kernel.now_ns // 1_000_000
    assert incarnation == 1


def in_the_middle_of_a_log(world: World) -> None:
    """Rows are acknowledged after the backup, and the log goes on."""
    pair = opened(world)
    backup = Backup(pair.east)
    acknowledge(pair, b"b")
    backup.restore()
    must_be_noticed(pair)


def the_log_has_ended(world: World) -> None:
    """The rows lie in a log of which the peer has acknowledged all, and the next row lies in another one."""
    pair = opened(world)
    backup = Backup(pair.east)
    acknowledge(pair, b"b")
    world.roll(pair.owner())
    backup.restore()
    must_be_noticed(pair)


def the_log_began_later(world: World) -> None:
    """The peer never heard of the log whose rows it lacks."""
    pair = opened(world)
    backup = Backup(pair.east)
    world.roll(pair.owner())
    acknowledge(pair, b"b")
    world.hold("gc")
    world.roll(pair.owner())
    backup.restore()
    must_be_noticed(pair)


def another_tablet(world: World) -> None:
    """The next row lies in another tablet of the peer than those that it lacks."""
    pair = opened(world)
    backup = Backup(pair.east)
    acknowledge(pair, b"y")
    acknowledge(pair, b"b")
    backup.restore()
    must_be_noticed(pair)


SCHEDULES: dict[str, Callable[[World], None]] = {
    "in the middle of a log": in_the_middle_of_a_log,
    "the log has ended": the_log_has_ended,
    "the log began later": the_log_began_later,
    "another tablet": another_tablet,
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_peer_that_came_back_older_is_noticed(tmp_path: Path, name: str) -> None:
    with simulation(tmp_path) as world:
        SCHEDULES[name](world)


@pytest.mark.parametrize("name", SCHEDULES)
def test_without_the_question_for_the_last_block_nobody_notices(tmp_path: Path, name: str) -> None:
    with (
        fault("acknowledged-blocks-are-believed"),
        simulation(tmp_path) as world,
        pytest.raises(AssertionError, match="nobody says"),
    ):
        SCHEDULES[name](world)


def test_a_peer_that_was_killed_has_what_it_acknowledged(tmp_path: Path) -> None:
    with simulation(tmp_path) as world:
        pair = opened(world)
        for row in (b"b", b"c", b"x"):
            stop(pair.east)
            start(pair.east)
            pair.until_there(world.put(pair.west, "t", row))
        with world.kernel.aside():
            assert lost_since(pair.west.coordination, pair.east.instance) is None  # type: ignore[arg-type]
        pair.rest()
