"""Random events in a cluster whose tablets have replicas on hosts: the laws of replicas hold beside L1 to L8.

West runs on four hosts, three of which hold each tablet; east is its peer. Besides all other accidents, hosts are away,
lose their power, have no room on their disks, and lose them. A third of the schedules elects leaders through
ZooKeeper. ``BOOKKEEPER_SIMULATION_EXAMPLES=2000 BOOKKEEPER_SIMULATION_SEED=7`` searches on.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.simulation.test_random_schedules import explained
from tests.support.simulation.chaos import run_schedule
from tests.support.simulation.hosted import HostedStage, HostLogsStage
from tests.support.simulation.world import simulation
from tests.support.simulation.zookeeper_stages import ElectedInZooKeeperStage, HostLogsInZooKeeperStage

SEEDS = int(os.environ.get("BOOKKEEPER_SIMULATION_EXAMPLES", "60"))
FIRST = int(os.environ.get("BOOKKEEPER_SIMULATION_SEED", "0")) * 10_000
AT_ONCE = range(FIRST, FIRST + SEEDS // 5)
LATER = range(FIRST + SEEDS // 5, FIRST + SEEDS)
"""Seeds of ``make test-long``."""
LENGTH = 10
"""Events of a schedule; coming to rest takes most of its steps."""


SHARES = pytest.mark.parametrize(
    "seeds", [AT_ONCE, pytest.param(LATER, marks=pytest.mark.long)], ids=["the first seeds", "more seeds"]
)


@pytest.mark.timeout(7_200 if SEEDS > 100 else 900)
@SHARES
def test_no_schedule_breaks_a_law_of_replicas(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        stage = ElectedInZooKeeperStage if seed % 3 == 2 else HostedStage
        with simulation(tmp_path / str(seed), seed) as world, explained(world, f"seed {seed} of {stage.__name__}"):
            run_schedule(world, seed, LENGTH, stage)


@pytest.mark.timeout(7_200 if SEEDS > 100 else 900)
@SHARES
def test_no_schedule_breaks_a_law_when_the_logs_lie_on_hosts(seeds: range, tmp_path: Path) -> None:
    for seed in seeds[::2]:
        stage = HostLogsInZooKeeperStage if seed % 4 == 2 else HostLogsStage
        with simulation(tmp_path / str(seed), seed) as world, explained(world, f"seed {seed} of {stage.__name__}"):
            run_schedule(world, seed, LENGTH, stage)
