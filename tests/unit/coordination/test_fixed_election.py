"""The election that a cluster has fixed: the first process records it, and only a stopped cluster changes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.config_tree import ELECTION_PATH, read_config
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.coordination.fixed_election import agree_on_election, replace_election
from bookkeeper.errors import CorruptionError, RefusedError


class Rival(EmbeddedCoordination):
    """Another process records its election right before the first write of this one."""

    rival = ""

    def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        rival, self.rival = self.rival, ""
        if rival:
            agree_on_election(self, rival)
        return super().put(path, value, expected_version)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Rival]:
    """A store."""
    made = Rival(tmp_path, CoordinationSettings())
    yield made
    made.close()


def test_the_first_process_records_the_election_and_one_with_another_is_refused(store: Rival) -> None:
    assert read_config(store).election is None
    agree_on_election(store, "master")
    generation = store.generation()
    agree_on_election(store, "master")
    with pytest.raises(RefusedError, match=r"elects leaders by master; set it to master, or stop all hosts"):
        agree_on_election(store, "coordination")
    assert read_config(store).election == "master"
    assert store.generation() == generation, "a check writes"


def test_of_two_first_processes_one_records_the_election(store: Rival) -> None:
    store.rival = "master"
    with pytest.raises(RefusedError, match="elects leaders by master"):
        agree_on_election(store, "coordination")
    assert read_config(store).election == "master"


def test_a_start_of_a_stopped_cluster_replaces_the_election(store: Rival) -> None:
    replace_election(store, "master")
    replace_election(store, "coordination")
    generation = store.generation()
    replace_election(store, "coordination")
    assert store.generation() == generation, "the same again writes"
    agree_on_election(store, "coordination")


def test_r6_an_election_that_does_not_parse_is_an_error(store: Rival) -> None:
    store.put(ELECTION_PATH, b'{"election":""}')
    with pytest.raises(CorruptionError, match="/election"):
        agree_on_election(store, "master")
