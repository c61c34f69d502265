"""Schedules about what shares one log: tablets, tables, targets and groups, each green with its rule, red without it.

Rules: R10, R12, R13 and R17. Real clusters over simulated edges. A red twin says which law it sees broken.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.faults import fault
from tests.support.simulation.kernel import StuckError
from tests.support.simulation.pair import Pair
from tests.support.simulation.users import GOLD, PLAIN
from tests.support.simulation.world import LawBrokenError, World, simulation


def uses_behind_the_seal(world: World) -> None:
    """A tserver announces the first use of its log by a tablet; the group in front of it was never synced, and the
    machine loses its power: the log is sealed in front of both.
    """
    pair = Pair(world, splits=[b"m"])
    pair.enable()
    owner = pair.owner()
    world.put(pair.west, "t", b"a", durability="log")
    world.hold("/commit-", ": append", process=owner.process)
    world.write(pair.west, "t", [b"x"])
    world.until_at("/commit-", ": append", process=owner.process)
    pair.replace(owner, power=True)
    world.kernel.holds.clear()
    pair.rest()


def flushed_when_deleted(world: World) -> None:
    """A flusher has found two tablets due, and is slow with the first one; the table of the second one is deleted."""
    pair = Pair(world)
    pair.west.create_table("u", "3", [])
    world.until(pair.west.is_served, "it is served")
    owner = pair.owner()
    for row in (b"a", b"b"):
        world.put(pair.west, "t", row)
    world.put(pair.west, "u", b"a")
    slow = world.hold("flusher: write a segment of 1", process=owner.process)
    world.roll(owner)
    world.until_at("flusher: write a segment of 1", process=owner.process)
    world.command(pair.west, "delete_table", "u")
    world.kernel.release(slow)
    pair.rest()


def written_in_between(world: World) -> None:
    """Written, disabled, written, enabled, written: all of it lies in one log. Only what was written while it was
    enabled travels.
    """
    pair = Pair(world)
    pair.enable()
    before = world.put(pair.west, "t", b"a")
    pair.until_there(before)
    world.disable(pair.west, "t", pair.east)
    between = world.put(pair.west, "t", b"a")
    pair.enable()
    after = world.put(pair.west, "t", b"a")
    assert len(logs_of(world, pair)) == 1
    pair.rest()
    pair.must_be_there([*before, *after])
    pair.must_not_be_there(between)


def a_group_later(world: World) -> None:
    """One group is enabled, and its target is past a block when the other one is enabled, too."""
    pair = Pair(world, groups=[GOLD])
    both = (PLAIN, *GOLD.families)
    world.enable(pair.west, "t", pair.east, groups=[GOLD.name])
    plain, gold = world.put(pair.west, "t", b"a", families=both)
    pair.until_there([gold])
    world.enable(pair.west, "t", pair.east, groups=["default"])
    after = world.put(pair.west, "t", b"a", families=both)
    assert len(logs_of(world, pair)) == 1
    pair.rest()
    pair.must_be_there([gold, *after])
    pair.must_not_be_there([plain])


def closed_behind_a_move(world: World) -> None:
    """A tablet moves, and the log that it leaves behind is sealed; its tserver dies before it has said so in the row
    of a tablet that others hold now.
    """
    pair = Pair(world, tservers=2, splits=[b"d", b"m", b"r"])
    pair.enable()
    rows = (b"a", b"h", b"p", b"x")
    for row in rows:
        world.put(pair.west, "t", row)
    before = {row: pair.owner(row) for row in rows}
    pair.west.start_tserver()
    world.until(
        lambda: pair.west.is_served() and any(pair.owner(row) is not before[row] for row in rows), "a tablet moves"
    )
    left = next(before[row] for row in rows if pair.owner(row) is not before[row])
    world.hold("books:", process=left.process)
    world.roll(left)
    pair.replace(left)
    world.kernel.holds.clear()
    pair.rest()


def a_deleted_table_beside(world: World) -> None:
    """Records of two tables wait in one log for their peer, and one of the tables is deleted. The other one is flushed:
    nothing but replication needs the log.
    """
    pair = Pair(world)
    pair.west.create_table("u", "3", [])
    pair.east.create_table("u", "4", [])
    world.until(lambda: pair.west.is_served() and pair.east.is_served(), "both tables are served")
    pair.enable()
    world.enable(pair.west, "u", pair.east)
    slow = world.hold("replication-east")
    kept = world.put(pair.west, "t", b"a")
    world.put(pair.west, "u", b"a")
    kept += world.put(pair.west, "t", b"a")
    assert len(logs_of(world, pair)) == 1
    owner, (extent,) = pair.owner(), pair.west.extents("1")
    world.roll(owner)
    address = owner.part.address
    flushing = world.client(pair.west, "flush", lambda pool: pool.tserver(address, 3_000).flush_tablet(extent))
    world.until(lambda: flushing.done, "a flush")
    world.command(pair.west, "delete_table", "u")
    world.kernel.run_for(4.0)
    world.kernel.release(slow)
    pair.rest()
    pair.must_be_there(kept)


def logs_of(world: World, pair: Pair) -> set[str]:
    """West's logs that hold records."""
    return {name for name, file in world.ledger.files.items() if file.instance == pair.west.instance and file.blocks}


SCHEDULES: dict[str, tuple[Callable[[World], None], dict[str, str]]] = {  # a schedule; its switches and laws
    "written in between": (written_in_between, {"today's-configuration-counts": "not meant"}),
    "a group later": (a_group_later, {"today's-configuration-counts": "not meant", "groups-ignored": "not meant"}),
    "closed behind a move": (closed_behind_a_move, {"logs-of-the-dead-stay-open": "never: rest"}),
    "a deleted table beside": (a_deleted_table_beside, {"replication-needs-no-log": "deleted early"}),
    "flushed when deleted": (flushed_when_deleted, {"tablets-that-left-are-flushed": "never: rest"}),
    "uses behind the seal": (uses_behind_the_seal, {"uses-end-behind-the-seal": "never: rest"}),
}
RED = [(name, switch, law) for name, (_, switches) in SCHEDULES.items() for switch, law in switches.items()]


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_green_with_its_rule(name: str, tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        SCHEDULES[name][0](world)


@pytest.mark.long
@pytest.mark.parametrize(("name", "switch", "law"), RED)
def test_a_schedule_is_red_without_its_rule(name: str, switch: str, law: str, tmp_path: Path) -> None:
    broken = pytest.raises((LawBrokenError, StuckError), match=law)
    with fault(switch), simulation(tmp_path / "world") as world, broken:
        SCHEDULES[name][0](world)
