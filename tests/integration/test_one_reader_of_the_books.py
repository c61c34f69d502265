"""One thread of the master makes the snapshot of the books from which work is made, handed out and closed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from bookkeeper.client import Mutation
from bookkeeper.master.index.snapshot import HOST_LOGS_FAMILIES, SNAPSHOT_FAMILIES
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Row
from bookkeeper.metadata.sqlite.sqlite_store import SqliteMetadataTable
from tests.support.local_pair import local_pair
from tests.support.tservers import wait_until

pytestmark = pytest.mark.integration


def test_a_single_thread_scans_the_tablets_for_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans: Counter[str] = Counter()
    scan, lock = SqliteMetadataTable.scan_parts, threading.Lock()

    def noted(store: SqliteMetadataTable, start: bytes, stop: bytes | None, families: Collection[str]) -> Iterator[Row]:
        is_of_all_tables = (start, stop) == (keys.TABLETS_START, keys.TABLETS_STOP)
        if is_of_all_tables and tuple(families) in (SNAPSHOT_FAMILIES, HOST_LOGS_FAMILIES):
            with lock:
                scans[threading.current_thread().name] += 1
        return scan(store, start, stop, families)

    with local_pair(tmp_path) as (west, _east):
        monkeypatch.setattr(SqliteMetadataTable, "scan_parts", noted)
        with west.client.writer("t") as writer:
            for number in range(20):
                writer.add(Mutation(b"%02d" % number).put(b"f", b"q", b"v"))
        assert not west.client.replication.wait("t")
        wait_until(lambda: bool(scans), "a full cycle")
    assert scans.keys() == {"cycle"}, "another thread makes a snapshot of its own"
