"""Random events in random order: the laws L1 to L8 hold, and all work ends.

The real code of masters, tservers, senders and receivers runs over simulated edges (``tests.support.simulation``), one
atomic step at a time. Hypothesis chooses the events; tasks go on at random in between. Most of the long schedules, and
all short ones, have their coordination stores in ZooKeeper: servers lag, answers are lost, ways are cut, machines are
paused with their clocks. The run is the same each time;
``BOOKKEEPER_SIMULATION_EXAMPLES=1000 BOOKKEEPER_SIMULATION_SEED=7`` searches on, from another seed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.support.simulation.chaos import Chaos, run_schedule
from tests.support.simulation.cluster import Cluster
from tests.support.simulation.pair import Pair
from tests.support.simulation.stage import Stage
from tests.support.simulation.world import World, simulation
from tests.support.simulation.zookeeper_stages import ZooKeeperStage

EXAMPLES = int(os.environ.get("BOOKKEEPER_SIMULATION_EXAMPLES", "8"))
SEED = int(os.environ.get("BOOKKEEPER_SIMULATION_SEED", "0"))
EXAMPLES_AT_ONCE = 3
SEEDS = range(SEED * 10_000, SEED * 10_000 + max(1, EXAMPLES * 5 // 8))
SEEDS_AT_ONCE = range(SEED * 10_000 + 3, SEED * 10_000 + 6)
"""Those of ``make test``, some for each stage; ``make test-long`` has the others, too."""
SHORT_SEEDS = range(SEED * 10_000 + 100, SEED * 10_000 + 400)
SHORT_LENGTH = 10
"""Events of a short schedule: most of its cost is its start and its way to rest."""
SHORT_SEEDS_AT_ONCE = 15
TRACE_LINES = 120
NUMBERS = st.integers(0, 9_999)


@contextmanager
def explained(world: World, what: str) -> Iterator[None]:
    """An error comes with the way that led to it."""
    try:
        yield
    except BaseException as error:
        lines = world.kernel.trace[-TRACE_LINES:]
        error.add_note(f"{what}; the last {len(lines)} of {world.kernel.steps} steps:\n" + "\n".join(lines))
        raise


class Schedules(RuleBasedStateMachine):
    """Two clusters, and one thing after another."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._chaos: Chaos | None = None
        self._failed = False

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        directory = self._stack.enter_context(tempfile.TemporaryDirectory())
        world = self._stack.enter_context(simulation(Path(directory) / "world", seed))
        with explained(world, f"the beginning of seed {seed}"):
            self._chaos = Chaos(world, seed)

    @rule(data=st.data(), number=NUMBERS, seed=NUMBERS, steps=st.integers(0, 60))
    def happen(self, data: st.DataObject, number: int, seed: int, steps: int) -> None:
        chaos = self._chaos
        assert chaos is not None
        name = data.draw(st.sampled_from(chaos.climate.urn), "what happens")
        self._failed = True
        with explained(chaos.world, f"{name} {number}"):
            chaos.happen(name, number)
            chaos.run(seed, steps)
        self._failed = False

    def teardown(self) -> None:
        try:
            if self._chaos is not None and not self._failed:
                with explained(self._chaos.world, "coming to rest"):
                    self._chaos.finish()
        finally:
            self._stack.close()


@pytest.mark.timeout(3_600 if EXAMPLES > 100 else 900)
@pytest.mark.parametrize(
    "examples", [EXAMPLES_AT_ONCE, pytest.param(EXAMPLES, marks=pytest.mark.long)], ids=["a few", "more"]
)
def test_no_schedule_breaks_a_law(examples: int) -> None:
    options = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        derandomize=SEED == 0,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    machine = hypothesis_seed(SEED)(Schedules) if SEED else Schedules
    run_state_machine_as_test(machine, settings=options)


@pytest.mark.timeout(3_600 if EXAMPLES > 100 else 900)
@pytest.mark.parametrize("seeds", [SEEDS_AT_ONCE, pytest.param(SEEDS, marks=pytest.mark.long)], ids=["a few", "more"])
def test_no_long_schedule_breaks_a_law(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        stage = Stage if seed % 3 == 2 else ZooKeeperStage
        with simulation(tmp_path / str(seed), seed) as world, explained(world, f"seed {seed} of {stage.__name__}"):
            run_schedule(world, seed, 60, stage)


@pytest.mark.parametrize("first", SHORT_SEEDS[::SHORT_SEEDS_AT_ONCE])
def test_no_short_schedule_breaks_a_law(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + SHORT_SEEDS_AT_ONCE):
        with simulation(tmp_path / str(seed), seed) as world, explained(world, f"seed {seed} of ZooKeeperStage"):
            run_schedule(world, seed, SHORT_LENGTH, ZooKeeperStage)


def test_a_seed_is_a_schedule(tmp_path: Path) -> None:
    """The same seed gives the same steps, so that a failure can be looked at again."""
    traces = []
    for _ in range(2):
        with simulation(tmp_path / "world", 3) as world:
            run_schedule(world, 3, 25)
            traces.append(world.kernel.trace)
    assert traces[0] == traces[1]


def kill_all(cluster: Cluster) -> None:
    """Every process of a cluster dies."""
    for node in [*cluster.masters, *cluster.tservers, *cluster.replays]:
        cluster.kill(node)


def test_supervisors_start_what_has_died_when_nothing_else_goes_on(tmp_path: Path) -> None:
    """No thread is left that could go on, and the world looks at its clusters after each fiftieth step only."""
    with simulation(tmp_path / "world") as world:
        pair = Pair(world)
        for cluster in (pair.west, pair.east):
            kill_all(cluster)
        world.kernel.steps += world.kernel.steps % 50 == 0
        pair.rest()


def test_supervisors_start_what_dies_on_the_way_to_rest(tmp_path: Path) -> None:
    """All of a cluster was served once, and then its processes die."""
    with simulation(tmp_path / "world") as world:
        pair = Pair(world)
        alive = [pair.west]

        def kill_once() -> None:
            while alive:
                kill_all(alive.pop())

        world.caretaker = kill_once
        pair.rest()
