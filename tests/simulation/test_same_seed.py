"""A seed is a schedule: each process that plays it takes the same steps, whatever order its sets have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bookkeeper
from tests.support.replacement import Binding
from tests.support.simulation.__main__ import STAGES
from tests.support.simulation.patches import EDGES

SEED = "1"
LENGTH = "60"
HOSTED_LENGTH = "10"
"""Schedules with hosts take more steps for each event."""


ROOT = Path(bookkeeper.__file__).parent
PLAYED = ("master", "runtime", "storage", "tserver")
"""Rooms whose code is played as it is."""
GIVEN = {"bookkeeper.master.process"}
"""Modules to which the simulation gives its generator."""


def played(stage: str, hash_seed: str, length: str) -> str:
    """What a process says of the seed; the hash seed decides the order of sets of names in it."""
    command = [sys.executable, "-m", "tests.support.simulation", SEED, "--stage", stage, "--length", length]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.mark.long
def test_the_order_of_sets_changes_no_step_of_a_cluster_in_zookeeper() -> None:
    first, second = (played("zookeeper", hash_seed, "2") for hash_seed in ("1", "2"))
    assert "all laws hold" in first
    assert first == second


def test_no_played_module_makes_a_generator_that_the_seed_does_not_decide() -> None:
    """A tserver's waits after failures came from one, and schedules with a host away went another way each time."""
    makers = {
        ".".join(("bookkeeper", *path.relative_to(ROOT).with_suffix("").parts))
        for room in PLAYED
        for path in (ROOT / room).rglob("*.py")
        if "random.Random()" in path.read_text()
    }
    replaced = {
        target.module.__name__ for target, _ in EDGES if isinstance(target, Binding) and target.name == "random"
    }
    assert makers - GIVEN == replaced


@pytest.mark.long
@pytest.mark.parametrize("stage", STAGES)
def test_every_process_plays_a_seed_in_the_same_steps(stage: str) -> None:
    length = LENGTH if stage in ("pair", "triangle", "imports") else HOSTED_LENGTH
    first, second = (played(stage, hash_seed, length) for hash_seed in ("1", "2"))
    assert "all laws hold" in first
    assert first == second
