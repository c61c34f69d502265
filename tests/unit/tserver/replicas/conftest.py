"""Fixtures of the tests of replicas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.replica_world import ReplicaWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ReplicaWorld]:
    """host1 leads, host2 and host3 follow."""
    from tests.support.replica_world import replica_world

    found = replica_world(tmp_path, "host1", "host2", "host3")
    yield found
    found.close()
