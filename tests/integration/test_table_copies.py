"""A table with data gets a peer: exported, imported there, then replicated, and both are equal to the last cell."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.errors import ReadOnlyError
from bookkeeper.model import LocalityGroup
from tests.support.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.spark]

ROWS = 2_000
COLUMNS = ("row", "family", "qualifier", "visibility", "timestamp", "value")


def _records(client: Client, table: str) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in COLUMNS) for batch in client.scan(table) for row in batch.to_pylist()]


def _write(client: Client, table: str, first: int, last: int, value: bytes) -> None:
    with client.writer(table) as writer:
        for number in range(first, last):
            row = b"r%06d" % number
            writer.add(Mutation(row).put(b"geo", b"q", value).put(b"name", b"q", value, timestamp=5))


def _delete(client: Client, table: str, first: int, last: int) -> None:
    """Newer than one cell of each row, and in the same millisecond as the other."""
    with client.writer(table) as writer:
        for number in range(first, last):
            writer.add(Mutation(b"r%06d" % number).delete(b"geo", b"q"))
            writer.add(Mutation(b"r%06d" % number).delete(b"name", b"q", timestamp=5))


def test_a_table_with_data_gets_a_peer_that_is_equal_to_the_last_cell(
    west: Cluster, east: Cluster, tmp_path: Path
) -> None:
    source, peer = west.client, east.client
    source.tables.create("moved", [b"r000700"], [LocalityGroup("geo", (b"geo",))], {"table.custom.owner": "us"})
    _write(source, "moved", 0, ROWS, b"old")
    source.tables.flush("moved")
    _write(source, "moved", 0, ROWS // 4, b"newer")
    _delete(source, "moved", 100, 200)

    source.tables.set_read_only(True, "moved")
    assert source.tables.export("moved", tmp_path / "export") > 2 * ROWS
    assert peer.tables.import_exported("moved", tmp_path / "export") > 2 * ROWS
    assert _records(peer, "moved") == _records(source, "moved")
    with pytest.raises(ReadOnlyError):
        _write(source, "moved", 0, 1, b"refused")
    source.replication.define_cluster("east", east.quorum)
    source.replication.enable("moved", "east")
    source.tables.set_read_only(False, "moved")

    _delete(source, "moved", 300, 500)
    _write(source, "moved", 400, 600, b"after")
    _write(source, "moved", ROWS, ROWS + 10, b"new")
    assert not source.replication.wait("moved", "east")
    found = _records(peer, "moved")
    assert found == _records(source, "moved")
    assert len(found) == 2 * (ROWS - 100 - 100 + 10)
    peer.tables.compact("moved")
    assert _records(peer, "moved") == found
    table = peer.tables.get("moved")
    assert (table.groups, dict(table.properties)) == ((LocalityGroup("geo", (b"geo",)),), {"table.custom.owner": "us"})

    source.replication.disable("moved", "east")
    for client in (source, peer):
        client.tables.delete("moved")


def test_a_table_is_exported_while_it_is_written_compacted_and_its_master_dies(west: Cluster, tmp_path: Path) -> None:
    client = west.client
    client.tables.create("busy", [b"r000500"])
    _write(client, "busy", 0, 1_000, b"before")
    over = threading.Event()

    def write_on() -> None:
        number = 1_000
        while not over.is_set():
            _write(client, "busy", number, number + 50, b"later")
            client.tables.compact("busy")
            number += 50

    writing = threading.Thread(target=write_on)
    writing.start()
    try:
        done: list[int] = []
        exporting = threading.Thread(target=lambda: done.append(client.tables.export("busy", tmp_path / "export")))
        exporting.start()
        west.wait_restarted("master", west.kill9("master"))
        exporting.join(90)
    finally:
        over.set()
        writing.join(90)
    assert done
    assert done[0] >= 2_000
    client.tables.import_exported("calm", tmp_path / "export")
    found = _records(client, "calm")
    assert {row[0] for row in found} >= {b"r%06d" % number for number in range(1_000)}
    assert set(found) <= set(_records(client, "busy"))
    for table in ("busy", "calm"):
        client.tables.delete(table)
