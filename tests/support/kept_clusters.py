"""Two clusters in one archive, as a crash left them: a later version must open what this one wrote.

``python -m tests.support.kept_clusters DIR`` runs the clusters west and east with the code of this checkout, kills them
with -9 and writes ``clusters.tar.gz`` and ``cells.json`` into DIR. ``tests/integration/test_kept_clusters.py`` opens
the archive. West names its peer of Parquet by an absolute path, so the archive is always unpacked at :data:`PLACE`.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import shutil
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from bookkeeper.client import Client, Mutation
from bookkeeper.model import LocalityGroup
from tests.support.cluster import Cluster

PLACE = Path("/tmp/bookkeeper_kept_clusters")
"""The same path on every machine; one test at a time has it."""

ARCHIVE, CELLS = "clusters.tar.gz", "cells.json"
LAKE = "lake"
LIMIT_MS = 60_000
LEFT_OUT = ("logs", "replay")
"""Directories whose files no later process reads: logs for people, scratch space of Spark."""

SETTINGS: dict[str, object] = {
    "tserver.future_timestamp_max_ms": 0,  # the clock of the machine that opens the archive may be behind
    "master.backoff_max_ms": 1_000,
    "replay.tasks_max": 2,
    "replication.quarantine": "auto",
    "replication.quarantine_tries": 2,
}
EAST_VALUE_BYTES_MAX = 50
LONG_VALUE = b"x" * 60
"""East refuses it, so west sets its range aside."""

CellText = list[str | int]
"""Row, family, qualifier, visibility, timestamp and value."""


@contextmanager
def own_place() -> Iterator[Path]:
    """:data:`PLACE`, new and empty, which no other test uses until the end of the block."""
    lock = os.open(PLACE.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if PLACE.exists():
            shutil.rmtree(PLACE)
        PLACE.mkdir(mode=0o700)
        try:
            yield PLACE
        finally:
            shutil.rmtree(PLACE)
    finally:
        os.close(lock)


def unpack(archive: Path) -> None:
    """Write the files of the archive, with their modes, below :data:`PLACE`."""
    with tarfile.open(archive) as packed:
        for member in packed:
            path = PLACE / member.name
            if member.isdir():
                path.mkdir(mode=member.mode)
                continue
            content = packed.extractfile(member)
            assert content is not None, member.name
            path.write_bytes(content.read())
            path.chmod(member.mode)


def pack(archive: Path) -> None:
    """Write all below :data:`PLACE` into an archive. The same files make the same bytes."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=raw, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as packed,
    ):
        for path in sorted(PLACE.rglob("*")):
            name = path.relative_to(PLACE)
            if not set(name.parts[:-1]) & set(LEFT_OUT):
                packed.add(path, str(name), recursive=False, filter=plain)


def cells_of(client: Client) -> dict[str, list[CellText]]:
    """Every cell of every table, all versions, as root sees them."""
    found: dict[str, list[CellText]] = {}
    for table in sorted(client.tables.list(), key=lambda listed: listed.name):
        found[table.name] = [
            [*(part.decode() for part in cell[:4]), cell.timestamp, cell.value.decode()]
            for cell in client.scan(table.name).cells()
        ]
    return found


def write(client: Client, table: str, *mutations: Mutation) -> None:
    """Write durably, as one batch for each tablet."""
    with client.writer(table) as writer:
        for mutation in mutations:
            writer.add(mutation)


def reading(row: bytes, number: int) -> Mutation:
    """Three cells, of which one is in a locality group of its own and one is for staff."""
    value = b"%d" % number
    return (
        Mutation(row)
        .put(b"lat", b"deg", value, timestamp=number)
        .put(b"note", b"", value, timestamp=number)
        .put(b"note", b"", b"staff " + value, b"staff&(north|south)", timestamp=number)
    )


