"""Peers that are no clusters of ours, end to end: a directory, and a replica system of another party."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from bookkeeper.client import Client, Mutation
from bookkeeper.errors import InvalidInputError, NotFoundError
from bookkeeper.model import LocalityGroup
from tests.support.cluster import Cluster
from tests.support.directory_peer import LATEST, DirectoryPeer

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(900)]

LIMIT_MS = 300_000
GROUPS = [LocalityGroup("geo", (b"geo",)), LocalityGroup("label", (b"label",))]
ROWS = 400

Cells = dict[tuple[bytes, bytes, bytes], tuple[int, bytes]]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("peers") / "lake"


@pytest.fixture(scope="module")
def lake(west: Cluster, root: Path) -> Iterator[DirectoryPeer]:
    """A directory as a peer of west's table ``lake-cities``, with all that was written while processes died."""
    client = west.client
    client.tables.create("lake-cities", [b"5"], GROUPS)
    defined = client.replication.define_cluster("lake", f"parquet://{root}")
    assert client.replication.define_cluster("lake", f"parquet://{root}").instance_id == defined.instance_id
    client.replication.enable("lake-cities", "lake", remote_table="cities")
    stop, written = threading.Event(), threading.Semaphore(0)
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write, client, "lake-cities", written, stop)
        try:
            for role in ("replay", "tserver1", "tserver2"):  # each may hold the table
                assert all(written.acquire(timeout=LIMIT_MS / 1000) for _ in range(10))
                west.wait_restarted(role, west.kill9(role))
            assert all(written.acquire(timeout=LIMIT_MS / 1000) for _ in range(10))
        finally:
            stop.set()
        writing.result(LIMIT_MS / 1000)
    assert not client.replication.wait("lake-cities", timeout_ms=LIMIT_MS)
    yield DirectoryPeer(root)
    client.replication.disable("lake-cities", "lake")
    client.replication.delete_cluster("lake", f"parquet://{root}")


def write(client: Client, table: str, written: threading.Semaphore, stop: threading.Event) -> None:
    """Rows that are written, changed and in part deleted again, 50 a batch, until told to stop."""
    number = 0
    with client.writer(table) as writer:
        while not stop.wait(0.05):
            for _ in range(50):
                row = b"%d-%05d" % (number % 10, number % ROWS)
                mutation = Mutation(row).put(b"geo", b"lat", b"%d" % number).put(b"label", b"name", b"n%d" % number)
                writer.add(Mutation(row).delete(b"geo", b"lat") if number % 7 == 0 else mutation)
                number += 1
            writer.flush()
            written.release()


def cells(client: Client, table: str) -> Cells:
    found = client.scan(table).cells()
    return {(cell.row, cell.family, cell.qualifier): (cell.timestamp, cell.value) for cell in found}


def test_each_record_is_there_once_and_duckdb_finds_the_table_in_them(
    west: Cluster, lake: DirectoryPeer, root: Path
) -> None:
    with duckdb.connect() as connection:
        files = f"read_parquet('{root}/**/*.parquet', hive_partitioning = true)"
        query = (
            f"SELECT count(*), count(DISTINCT (_source, _file, _offset)), min(table_name), max(table_name) FROM {files}"
        )
        total, distinct, *names = connection.execute(query).fetchall()[0]
        assert total == distinct > 2 * ROWS
        assert names == ["cities", "cities"]
        latest = connection.execute(LATEST.format(root=root, table="cities")).fetchall()
    expected = cells(west.client, "lake-cities")
    assert {(row, family, qualifier): (time, value) for row, family, qualifier, time, value in latest} == expected
    sources = set(lake.table().column("_source").to_pylist())
    assert sources == {west.settings.instance.instance_id}


@pytest.mark.long
def test_spark_reads_the_same_with_its_partitions(spark: SparkSession, lake: DirectoryPeer, root: Path) -> None:
    frame = spark.read.parquet(str(root))
    assert {"table_name", "day", "stream"} <= set(frame.columns)
    total = lake.table().num_rows
    assert frame.count() == frame.select("_source", "_file", "_offset").distinct().count() == total
    days = {path.parent.parent.name.removeprefix("day=") for path in lake.messages}
    assert {str(row.day) for row in frame.select("day").distinct().collect()} == days


def test_within_a_log_files_are_in_order_without_a_record_twice(lake: DirectoryPeer) -> None:
    table = lake.table()
    by_log: dict[str, list[int]] = {}
    for file, offset in zip(table.column("_file").to_pylist(), table.column("_offset").to_pylist(), strict=True):
        by_log.setdefault(file, []).append(offset)
    assert all(len(set(offsets)) == len(offsets) for offsets in by_log.values())
    assert len(by_log) >= 2


def test_what_can_not_be_a_directory_of_ours_is_refused(west: Cluster, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(InvalidInputError, match="names no directory"):
        west.client.replication.define_cluster("wrong", "parquet://relative")
    with pytest.raises(InvalidInputError, match=r"no replica system 'cellar'.*ledger.*parquet"):
        west.client.replication.define_cluster("wrong", "cellar://x")


def test_a_replica_system_of_another_party_is_found_by_its_entry_point(west: Cluster, tmp_path: Path) -> None:
    client, quorum = west.client, f"ledger://{tmp_path}/books.db"
    client.tables.create("ledger-cities", [b"5"], GROUPS)
    client.replication.define_cluster("ledger", quorum)
    with pytest.raises(NotFoundError, match="capital names"):
        client.replication.enable("ledger-cities", "ledger")
    client.replication.enable("ledger-cities", "ledger", ["geo"], remote_table="CITIES")
    with client.writer("ledger-cities") as writer:
        for number in range(ROWS):
            row = b"%d-%05d" % (number % 10, number)
            writer.add(Mutation(row).put(b"geo", b"lat", b"%d" % number).put(b"label", b"name", b"x"))
    assert not client.replication.wait("ledger-cities", timeout_ms=LIMIT_MS)
    with sqlite3.connect(tmp_path / "books.db") as books:
        found = books.execute("SELECT account, row, family, qualifier, value FROM entry ORDER BY row").fetchall()
    assert found == [
        ("CITIES", row, b"geo", b"lat", b"%d" % number)
        for row, number in sorted((b"%d-%05d" % (n % 10, n), n) for n in range(ROWS))
    ]
    client.replication.disable("ledger-cities", "ledger")
    client.replication.delete_cluster("ledger", quorum)
