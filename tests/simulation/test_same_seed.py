"""A seed is a schedule: each process that plays it takes the same steps, whatever order its sets have."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.simulation.__main__ import STAGES

SEED = "1"
HOSTED_LENGTH = "10"
"""Schedules with hosts take more steps for each event."""


def played(stage: str, hash_seed: str) -> str:
    """What a process says of the seed; the hash seed decides the order of sets of names in it."""
    length = [] if stage in ("pair", "triangle", "imports") else ["--length", HOSTED_LENGTH]
    command = [sys.executable, "-m", "tests.support.simulation", SEED, "--stage", stage, *length]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.mark.long
@pytest.mark.parametrize("stage", STAGES)
def test_every_process_plays_a_seed_in_the_same_steps(stage: str) -> None:
    first, second = (played(stage, hash_seed) for hash_seed in ("1", "2"))
    assert "all laws hold" in first
    assert first == second
