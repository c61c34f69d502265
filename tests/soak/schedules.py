"""Random schedules of three simulated clusters, of which each record may come by two paths; some with imports.

A schedule that breaks a law leaves a file with every step, and raises :class:`InvariantError` with the seed and the
law.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.soak.faults import InvariantError
from tests.soak.trace import Trace
from tests.support.simulation.chaos import run_schedule
from tests.support.simulation.stage import ImportingTriangle, Triangle
from tests.support.simulation.world import simulation

LENGTH = 60
"""Things that happen in one schedule."""

SAID_EVERY = 20

IMPORTS_EVERY = 4
"""A seed that this divides is played with imports, too: another schedule."""


def run_schedules(directory: Path, seeds: Sequence[int], trace: Trace) -> None:
    """One schedule for each seed; each runs alone in this process. Raises InvariantError."""
    for number, seed in enumerate(seeds, 1):
        run_one(directory / f"schedule-{seed}", seed, Triangle)
        if not seed % IMPORTS_EVERY:
            run_one(directory / f"schedule-{seed}-with-imports", seed, ImportingTriangle)
        if not number % SAID_EVERY or number == len(seeds):
            trace.say(f"{number} schedules of three clusters held, the last one of seed {seed}")


def run_one(directory: Path, seed: int, stage: type[Triangle]) -> None:
    """The schedule of a seed. Raises InvariantError."""
    with simulation(directory, seed) as world:
        try:
            run_schedule(world, seed, LENGTH, stage)
        except AssertionError as error:
            steps = directory.with_suffix(".txt")
            steps.write_text("\n".join(world.kernel.trace))
            again = f"python -m tests.soak --rounds 0 --schedules 1 --first-schedule {seed}"
            told = [f"schedule {seed} of three clusters: {error}", *getattr(error, "__notes__", ())]
            raise InvariantError("\n".join([*told, f"every step is in {steps}; again: {again}"])) from error
