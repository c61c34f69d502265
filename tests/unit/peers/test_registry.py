"""Replica systems are found by name; an unknown name says which there are."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from bookkeeper.config.file import new_settings
from bookkeeper.errors import IncompatibleError, InvalidInputError, NotFoundError
from bookkeeper.peers import registry
from bookkeeper.peers.bookkeeper import BookkeeperSystem
from bookkeeper.peers.parquet import ParquetSystem
from bookkeeper.peers.registry import GROUP, Registry, registry_of, split_quorum
from tests.support.memory_peer import MemorySystem


@pytest.mark.parametrize(
    ("quorum", "parts"),
    [
        ("a:1,b:2", ("bookkeeper", "a:1,b:2")),
        ("hbase://h:9090/t", ("hbase", "h:9090/t")),
        ("bookkeeper://a:1", ("bookkeeper", "a:1")),
        ("zk://z:1,y:2/east", ("bookkeeper", "zk://z:1,y:2/east")),
    ],
)
def test_a_scheme_names_the_system_and_without_one_it_is_a_cluster_of_ours(quorum: str, parts: tuple[str, str]) -> None:
    assert split_quorum(quorum) == parts


@pytest.mark.parametrize("quorum", ["", "://x", "hbase://"])
def test_a_quorum_that_names_nothing_is_refused(quorum: str) -> None:
    with pytest.raises(InvalidInputError):
        split_quorum(quorum)


def test_the_built_in_system_needs_no_entry_point_and_is_made_once(tmp_path: Path) -> None:
    systems = registry_of(new_settings(tmp_path, "west"))
    assert isinstance(systems.system("bookkeeper"), BookkeeperSystem)
    assert systems.system("bookkeeper") is systems.system("bookkeeper")


def test_an_installed_package_adds_a_system_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("another", "bookkeeper.peers.parquet:ParquetSystem", GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([point]).select(group=group))
    systems = Registry()
    assert isinstance(systems.system("another"), ParquetSystem)
    assert systems.installed("another") is systems.system("another")


def test_the_parquet_system_comes_through_its_entry_point() -> None:
    assert isinstance(Registry().system("parquet"), ParquetSystem)


def test_a_system_that_only_ships_can_not_be_asked() -> None:
    systems = Registry({"memory": lambda: MemorySystem({})})
    assert systems.system("memory").name == "memory"
    with pytest.raises(IncompatibleError, match="MemorySystem"):
        systems.installed("memory")


def test_an_unknown_name_says_which_are_known() -> None:
    with pytest.raises(NotFoundError, match="bookkeeper"):
        Registry().system("cassandra")
