"""Imports into a table with replicas on three hosts, and exports of it: real processes, of which some are killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.master.gc.gc_rules import IMPORT_KIND
from tests.soak.hosts.host_files import compare, named_tablets
from tests.support.books import books_of
from tests.support.cluster import Cluster
from tests.support.hosted_cluster import HOSTS, REPLICAS, HostedCluster, role_of
from tests.support.shared_cluster import lent

pytestmark = pytest.mark.integration

ROWS = [b"r%05d" % row for row in range(5_000)]
SETTINGS: Mapping[str, object] = {"standalone.hosts": 3, "coordination.session_lease_ms": 120_000}
"""A host that stands still keeps its lease; one that is killed counts as dead at once."""
SPLITS = [b"r01000", b"r03000"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("copies") / "own", "own", tservers=1, overrides=SETTINGS) as made:
        yield made


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    with lent(running) as made:
        yield made


def given(directory: Path) -> dict[bytes, bytes]:
    """A Parquet file with a value of each row; these values."""
    directory.mkdir()
    values = {row: b"v" + row for row in ROWS}
    table = pa.table({"row": [*values], "family": ["f"] * len(ROWS), "qualifier": ["q"] * len(ROWS),
                      "timestamp": [5] * len(ROWS), "value": [*values.values()]})  # fmt: skip
    pq.write_table(table, directory / "many.parquet")
    return values


def cells(client: Client, table: str) -> dict[bytes, bytes]:
    return {cell.row: cell.value for cell in client.scan(table).cells()}


def test_an_import_is_there_once_and_outlives_a_host(cluster: Cluster, tmp_path: Path) -> None:
    client, expected = cluster.client, given(tmp_path / "given")
    client.tables.create("t", SPLITS, properties={"table.replicas": "3"})
    assert client.tables.import_directory("t", tmp_path / "given") == len(expected)
    check_once(cluster, expected)
    cluster.kill9("host3.tserver1")
    assert cells(client, "t") == expected, "imported cells are lost with a host"


def check_once(cluster: Cluster, expected: Mapping[bytes, bytes]) -> None:
    """The table has these cells and each of them once, also after a compaction."""
    assert cells(cluster.client, "t") == expected
    cluster.client.tables.compact("t")
    assert cells(cluster.client, "t") == expected
    (usage,) = cluster.client.tables.disk_usage("t")
    assert usage.records == len(expected), "an import counts twice"


@pytest.mark.parametrize("killed", ["master", pytest.param("leader", marks=pytest.mark.long)])
def test_an_import_that_is_killed_between_its_states_is_there_once_on_every_host(
    killed: str, cluster: Cluster, tmp_path: Path
) -> None:
    client, expected = cluster.client, given(tmp_path / "given")
    client.tables.create("t", properties={"table.replicas": "3"})
    hosted = HostedCluster(cluster, ("t",), None)
    leader = hosted.leader()
    cluster.wait_until(lambda: is_named(hosted), "a first state with a name")
    before = {host: files_on(hosted, host) for host in HOSTS}
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(client.tables.import_directory("t", tmp_path / "given")))

    def is_taken_by_the_leader_alone() -> bool:
        steps = [one.step for one in client.operations() if one.kind == IMPORT_KIND]
        return steps == ["adopt"] and bool(files_on(hosted, leader) - before[leader])

    with hosted.halted(*set(HOSTS) - {leader}):  # the import can't end before they go on
        asking.start()
        cluster.wait_until(is_taken_by_the_leader_alone, "an import that has begun")
        assert not found
        assert not any(files_on(hosted, host) - before[host] for host in set(HOSTS) - {leader})
        cluster.kill9("master" if killed == "master" else role_of(leader))
    asking.join(90)
    assert found == [len(expected)]
    check_once(cluster, expected)
    cluster.wait_until(lambda: not hosted.lacking(), "hosts with all of the table")
    with closing(books_of(cluster.settings)) as table:
        looked = compare(named_tablets(table.scan()), hosted.homes())
    assert not looked.problems


def is_named(hosted: HostedCluster) -> bool:
    """Whether the books name a state of each tablet, and each replica has it: a tablet takes an import then."""
    return all(tablet.named for tablet in hosted.replicas()) and not hosted.lacking()


def files_on(hosted: HostedCluster, host: str) -> set[Path]:
    """The segment files on a host's own disk."""
    return {*(hosted.home(host) / REPLICAS / "tables").rglob("*.parquet")}


@pytest.mark.parametrize("killed", ["", "tserver1", pytest.param("master", marks=pytest.mark.long)])
def test_an_export_is_complete_and_like_that_of_any_table(killed: str, cluster: Cluster, tmp_path: Path) -> None:
    client, expected = cluster.client, given(tmp_path / "given")
    client.tables.create("t", SPLITS, properties={"table.replicas": "3"})
    client.tables.import_directory("t", tmp_path / "given")
    with client.writer("t") as writer:
        for row in ROWS[::7]:
            writer.add(Mutation(row).put(b"f", b"q", b"new"))
            expected[row] = b"new"
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(client.tables.export("t", tmp_path / "out")))
    asking.start()
    if killed:
        cluster.kill9(killed)
    client.tables.compact("t")
    asking.join(90)
    assert found, "the export has not ended"
    assert client.tables.import_exported("u", tmp_path / "out") == found[0]
    assert cells(client, "u") == expected
    assert cells(client, "t") == expected
