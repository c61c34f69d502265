"""Imports, which travel as whole files or as records, by several paths: real clusters over simulated edges, green with
their rule, red without it, and a random search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from tests.support.faults import fault
from tests.support.simulation.chaos import run_schedule
from tests.support.simulation.kernel import StuckError
from tests.support.simulation.stage import ImportingTriangle
from tests.support.simulation.trio import Trio
from tests.support.simulation.users import GOLD, PLAIN, Write
from tests.support.simulation.world import LawBrokenError, World, simulation

NEAR = (b"a", b"h", b"k")
"""Rows of one tablet of south, which hands its files on, and of two of east."""

FAR = (b"a", b"h", b"k", b"x")
"""Rows of both tablets of south, which takes them as records, for it hands them on."""

LENGTH = 60
REST_S = 110.0
"""Twice the simulated time in which a schedule with imports comes to rest."""

BOTH = (PLAIN, *GOLD.families)


def imported(world: World, trio: Trio, rows: Sequence[bytes] = NEAR) -> list[Write]:
    """An import into west, which has returned."""
    task, made = world.import_files(trio.west, "t", rows, BOTH)
    world.until(lambda: task.done, "the import returns")
    assert {write.state for write in made} == {"acked"}, world.results[-1:]
    return made


def both_ways(world: World) -> None:
    """West's import comes to east straight and by way of south, and so does what was written before and after."""
    trio = Trio(world)
    trio.enable_all()
    before = world.put(trio.west, "t", b"a")
    made = [*imported(world, trio), *imported(world, trio, FAR)]
    trio.until_there([*before, *made, *world.put(trio.west, "t", b"a")])
    trio.rest(REST_S)


def handed_on(world: World) -> None:
    """East gets west's imports by way of south only, whose tablets end elsewhere."""
    trio = Trio(world)
    world.enable(trio.west, "t", trio.south)
    world.enable(trio.south, "t", trio.east)
    trio.until_there([*imported(world, trio), *imported(world, trio, FAR)])
    trio.rest(REST_S)


def crash_between(world: World) -> None:
    """East's tservers have taken the files straight and die, and the way by south brings the same."""
    trio = Trio(world)
    trio.enable_all()
    slow = trio.hold_south()
    trio.until_there(imported(world, trio))
    trio.kill_east()
    trio.start_east()
    world.kernel.release(slow)
    trio.rest(REST_S)


def files_behind_records(world: World) -> None:
    """The straight path is disabled while an import comes by way of south; enabled again, it brings the next one."""
    trio = Trio(world)
    trio.enable_all()
    world.disable(trio.west, "t", trio.east)
    made = imported(world, trio)
    world.enable(trio.west, "t", trio.east)
    trio.until_there([*made, *world.put(trio.west, "t", b"a"), *imported(world, trio)])
    trio.rest(REST_S)


SCHEDULES: dict[str, tuple[Callable[[World], None], dict[str, str]]] = {  # a schedule; its switches and laws
    "both ways": (both_ways, {"files-say-nothing-to-other-paths": "twice", "paths-are-not-compared": "twice"}),
    "handed on": (handed_on, {"recipients-are-not-recorded": "left over"}),
    "a crash between": (crash_between, {"files-begin-where-they-were-relayed": "twice"}),
    "files behind records": (files_behind_records, {"files-say-nothing-to-other-paths": "twice"}),
}
RED = [(name, switch, law) for name, (_, switches) in SCHEDULES.items() for switch, law in switches.items()]


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_green_with_its_rule(name: str, tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        SCHEDULES[name][0](world)


@pytest.mark.long
@pytest.mark.parametrize(("name", "switch", "law"), RED)
def test_a_schedule_is_red_without_its_rule(name: str, switch: str, law: str, tmp_path: Path) -> None:
    broken = pytest.raises(LawBrokenError, match=law)
    with fault(switch), simulation(tmp_path / "world") as world, broken:
        SCHEDULES[name][0](world)


# ---- the search

SEEDS = (1, 2)
MORE_SEEDS = (0, *range(3, 10))
"""Those of ``make test-long``."""
FINDING = (9, 18)
"""Seeds that find what is broken."""


def search(directory: Path, seeds: Iterable[int]) -> None:
    """Run random schedules of three clusters, with imports."""
    for seed in seeds:
        with simulation(directory / str(seed), seed) as world:
            run_schedule(world, seed, LENGTH, ImportingTriangle)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(MORE_SEEDS, marks=pytest.mark.long)], ids=["these", "more"])
def test_no_schedule_with_imports_breaks_a_law(seeds: Sequence[int], tmp_path: Path) -> None:
    search(tmp_path, seeds)


@pytest.mark.long
def test_random_schedules_with_imports_find_a_broken_rule(tmp_path: Path) -> None:
    with fault("files-say-nothing-to-other-paths"), pytest.raises((LawBrokenError, StuckError), match="twice"):
        search(tmp_path, FINDING)
