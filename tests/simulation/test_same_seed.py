"""A seed is a schedule: each process that plays it takes the same steps, whatever order its sets have."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.simulation.__main__ import STAGES

SEED = "1"
LENGTH = "60"
HOSTED_LENGTH = "10"
"""Schedules with hosts take more steps for each event."""


def played(stage: str, hash_seed: str, length: str) -> str:
    """What a process says of the seed; the hash seed decides the order of sets of names in it."""
    command = [sys.executable, "-m", "tests.support.simulation", SEED, "--stage", stage, "--length", length]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def test_the_order_of_sets_changes_no_step_of_a_cluster_in_zookeeper() -> None:
    first, second = (played("zookeeper", hash_seed, "2") for hash_seed in ("1", "2"))
    assert "all laws hold" in first
    assert first == second


@pytest.mark.long
@pytest.mark.parametrize("stage", STAGES)
def test_every_process_plays_a_seed_in_the_same_steps(stage: str) -> None:
    length = LENGTH if stage in ("pair", "triangle", "imports") else HOSTED_LENGTH
    first, second = (played(stage, hash_seed, length) for hash_seed in ("1", "2"))
    assert "all laws hold" in first
    assert first == second
