"""Imports on a real cluster: visible cells, winning versions, and imports beside dying processes."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bookkeeper.client import Mutation
from bookkeeper.errors import InvalidInputError
from bookkeeper.model import LocalityGroup
from bookkeeper.replay.journal import read_journal
from bookkeeper.replay.stream.segment_transfer import BY_SEGMENTS
from tests.support.cluster import Cluster

pytestmark = pytest.mark.integration

RECORDS = 20_000
WRITES_PAUSE_S = 0.02


def _values(cluster: Cluster, table: str) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for batch in cluster.client.scan(table):
        found |= dict(zip(batch.column("row").to_pylist(), batch.column("value").to_pylist(), strict=True))
    return found


def _given(directory: Path) -> dict[bytes, bytes]:
    """A Parquet file of many records and a CSV file of one, in no order."""
    directory.mkdir()
    rows = [f"r{number * 7 % RECORDS:06d}" for number in range(RECORDS)]
    table = pa.table(
        {
            "row": rows,
            "family": ["geo" if number % 2 else "name" for number in range(RECORDS)],
            "qualifier": ["q"] * RECORDS,
            "timestamp": [5] * RECORDS,
            "value": [f"v{row}" for row in rows],
        }
    )
    pq.write_table(table, directory / "many.parquet")
    (directory / "one.csv").write_text("row,family,qualifier,value,visibility\nzz,geo,q,last,\n")
    return {row.encode(): f"v{row}".encode() for row in rows} | {b"zz": b"last"}


def test_an_import_is_there_once_though_processes_are_killed(west: Cluster, tmp_path: Path) -> None:
    tables = west.client.tables
    tables.create("filled", [b"r005000", b"r010000"], [LocalityGroup("geo", (b"geo",))])
    expected = _given(tmp_path / "given")
    with west.client.writer("filled") as writer:
        writer.add(Mutation(b"r000003").put(b"geo", b"q", b"before", timestamp=5))
        writer.add(Mutation(b"r000005").delete(b"geo", b"q", timestamp=5))
        writer.add(Mutation(b"r000007").put(b"geo", b"q", b"newer"))
    expected[b"r000007"] = b"newer"
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(tables.import_directory("filled", tmp_path / "given")))
    asking.start()
    killed = {role: west.kill9(role) for role in ("master", "tserver1")}
    asking.join(90)
    assert found == [RECORDS + 1]
    for role, pid in killed.items():
        west.wait_restarted(role, pid)
    assert _values(west, "filled") == expected
    west.wait_restarted("tserver2", west.kill9("tserver2"))
    assert _values(west, "filled") == expected
    with west.client.writer("filled") as writer:
        writer.add(Mutation(b"zz").delete(b"geo", b"q"))
    tables.compact("filled")
    del expected[b"zz"]
    assert _values(west, "filled") == expected
    (usage,) = tables.disk_usage("filled")
    assert usage.records == len(expected)


@pytest.mark.long
def test_writers_go_on_while_their_table_takes_imports(west: Cluster, tmp_path: Path) -> None:
    client = west.client
    client.tables.create("shared", [b"r005000"])
    over = threading.Event()
    written: dict[bytes, bytes] = {}

    def write_on() -> None:
        while not over.wait(WRITES_PAUSE_S):
            rows = [b"r%06d w" % (len(written) + number) for number in range(50)]
            with client.writer("shared") as writer:
                writer.add_all(Mutation(row).put(b"f", b"q", row) for row in rows)
            written.update(zip(rows, rows, strict=True))

    writing = threading.Thread(target=write_on)
    writing.start()
    try:
        expected = _given(tmp_path / "given")
        for _ in range(2):
            assert client.tables.import_directory("shared", tmp_path / "given") == RECORDS + 1
    finally:
        over.set()
        writing.join(60)
    assert len(written) >= 50
    assert _values(west, "shared") == expected | written
    client.tables.delete("shared")


def test_bad_input_changes_nothing(west: Cluster, tmp_path: Path) -> None:
    west.client.tables.create("spared")
    _given(tmp_path / "given")
    (tmp_path / "given" / "zz.csv").write_text("row,family,qualifier,value,visibility\nx,f,q,v,a b\n")
    with pytest.raises(InvalidInputError, match=r"zz\.csv can't be imported: visibility"):
        west.client.tables.import_directory("spared", tmp_path / "given")
    assert _values(west, "spared") == {}


def _deleted(cluster: Cluster, table: str, rows: range) -> None:
    with cluster.client.writer(table) as writer:
        for number in rows:
            writer.add(Mutation(b"r%06d" % number).delete(b"geo", b"q", timestamp=5).delete(b"name", b"q", timestamp=5))


def _ways(cluster: Cluster, first: int = 0) -> set[str]:
    """How logs of imports went to peers, from a line of the journal on."""
    return {line.way for line in read_journal(cluster.settings).shipped[first:] if "/import/" in line.file}


@pytest.mark.long
@pytest.mark.spark
def test_imports_into_a_replicated_table_reach_its_peers_in_order_and_once(
    west: Cluster, east: Cluster, tmp_path: Path
) -> None:
    source, peer = west.client, east.client
    groups = [LocalityGroup("geo", (b"geo",))]
    for name in ("both", "part"):
        source.tables.create(name, [b"r005000", b"r010000"], groups)
        peer.tables.create(name, [b"r002000"], groups if name == "both" else ())
    expected = _given(tmp_path / "given")
    source.replication.define_cluster("east", east.quorum)
    source.replication.enable("both", "east")
    source.replication.enable("part", "east", groups=["geo"])
    _deleted(west, "both", range(100))
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(source.tables.import_directory("both", tmp_path / "given")))
    asking.start()
    killed = {role: west.kill9(role) for role in ("master", "tserver1")}
    asking.join(90)
    assert found == [RECORDS + 1]
    _deleted(west, "both", range(200, 300))
    for role, pid in killed.items():
        west.wait_restarted(role, pid)
    expected = {row: value for row, value in expected.items() if not b"r000200" <= row < b"r000300"}
    assert _values(west, "both") == expected, "deletes before the import hide nothing of it, those behind it do"
    assert not source.replication.wait("both", "east")
    assert _values(east, "both") == expected
    assert _ways(west) == {BY_SEGMENTS}, "the peer's tablets, which are others, took the files"
    peer.tables.compact("both")
    assert _values(east, "both") == expected
    (usage,) = peer.tables.disk_usage("both")
    assert usage.records == len(expected)
    source.tables.import_directory("both", tmp_path / "given")
    killed = {role: east.kill9(role) for role in ("tserver1", "master")}
    for role, pid in killed.items():
        east.wait_restarted(role, pid)
    _deleted(west, "both", range(200, 300))
    assert not source.replication.wait("both", "east")
    assert _values(east, "both") == expected
    before = len(read_journal(west.settings).shipped)
    source.tables.import_directory("part", tmp_path / "given")
    assert not source.replication.wait("part", "east")
    assert _ways(west, before) == {"records: table part has other locality groups here"}
    given = pq.read_table(tmp_path / "given" / "many.parquet")
    geo = given.filter(pc.equal(given["family"], "geo"))["row"].to_pylist()
    assert _values(east, "part").keys() == {row.encode() for row in geo} | {b"zz"}
    assert _values(east, "both") == expected
    for name in ("both", "part"):
        source.replication.disable(name, "east")
        for client in (source, peer):
            client.tables.delete(name)
