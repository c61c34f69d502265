"""Several paths to one cluster (rule R22, schedule 26): real clusters over simulated edges, green with their rule, red
without it, and a random search that finds by itself a broken rule.

West replicates to south and to east, and south to east; so each record comes to east twice. Files are in
``test_schedules_imports``. Borders, quarantine and longer paths are pure functions and have their tests there
(``tests/unit/tserver/origins/test_origin_dedup.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bookkeeper.origins import RootLog
from tests.support.faults import fault
from tests.support.simulation import laws
from tests.support.simulation.chaos import run_schedule
from tests.support.simulation.kernel import StuckError
from tests.support.simulation.stage import Triangle
from tests.support.simulation.trio import Relays, Trio
from tests.support.simulation.users import GOLD, PLAIN
from tests.support.simulation.world import LawBrokenError, World, simulation

SEEDS = (5088, 7035, 22047)
"""They broke a law once."""

MORE_SEEDS = (5002, 10015, *range(16))
"""Those of ``make test-long``."""

FINDING = (16, 1)
"""Seeds that find what is broken."""

LENGTH = 60

AT = 5
"""The timestamp of records that have the same, ms."""

# ---- the schedules


def both_ways(world: World) -> None:
    """Each path brings each record."""
    trio = Trio(world)
    trio.enable_all()
    for row in (b"a", b"k", b"x"):
        world.put(trio.west, "t", row)
    trio.rest()


def crash_between(world: World) -> None:
    """The straight path brings a record, east's tservers die, the other path brings it."""
    trio = Trio(world)
    trio.enable_all()
    slow = trio.hold_south()
    trio.until_there(world.put(trio.west, "t", b"a"))
    trio.kill_east()
    trio.start_east()
    world.kernel.release(slow)
    trio.rest()


def slow_path(world: World) -> None:
    """The straight path has ended, its log is gone, and tablets were loaded, when the other path brings the same."""
    trio = Trio(world)
    trio.enable_all()
    slow = trio.hold_south()
    trio.until_there(world.put(trio.west, "t", b"a"))
    trio.end_west()
    world.kernel.run_for(5.0)
    trio.flush_east()
    trio.kill_east()
    trio.start_east()
    world.kernel.release(slow)
    trio.rest()


def very_slow_path(world: World) -> None:
    """The same, and the other path takes several times as long as logs are remembered of which nobody speaks."""
    trio = Trio(world, {"tserver.paths_apart_ms": 10_000})
    trio.enable_all()
    slow = trio.hold_south()
    trio.until_there(world.put(trio.west, "t", b"a"))
    trio.end_west()
    world.kernel.run_for(40.0)
    trio.flush_east()
    world.kernel.release(slow)
    trio.rest()


def chain(world: World) -> None:
    """East gets west's records by way of south only; no cluster remembers anything for ever."""
    trio = Trio(world)
    world.enable(trio.west, "t", trio.south)
    world.enable(trio.south, "t", trio.east)
    trio.until_there(world.put(trio.west, "t", b"a"))
    trio.rest()


def away_at_the_end(world: World) -> None:
    """East's tservers have flushed and are dead when east is told that a log is over."""
    trio = Trio(world)
    trio.enable_all()
    trio.until_there(world.put(trio.west, "t", b"a"))
    telling = world.hold("east", "rpc-roots_over")
    world.until_at("east", "rpc-roots_over")
    trio.flush_east()
    trio.kill_east()
    world.kernel.run_for(3.0)
    world.kernel.release(telling)
    world.until(lambda: not trio.remembered(), "the end of all logs in all memories")
    trio.start_east()
    trio.rest()


def another_group(world: World) -> None:
    """One group goes straight and by way of south, the other one by way of south only."""
    trio = Trio(world)
    world.enable(trio.west, "t", trio.east, groups=[GOLD.name])
    world.enable(trio.west, "t", trio.south)
    world.enable(trio.south, "t", trio.east)
    slow = trio.hold_south()
    wrote = world.put(trio.west, "t", b"a", families=(PLAIN, *GOLD.families))
    trio.until_there([write for write in wrote if write.family != PLAIN])
    world.kernel.release(slow)
    trio.rest()


def off_for_a_while(world: World) -> None:
    """The straight path is disabled and enabled again; the records that it left out come by way of south, and later.
    Those of one cell have equal timestamps, so the cell ends with the one that came last.
    """
    trio = Trio(world)
    trio.enable_all()
    slow = trio.hold_south()
    trio.until_there(world.put(trio.west, "t", b"a"))
    world.disable(trio.west, "t", trio.east)
    left_out = world.put(trio.west, "t", b"a", timestamp=AT)
    world.enable(trio.west, "t", trio.east)
    later = world.put(trio.west, "t", b"a", timestamp=AT)
    trio.until_there(later)
    world.kernel.release(slow)
    trio.rest()
    ended = sorted((entry for entry in trio.east.entries("2") if entry.timestamp == AT), key=lambda entry: entry.seq)
    assert [entry.value for entry in ended] == [write.value for write in (*later, *left_out)]


