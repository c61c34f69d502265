"""A tserver goes on with its own logs without the master: what it may ship alone, and what it must not.

Each schedule is green with its rule (R15 and R24 among them) and red without it. ``docs/design/shipping.md`` has them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.faults import fault
from tests.support.simulation.kernel import StuckError
from tests.support.simulation.pair import Pair
from tests.support.simulation.world import LawBrokenError, World, simulation

ROWS = (b"a", b"h", b"p", b"x")

STOPPED_S = 2.0
"""A stopped master of a peer delays nothing for so long."""


def opened(world: World, tservers: int = 1) -> Pair:
    """Streams of all tservers of west are open: east has a row of each."""
    pair = Pair(world, tservers, splits=[b"d", b"m", b"r"])
    pair.enable()
    pair.until_there([write for row in ROWS for write in world.put(pair.west, "t", row)])
    return pair


def kill_masters(pair: Pair) -> None:
    """No master of west lives, until all is mended."""
    for master in pair.west.alive(pair.west.masters):
        pair.west.kill(master)


def no_master_lives(world: World) -> None:
    """Rows arrive, also those behind the end of the log."""
    pair = opened(world)
    kill_masters(pair)
    pair.until_there(world.put(pair.west, "t", b"b"))
    log = pair.owner().part.parts.writing.path.wal_name
    world.until(lambda: pair.owner().part.parts.writing.path.wal_name != log, "the log ends by its age")
    later = world.put(pair.west, "t", b"c")
    pair.until_there(later)
    pair.rest()
    pair.must_be_there(later)


def no_master_lives_anywhere(world: World) -> None:
    """The same while no master of the peer lives, either."""
    pair = opened(world)
    kill_masters(pair)
    for master in pair.east.alive(pair.east.masters):
        pair.east.kill(master)
    pair.until_there(world.put(pair.west, "t", b"b"))
    world.roll(pair.owner())
    pair.until_there(world.put(pair.west, "t", b"c"))
    pair.rest()


def the_own_master_is_stopped(world: World) -> None:
    """West's master is stopped: it takes reports and answers none. Runs ship rows all the time, and then a log ends."""
    world.hold("/follow-east-")
    pair = opened(world)
    (master,) = pair.west.alive(pair.west.masters)
    master.process.suspended = True
    pair.until_there(world.put(pair.west, "t", b"a"))
    world.kernel.run_for(2.5)
    pair.until_there(world.put(pair.west, "t", b"h"))
    world.roll(pair.owner())
    wrote = world.put(pair.west, "t", b"p")
    world.kernel.run_for(0.5)
    is_late = not {write.value for write in wrote} <= pair.there()
    master.process.suspended = False
    if is_late:
        raise LawBrokenError("a new stream waits until a stopped master took the report of a record before")
    pair.rest()


def the_peers_masters_are_stopped(world: World) -> None:
    """No master of west lives. Those of the peer are stopped: they take calls and answer none. A log ends."""
    pair = opened(world)
    kill_masters(pair)
    for master in pair.east.alive(pair.east.masters):
        master.process.suspended = True
    world.roll(pair.owner())
    wrote = world.put(pair.west, "t", b"b")
    world.kernel.run_for(STOPPED_S)
    stopped = [master for master in pair.east.masters if master.process.suspended]
    is_late = not {write.value for write in wrote} <= pair.there()
    for master in stopped:
        master.process.suspended = False
    if is_late:
        raise LawBrokenError(f"a record waits {STOPPED_S} s for a stopped master of the peer")
    pair.rest()


def the_peer_restarts_while_no_master_lives(world: World) -> None:
    """The peer is away for longer than a message is tried, and comes back."""
    pair = opened(world)
    kill_masters(pair)
    for node in pair.east.alive(pair.east.tservers):
        pair.east.kill(node)
    wrote = world.put(pair.west, "t", b"b")
    world.kernel.run_for(5.0)
    pair.east.start_tserver()
    pair.until_there(wrote)
    pair.rest()


def records_are_not_synced(world: World) -> None:
    """The stream is open; a record is written and not synced, and the machine loses its power."""
    pair = opened(world)
    owner = pair.owner()
    syncing = world.hold("/commit-", ": sync", process=owner.process)
    world.put(pair.west, "t", b"a", durability="flush")
    world.kernel.run_for(1.0)
    pair.replace(owner, power=True)
    world.kernel.release(syncing)
    pair.rest()


