"""``python -m tests.support.simulation SEED``: plays one random schedule, and shows its steps when a law breaks.

``--stage`` is what the failing run names: ``pair`` and ``zookeeper`` for ``tests/simulation/test_random_schedules.py``;
``hosts``, ``zookeeper-elected``, ``host-logs`` and ``zookeeper-host-logs`` for
``tests/simulation/test_random_replicas.py`` (with ``--length 10``); ``elected``, ``triangle`` and ``imports`` for
``tests.soak``.
``--switch`` plays it with a broken rule (:mod:`tests.support.faults`).
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import click

from tests.support.faults import fault
from tests.support.simulation.chaos import run_schedule
from tests.support.simulation.hosted import ElectedStage, HostedStage, HostLogsStage
from tests.support.simulation.stage import ImportingTriangle, Stage, Triangle
from tests.support.simulation.world import simulation
from tests.support.simulation.zookeeper_stages import ElectedInZooKeeperStage, HostLogsInZooKeeperStage, ZooKeeperStage

STAGES: Mapping[str, type[Stage]] = {
    "pair": Stage,
    "triangle": Triangle,
    "imports": ImportingTriangle,
    "hosts": HostedStage,
    "host-logs": HostLogsStage,
    "elected": ElectedStage,
    "zookeeper": ZooKeeperStage,
    "zookeeper-elected": ElectedInZooKeeperStage,
    "zookeeper-host-logs": HostLogsInZooKeeperStage,
}


@click.command()
@click.argument("seed", type=int)
@click.option("--stage", type=click.Choice(list(STAGES)), default="pair", show_default=True, help="Which clusters.")
@click.option("--length", default=60, show_default=True, help="Events in the schedule.")
@click.option("--switch", help="Name of a fault switch.")
@click.option("--lines", default=120, show_default=True, help="Steps to print when a law breaks.")
def main(seed: int, stage: str, length: int, switch: str | None, lines: int) -> None:
    """Play the schedule of SEED; exit code 1 when a law breaks."""
    broken = fault(switch) if switch else nullcontext()
    with tempfile.TemporaryDirectory() as name, broken, simulation(Path(name) / "world", seed) as world:
        try:
            run_schedule(world, seed, length, STAGES[stage])
        except AssertionError as error:
            click.echo("\n".join([*world.kernel.trace[-lines:], "", f"{error}", *getattr(error, "__notes__", ())]))
            sys.exit(1)
        digest = hashlib.sha256("\n".join(world.kernel.trace).encode()).hexdigest()[:12]
        click.echo(f"seed {seed}: all laws hold after {world.kernel.steps} steps (trace {digest})")


if __name__ == "__main__":
    main()
