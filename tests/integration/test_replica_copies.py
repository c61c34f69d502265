"""Imports into a table with replicas on three hosts, and exports of it: real processes, of which some are killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bookkeeper.client import Client, Mutation
from tests.support.cluster import Cluster

pytestmark = pytest.mark.integration

ROWS = [b"r%05d" % row for row in range(5_000)]
SPLITS = [b"r01000", b"r03000"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "own", "own", tservers=1, overrides={"standalone.hosts": 3}) as made:
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


@pytest.mark.parametrize("killed", [(), ("tserver1",), ("master", "host2.tserver1")], ids=["none", "leader", "others"])
def test_an_import_is_there_once_and_outlives_a_host(killed: tuple[str, ...], cluster: Cluster, tmp_path: Path) -> None:
    client, expected = cluster.client, given(tmp_path / "given")
    client.tables.create("t", SPLITS, properties={"table.replicas": "3"})
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(client.tables.import_directory("t", tmp_path / "given")))
    asking.start()
    for role in killed:
        cluster.kill9(role)
    asking.join(90)
    assert found == [len(expected)]
    assert cells(client, "t") == expected
    client.tables.compact("t")
    assert cells(client, "t") == expected
    (usage,) = client.tables.disk_usage("t")
    assert usage.records == len(expected), "an import counts twice"
    cluster.kill9("host3.tserver1")
    assert cells(client, "t") == expected, "imported cells are lost with a host"


@pytest.mark.parametrize("killed", ["", "tserver1", "master"])
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
