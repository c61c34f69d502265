"""Random events in a cluster whose tablets have replicas on hosts: the laws of replicas hold beside L1 to L8.

West runs on four hosts, three of which hold each tablet; east is its peer. Besides all other accidents, hosts are away,
lose their power, have no room on their disks, and lose them. A third of the schedules elects leaders through
ZooKeeper. ``BOOKKEEPER_SIMULATION_EXAMPLES=2000 BOOKKEEPER_SIMULATION_SEED=7`` searches on.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from tests.simulation.test_random_schedules import explained
from tests.support.simulation.chaos import run_schedule
from tests.support.simulation.hosted import HostedStage, HostLogsStage
from tests.support.simulation.world import simulation
from tests.support.simulation.zookeeper_stages import ElectedInZooKeeperStage, HostLogsInZooKeeperStage

SEEDS = int(os.environ.get("BOOKKEEPER_SIMULATION_EXAMPLES", "60"))
FIRST = int(os.environ.get("BOOKKEEPER_SIMULATION_SEED", "0")) * 10_000
AT_ONCE = (1, 3, 4, 14)
LOGS_AT_ONCE = (0, 12, 14)
"""Seeds of ``make test``, some for each stage, which come to rest in few steps; ``make test-long`` has the others."""
LENGTH = 10
"""Events of a schedule; coming to rest takes most of its steps."""


def shares(at_once: Collection[int], step: int) -> pytest.MarkDecorator:
    """The seeds of each run, and all others up to :data:`SEEDS`."""
    first = [FIRST + seed for seed in at_once]
    later = [seed for seed in range(FIRST, FIRST + SEEDS, step) if seed not in first]
    return pytest.mark.parametrize(
        "seeds", [first, pytest.param(later, marks=pytest.mark.long)], ids=["the first seeds", "more seeds"]
    )


@pytest.mark.timeout(7_200 if SEEDS > 100 else 900)
@shares(AT_ONCE, 1)
def test_no_schedule_breaks_a_law_of_replicas(seeds: Sequence[int], tmp_path: Path) -> None:
    for seed in seeds:
        stage = ElectedInZooKeeperStage if seed % 3 == 2 else HostedStage
        with simulation(tmp_path / str(seed), seed) as world, explained(world, f"seed {seed} of {stage.__name__}"):
            run_schedule(world, seed, LENGTH, stage)


@pytest.mark.timeout(7_200 if SEEDS > 100 else 900)
@shares(LOGS_AT_ONCE, 2)
def test_no_schedule_breaks_a_law_when_the_logs_lie_on_hosts(seeds: Sequence[int], tmp_path: Path) -> None:
    for seed in seeds:
        stage = HostLogsInZooKeeperStage if seed % 4 == 2 else HostLogsStage
        with simulation(tmp_path / str(seed), seed) as world, explained(world, f"seed {seed} of {stage.__name__}"):
            run_schedule(world, seed, LENGTH, stage)