def a_tablet_comes_from_a_dead_tserver(world: World) -> None:
    """A put lies in the log of a tserver that dies before it ships it. Its tablet is served by a tserver with an open
    stream, and the row is deleted there. No master hands out the log of the dead one.
    """
    pair = opened(world, tservers=2)
    first = pair.owner()
    for sender in ("replication-east", "rpc-follow"):
        world.hold(sender, process=first.process)
    world.put(pair.west, "t", b"a")
    world.hold("lane-work-")
    pair.west.kill(first)
    world.until(pair.west.is_served, "another tserver serves it")
    assert pair.owner() is not first
    kill_masters(pair)
    world.put(pair.west, "t", b"a", delete=True)
    world.kernel.run_for(2.0)
    pair.rest()


def the_first_records_of_a_table(world: World) -> None:
    """A table is replicated and empty; then no master lives, and the first rows are written."""
    pair = Pair(world, 1, splits=[b"d", b"m", b"r"])
    pair.enable()
    kill_masters(pair)
    pair.until_there([write for row in ROWS for write in world.put(pair.west, "t", row)])
    pair.rest()


def a_tablet_moved_before_the_masters_died(world: World) -> None:
    """A tablet moves to another tserver, and then no master lives. Its first record there waits for those that the
    tserver before ships: the books say when the peer has them.
    """
    pair = opened(world)
    first = pair.owner()
    pair.until_there(world.put(pair.west, "t", b"a"))
    pair.west.start_tserver()
    moved: list[bytes] = []

    def has_moved() -> bool:
        moved[:] = [row for row in ROWS if pair.west.is_served() and pair.owner(row) is not first]
        return bool(moved)

    world.until(has_moved, "a tablet has moved", 60.0)
    row = moved[0]
    kill_masters(pair)
    pair.until_there(world.put(pair.west, "t", row))
    pair.rest()


SCHEDULES: dict[str, tuple[Callable[[World], None], type[AssertionError], str, tuple[str, ...]]] = {
    "no master lives": (no_master_lives, StuckError, "never: it is at east", ("streams-end-with-their-range",)),
    "the next log": (no_master_lives, StuckError, "never: it is at east", ("only-the-master-opens-logs",)),
    "no master anywhere": (
        no_master_lives_anywhere,
        StuckError,
        "never: it is at east",
        ("only-a-master-knows-tservers",),
    ),
    "the own master is stopped": (
        the_own_master_is_stopped,
        LawBrokenError,
        "waits until a stopped master took the report",
        ("reports-wait-for-a-stopped-master",),
    ),
    "the peer's masters are stopped": (
        the_peers_masters_are_stopped,
        LawBrokenError,
        "waits 2.0 s for a stopped master",
        ("masters-are-waited-for", "only-a-master-knows-tservers"),
    ),
    "the peer restarts": (
        the_peer_restarts_while_no_master_lives,
        StuckError,
        "never: it is at east",
        ("any-error-ends-a-stream",),
    ),
    "not synced": (records_are_not_synced, LawBrokenError, "not durable", ("written-records-are-own-ends",)),
    "the first records": (
        the_first_records_of_a_table,
        StuckError,
        "never: it is at east",
        ("only-the-master-begins-streams",),
    ),
    "a tablet that moved": (
        a_tablet_moved_before_the_masters_died,
        StuckError,
        "never: it is at east",
        ("finished-cells-are-not-read",),
    ),
    "a dead tserver's put": (
        a_tablet_comes_from_a_dead_tserver,
        LawBrokenError,
        "gap: ",
        ("own-barriers-are-optional", "unknown-offsets-count-as-finished"),
    ),
}
RED = [(name, switch) for name, (_, _, _, switches) in SCHEDULES.items() for switch in switches]


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_green_with_its_rule(name: str, tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        SCHEDULES[name][0](world)


@pytest.mark.long
@pytest.mark.parametrize(("name", "switch"), RED)
def test_a_schedule_is_red_without_its_rule(name: str, switch: str, tmp_path: Path) -> None:
    schedule, error, law, _ = SCHEDULES[name]
    with fault(switch), simulation(tmp_path / "world") as world, pytest.raises(error, match=law):
        schedule(world)
