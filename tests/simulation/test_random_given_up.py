"""Random events around hosts that stay away with their logs: each acknowledged record is there once in the end (N6).

Hosts that lead die with records that no other host has, and come back at any time, also while another one is away. The
real master, leaders and hosts, with a peer. ``BOOKKEEPER_SIMULATION_EXAMPLES=400`` searches on.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from tests.simulation.test_random_schedules import explained
from tests.simulation.test_schedules_given_up import GIVEN_UP, OWN_LOGS, rest
from tests.support.simulation.hosted import Hosted
from tests.support.simulation.world import World, simulation

SEEDS = int(os.environ.get("BOOKKEEPER_SIMULATION_EXAMPLES", "60")) // 5
AT_ONCE = range(SEEDS // 3)
LATER = range(SEEDS // 3, SEEDS)
"""Seeds of ``make test-long``."""
EVENTS = 9


class Forsaken:
    """One schedule."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.rng = world, Random(seed)
        self.hosted = Hosted(world, properties=GIVEN_UP, settings={**OWN_LOGS, "replicas.repair_after_ms": 3_600_000})
        self.hosted.replicate_to("east")
        self.values: list[bytes] = []

    def happen(self) -> None:
        """Something happens."""
        self.rng.choice((self.write, self.write, self.flush, self.forsake, self.forsake, self.come_back, self.wait))()

    def write(self) -> None:
        """Acknowledged records."""
        self.values += self.hosted.put(*self.rng.choices((b"a", b"g", b"m", b"z"), k=self.rng.randint(1, 3)))

    def flush(self) -> None:
        """The leader flushes; the books may name the state later."""
        self.hosted.flush()

    def forsake(self) -> None:
        """The leader's host dies, and another one leads without its log."""
        if all(host.is_up for host in self.hosted.west.hosts):
            first = self.hosted.leader
            first.kill(power=self.rng.random() < 0.5)
            self.hosted.until_led_by_another(first)

    def come_back(self) -> None:
        """A host that is away comes back."""
        for host in self.hosted.west.hosts:
            if not host.is_up:
                host.start()

    def wait(self) -> None:
        """Time passes."""
        self.world.kernel.run_for(self.rng.choice((1, 3)))


@pytest.mark.timeout(3_600 if SEEDS > 20 else 600)
@pytest.mark.parametrize(
    "seeds", [AT_ONCE, pytest.param(LATER, marks=pytest.mark.long)], ids=["the first seeds", "more seeds"]
)
def test_each_record_is_there_once_however_hosts_come_and_go(seeds: range, tmp_path: Path) -> None:
    given_up = 0
    for seed in seeds:
        with simulation(tmp_path / str(seed), seed) as world, explained(world, f"seed {seed}"):
            schedule = Forsaken(world, seed)
            for _ in range(EVENTS):
                schedule.happen()
            rest(schedule.hosted, schedule.values)
            given_up += len(world.ledger.given_up)
    assert given_up > len(seeds) // 2, "too few schedules give a log up"
