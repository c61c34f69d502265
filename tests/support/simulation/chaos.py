"""Clusters that replicate into each other, and everything that may happen to them.

Arrives: names of things that happen, each with a number that says how, so that any sequence of them is a schedule.
Leaves: the world they led to. Between two of them random tasks go on for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from tests.support.simulation import accidents, deeds, host_accidents, zookeeper_accidents
from tests.support.simulation.climate import Climate, drawn
from tests.support.simulation.late_writes import drawn_way
from tests.support.simulation.laws import judge_at_rest
from tests.support.simulation.stage import ROWS, Stage
from tests.support.simulation.world import World

Happening = Callable[[Stage, Random], None]

DAILY: Mapping[str, Happening] = deeds.DAILY
"""Acts of users, and regular acts of clusters."""

SELDOM: Mapping[str, Happening] = {**deeds.SELDOM, **accidents.ACCIDENTS}
"""Acts of operators, and accidents."""

HAPPENINGS: Mapping[str, Happening] = {**DAILY, **SELDOM}


MORE: Mapping[str, Happening] = {**deeds.MORE, **host_accidents.ACCIDENTS, **zookeeper_accidents.ACCIDENTS}
"""Further ones, for stages that name them."""


LAG_STEPS = 4
"""The shown lag is compared after each of so many steps; ``test_schedules_lag`` does it after every step."""


class Chaos:
    """One schedule. Any number is good for anything."""

    def __init__(self, world: World, seed: int, climate: Climate | None = None, stage: type[Stage] = Stage) -> None:
        self.happenings = {**HAPPENINGS, **{name: MORE[name] for name in stage.more}}
        seldom = tuple(name for name in (*SELDOM, *stage.more) if name not in stage.without)
        self.climate = climate or drawn(seed, tuple(DAILY), seldom, ROWS, stage.threads, stage.frequent)
        self.world = world
        self.kernel = world.kernel
        self.kernel.note(f"seed {seed}: {self.climate}")
        self.stage = stage(world, Random(seed), self.climate.rows, self.climate.both_ways)
        for cluster in self.stage.clusters:
            cluster.table.way = drawn_way(seed, cluster.name)
            cluster.coordination.draw(seed)
        self.kernel.observe = self._judge

    def _judge(self) -> None:
        """After each step. Raises LawBrokenError."""
        if self.kernel.steps % LAG_STEPS:
            self.world.judge()
        else:
            self.world.judge_lag()

    def happen(self, name: str, number: int) -> None:
        """Let something happen."""
        self.kernel.note(f"{name} {number}")
        self.stage.supervise()
        self.happenings[name](self.stage, Random(number))

    def run(self, seed: int, steps: int) -> None:
        """Random tasks go on. Raises LawBrokenError."""
        self.kernel.burst(steps, Random(seed), self.climate.time_odds, self.climate.is_slow)

    def finish(self) -> None:
        """No more faults; everything comes to rest, and all laws are judged. Raises StuckError, LawBrokenError."""
        self.world.caretaker = self.stage.repair
        self.world.rest()
        judge_at_rest(self.world)
        if not self.climate.blackout:
            return
        for cluster in self.stage.clusters:
            for node in cluster.alive(cluster.tservers):
                cluster.kill(node, power=True)
        self.world.rest()
        judge_at_rest(self.world)


def run_schedule(world: World, seed: int, length: int, stage: type[Stage] = Stage) -> None:
    """A whole schedule from one number."""
    chaos = Chaos(world, seed, stage=stage)
    rng = Random(seed)
    for _ in range(length):
        chaos.happen(rng.choice(chaos.climate.urn), rng.randrange(2**30))
        chaos.run(rng.randrange(2**30), rng.randint(0, chaos.climate.pace))
    chaos.finish()
