"""Fixtures of schedules that need a master only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.master_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A cluster whose table 1 has one tablet."""
    made = World.at(tmp_path / "west")
    made.create_table("1")
    yield made
    made.close()