def receives_at_the_end(world: World) -> None:
    """A tserver of east is slow in the middle of west's message; the target is disabled, so west's log goes without it,
    and west asks who still has to do with the log.
    """
    trio = Trio(world)
    world.enable(trio.west, "t", trio.east)
    slow = world.hold("east", "replicate", ": put b'~root_")
    world.put(trio.west, "t", b"a")
    late = world.until_at("east", "replicate", ": put b'~root_")
    world.disable(trio.west, "t", trio.east)
    (node,) = trio.west.booted(trio.west.tservers)
    used = set(trio.west.logs())
    world.roll(node)
    world.until(lambda: not used & set(trio.west.logs()), "the log is gone")
    world.kernel.run_for(1.5)
    world.kernel.release(slow)
    world.until(lambda: late.done, "the message is taken, or refused")
    trio.rest()


def two_relays(world: World) -> None:
    """East gets west's records from south and from north only; one of them is slow. Each may speak of west's logs when
    it has brought some of them, and no cluster remembers anything for ever.
    """
    trio = Relays(world)
    slow = trio.hold_south()
    trio.until_there(world.put(trio.west, "t", b"a"))
    trio.flush_east()
    trio.kill_east()
    trio.start_east()
    world.kernel.release(slow)
    trio.until_there(world.put(trio.west, "t", b"x"))
    trio.rest()


def ended_by_another(world: World) -> None:
    """South says that west's log is over, before it has brought east any of it; then it brings the same again."""
    trio = Trio(world)
    trio.enable_all()
    slow = trio.hold_south()
    trio.until_there(world.put(trio.west, "t", b"a"))
    logs = [RootLog(trio.west.instance, name) for name in trio.west.logs()]
    leader = trio.east.leader()
    assert leader is not None
    address = leader.part.address
    lie = world.client(trio.south, "lie", lambda pool: pool.master(address, 3_000).roots_over([], logs))
    world.until(lambda: lie.done, "an answer")
    world.kernel.run_for(5.0)
    trio.flush_east()
    trio.kill_east()
    trio.start_east()
    world.kernel.release(slow)
    trio.rest()


SCHEDULES: dict[str, tuple[Callable[[World], None], dict[str, str]]] = {  # a schedule; its switches and laws
    "both ways": (both_ways, {"paths-are-not-compared": "twice"}),
    "a crash between": (crash_between, {"crash-forgets-the-paths": "twice"}),
    "a slow path": (
        slow_path,
        {
            "paths-are-forgotten-at-once": "twice",
            "received-records-are-not-owed": "twice",
            "logs-are-not-announced": "twice",
        },
    ),
    "a very slow path": (very_slow_path, {"asking-is-not-heard": "twice"}),
    "a chain": (chain, {"recipients-are-not-recorded": "left over"}),
    "two relays": (two_relays, {"senders-are-not-remembered": "left over"}),
    "ended by another": (ended_by_another, {"any-cluster-ends-a-log and relays-end-any-log": "twice"}),
    "away at the end": (away_at_the_end, {"loading-keeps-what-is-over": "left over"}),
    "receives at the end": (receives_at_the_end, {"a-receiving-cluster-may-be-over": "left over"}),
    "another group": (another_group, {"high-water-for-all-paths": "claimed"}),
    "off for a while": (off_for_a_while, {"enabled-since-ever": "claimed"}),
}
RED = [(name, switch, law) for name, (_, switches) in SCHEDULES.items() for switch, law in switches.items()]


@pytest.mark.parametrize("name", SCHEDULES)
def test_26_a_record_that_comes_by_several_paths_is_applied_once(name: str, tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        SCHEDULES[name][0](world)


@pytest.mark.long
@pytest.mark.parametrize(("name", "switch", "law"), RED)
def test_26_red_without_its_rule(name: str, switch: str, law: str, tmp_path: Path) -> None:
    broken = pytest.raises(LawBrokenError, match=law)
    with fault(switch), simulation(tmp_path / "world") as world, broken:
        SCHEDULES[name][0](world)


def test_r24_only_a_record_that_a_path_left_out_may_come_after_later_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(laws, "left_out_of_paths", lambda *_: lambda *_values: False)
    with simulation(tmp_path / "world") as world, pytest.raises(LawBrokenError, match="order: "):
        off_for_a_while(world)


# ---- the search


def search(directory: Path, seeds: Sequence[int]) -> None:
    """Run random schedules of three clusters."""
    for seed in seeds:
        with simulation(directory / str(seed), seed) as world:
            run_schedule(world, seed, LENGTH, Triangle)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(MORE_SEEDS, marks=pytest.mark.long)], ids=["these", "more"])
def test_no_schedule_of_three_clusters_breaks_a_law(seeds: Sequence[int], tmp_path: Path) -> None:
    search(tmp_path, seeds)


FOUND = ("crash-forgets-the-paths", "paths-are-not-compared")


@pytest.mark.long
@pytest.mark.parametrize("switch", FOUND)
def test_random_schedules_of_three_clusters_find_a_broken_rule(switch: str, tmp_path: Path) -> None:
    with fault(switch), pytest.raises((LawBrokenError, StuckError), match="twice"):
        search(tmp_path, FINDING)