def fill_plain(client: Client) -> None:
    """A table of four tablets, in segments and in memory, with versions, deletes and labels."""
    groups = [LocalityGroup("geo", (b"lat", b"lon"))]
    client.tables.create("plain", [b"g", b"p"], groups, {"table.versions.max": "3"})
    rows = [bytes([letter]) for letter in b"abgkpqxz"]
    write(client, "plain", *(reading(row, number) for number in (1, 2, 3, 4) for row in rows))
    client.tables.flush("plain")
    client.tables.add_splits("plain", [b"t"])  # both halves have the same segments
    write(client, "plain", Mutation(b"a").delete(b"lat", b"deg", timestamp=3), reading(b"q", 5), reading(b"new", 5))
    client.tables.flush("plain")
    client.tables.compact("plain", end_row=b"f")
    write(
        client,
        "plain",
        Mutation(b"b").delete(b"note", b"", b"staff&(north|south)", timestamp=9),
        Mutation(b"z").delete(b"lat", b"deg", timestamp=9).put(b"lon", b"deg", b"7", timestamp=7),
        reading(b"p", 6),
    )


def fill_replicated(west: Cluster, east: Cluster) -> None:
    """A table that two peers have in part, and one of which a range is set aside."""
    client = west.client
    for cluster in (west, east):
        cluster.client.users.set_authorizations(["staff", "north"])
        cluster.client.tables.create("shared", [b"m"], (), {"table.versions.max": "9"})
        cluster.client.tables.create("refused")
    client.replication.define_cluster("east", east.quorum)
    client.replication.define_cluster(LAKE, f"parquet://{PLACE / LAKE}")
    for peer in ("east", LAKE):
        client.replication.enable("shared", peer)
    client.replication.enable("refused", "east")
    for number in (1, 2, 3):
        write(client, "shared", *(reading(row, number) for row in (b"a", b"m", b"x")))
    for row, value in ((b"a", b"1"), (b"b", LONG_VALUE), (b"c", b"3")):
        write(client, "refused", Mutation(row).put(b"f", b"q", value, timestamp=1))
    assert not client.replication.wait("shared", timeout_ms=LIMIT_MS)
    west.wait_until(
        lambda: [found.state for found in client.replication.quarantine()] == ["held"], "range that is set aside"
    )
    west.wait_until(lambda: len(list(east.client.scan("refused").cells())) == 2, "records behind that range")


def write_what_east_lacks(west: Cluster) -> None:
    """Two logs of records for east, which is gone; the directory gets them."""
    write(west.client, "shared", reading(b"a", 4), Mutation(b"m").delete(b"lat", b"deg", timestamp=2))
    west.wait_restarted("tserver1", west.kill9("tserver1"))
    west.wait_ready()
    write(west.client, "shared", reading(b"x", 5), reading(b"b", 5))
    assert not west.client.replication.wait("shared", LAKE, timeout_ms=LIMIT_MS)


def crash(cluster: Cluster) -> None:
    """End all processes of a cluster with -9; returns when none of them can write any more."""
    supervisor = psutil.Process(cluster.pid("master")).parent()
    assert supervisor is not None
    processes = supervisor.children(recursive=True)
    for process in processes:
        process.suspend()
    cluster.crash()
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    _, alive = psutil.wait_procs(processes, timeout=LIMIT_MS / 1_000)
    assert not alive, alive


def make(directory: Path) -> None:
    """Run both clusters, kill them, and pack what is left into ``directory``."""
    east_settings = {**SETTINGS, "tserver.value_bytes_max": EAST_VALUE_BYTES_MAX}
    with own_place():
        east = Cluster(PLACE / "east", "east", tservers=1, overrides=east_settings)
        west = Cluster(PLACE / "west", "west", tservers=1, overrides=SETTINGS)
        cells = {}
        try:
            east.start()
            west.start()
            fill_plain(west.client)
            fill_replicated(west, east)
            cells["east"] = cells_of(east.client)
            crash(east)
            write_what_east_lacks(west)
            cells["west"] = cells_of(west.client)
            crash(west)
        finally:
            east.stop()
            west.stop()
        pack(directory / ARCHIVE)
    lines = [f"{json.dumps(name)}: {{\n{','.join(_table_lines(tables))}\n}}" for name, tables in sorted(cells.items())]
    (directory / CELLS).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _table_lines(tables: dict[str, list[CellText]]) -> Iterator[str]:
    """One line a cell."""
    for name, cells in tables.items():
        yield f"\n{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, cells)) + "\n]"


if __name__ == "__main__":
    make(Path(sys.argv[1]))
