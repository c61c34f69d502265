"""The configuration as one value: strict reading, round trips, and one generation at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination import config_tree as tree
from bookkeeper.coordination.config_changes import set_read_only
from bookkeeper.coordination.config_tree import Instance, PeerCluster, TableConfig, parse_config, read_config
from bookkeeper.coordination.coordination_protocol import Versioned
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.errors import CorruptionError, NotFoundError
from bookkeeper.model import BlockTarget, LocalityGroup, Target, TargetKey
from tests.support.faults import fault

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
groups = st.builds(LocalityGroup, names, st.lists(st.binary(max_size=6), min_size=1, max_size=3).map(tuple))


def _targets(table_id: str) -> st.SearchStrategy[Target]:
    key = st.builds(TargetKey, names, names, st.just(table_id), st.integers(1, 2**60))
    return st.builds(Target, key, st.none() | st.lists(names, min_size=1, max_size=3).map(tuple), names, names)


tables = names.flatmap(
    lambda table_id: st.builds(
        TableConfig,
        st.just(table_id),
        names,
        st.sampled_from(["creating", "online", "deleting"]),
        st.lists(groups, max_size=3).map(tuple),
        st.dictionaries(names, st.text(max_size=5), max_size=3),
        st.lists(_targets(table_id), max_size=3).map(tuple),
    )
)

TARGET = Target(TargetKey("east", "7", "t1", 3), ("g", "h"), "i-east", "there")
TABLE = TableConfig("t1", "here", "online", (LocalityGroup("g", (b"\xff",)),), {"a": "b"}, (TARGET,))


def _entries(*tables: TableConfig) -> dict[str, Versioned]:
    return {tree.table_path(table.table_id): Versioned(tree.format_table(table), 1) for table in tables}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedCoordination]:
    coordination = EmbeddedCoordination(tmp_path, CoordinationSettings())
    yield coordination
    coordination.close()


@given(tables)
def test_a_table_reads_back(table: TableConfig) -> None:
    config = parse_config(9, _entries(table))
    assert config.generation == 9
    assert dict(config.tables) == {table.table_id: table}
    assert config.targets_of(table.table_id) == table.targets
    assert config.block_targets_of(table.table_id) == tuple(BlockTarget(t.key, t.groups) for t in table.targets)
    assert config.replicated_tables() == ((table.table_id,) if table.targets else ())


@given(names, names, names, names)
def test_a_cluster_and_an_instance_read_back(alias: str, quorum: str, instance_id: str, name: str) -> None:
    cluster, instance = PeerCluster(alias, quorum, instance_id, name), Instance(instance_id, name)
    config = parse_config(
        1,
        {
            tree.cluster_path(alias): Versioned(tree.format_cluster(cluster), 1),
            tree.INSTANCE_PATH: Versioned(tree.format_instance(instance), 1),
        },
    )
    assert dict(config.clusters) == {alias: cluster}
    assert config.instance == instance


def test_missing_things_are_named() -> None:
    config = parse_config(1, _entries(TABLE))
    assert config.table("t1") == config.table_named("here") == TABLE
    assert config.targets_of("t2") == ()
    for ask in (lambda: config.table("t2"), lambda: config.table_named("x"), lambda: config.cluster("east")):
        with pytest.raises(NotFoundError):
            ask()


def _changed(**members: object) -> bytes:
    return json.dumps({**json.loads(tree.format_table(TABLE)), **members}).encode()


def _with_target(**members: object) -> bytes:
    target = {**json.loads(tree.format_table(TABLE))["targets"][0], **members}
    return _changed(targets=[target])


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        tree.format_table(TABLE)[:-1],
        _changed(id="t2"),
        _changed(state="gone"),
        _changed(state=None),
        _changed(name=""),
        _changed(extra=1),
        _changed(properties={"a": 1}),
        _changed(groups=[{"name": "g"}]),
        _changed(groups=[{"name": "g", "families": ["*"]}]),
        _changed(groups=[{"name": "g", "families": [1]}]),
        _changed(targets=None),
        _changed(targets={}),
        _with_target(incarnation=0),
        _with_target(incarnation=True),
        _with_target(incarnation="3"),
        _with_target(groups=[]),
        _with_target(groups=[1]),
        _with_target(cluster=""),
        _with_target(other=""),
    ],
)
def test_r6_a_record_that_does_not_parse_is_an_error_and_never_nothing(raw: bytes, store: EmbeddedCoordination) -> None:
    store.put(tree.table_path("t1"), raw)
    with pytest.raises(CorruptionError, match="/tables/t1"):
        read_config(store)


def test_r6_with_the_fault_it_would_mean_nothing_configured(store: EmbeddedCoordination) -> None:
    store.put(tree.table_path("t1"), b"rubbish")
    with fault("unreadable-means-empty"):
        assert read_config(store).replicated_tables() == ()


def test_a_cluster_takes_writes_unless_it_is_read_only(store: EmbeddedCoordination) -> None:
    assert not read_config(store).read_only
    for read_only in (True, True, False):
        set_read_only(store, read_only)
        assert read_config(store).read_only is read_only
    assert store.generation() == 2, "the same again writes nothing"
    store.put(tree.READ_ONLY_PATH, b'{"read_only":"no"}')
    with pytest.raises(CorruptionError, match="/read_only"):
        read_config(store)


@pytest.mark.parametrize("path", ["/", "/table/x", "/Instance", "/clusters"])
def test_an_unknown_path_is_an_error(path: str) -> None:
    with pytest.raises(CorruptionError, match="unknown path"):
        parse_config(1, {path: Versioned(b"{}", 1)})
