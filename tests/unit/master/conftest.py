"""Fixtures of the master's tests. Each imports what it makes: a pure test of a rule waits for none of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.master_world import World
    from tests.support.masters import LocalMaster
    from tests.support.operation_plays import Outcomes
    from tests.support.operation_scenes import Scene


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A cluster whose table 1 has one tablet, ``1<``, and a peer that nobody answers for."""
    from tests.support.master_world import World

    made = World.at(tmp_path / "west")
    made.create_table("1")
    yield made
    made.close()


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMaster]:
    """The peer of a module's scenes, with the table ``remote``: each cluster has its own identity. Masters of scenes
    read the files of imports by themselves.
    """
    from bookkeeper.standalone.directory import init_cluster
    from tests.support.inputs_here import inputs_read_here
    from tests.support.master_world import UNHURRIED
    from tests.support.masters import LocalMaster

    home: Path = tmp_path_factory.mktemp("peer")
    with inputs_read_here(), LocalMaster(init_cluster(home / "peer", "peer", overrides=UNHURRIED)) as made:
        made.calls.create_table("remote", [], [], {})
        yield made
        made.leadership.stop()


@pytest.fixture
def scene(tmp_path: Path, peer: LocalMaster) -> Iterator[Scene]:
    """A cluster with one master."""
    from tests.support.operation_scenes import scene_at

    with scene_at(tmp_path / "west", peer) as made:
        yield made


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, peer: LocalMaster) -> Outcomes:
    """The ends of operations that nothing interrupts."""
    from tests.support.operation_plays import Outcomes

    return Outcomes(tmp_path_factory.mktemp("uncut"), peer)
