"""Every connection of both stores waits for the disk at each commit: confirmed writes survive a power failure."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.coordination.embedded_store import EmbeddedStore
from bookkeeper.metadata.sqlite.sqlite_store import SqliteMetadataTable
from tests.support.books import OWNER, sqlite_books

FULL = 2
WRITE_AHEAD = "wal"


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """All that are made from now on."""
    made, connect = list[sqlite3.Connection](), sqlite3.connect

    def noted(*arguments: Any, **options: Any) -> sqlite3.Connection:
        made.append(connect(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    return made


def modes(connections: list[sqlite3.Connection]) -> set[tuple[int, str]]:
    return {
        (one.execute("PRAGMA synchronous").fetchone()[0], one.execute("PRAGMA journal_mode").fetchone()[0])
        for one in connections
    }


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """Books that are there before connections are noted."""
    path = tmp_path / "metadata.db"
    sqlite_books(path).close()
    return path


def test_the_metadata_table_waits_for_the_disk(books: Path, connections: list[sqlite3.Connection]) -> None:
    with closing(SqliteMetadataTable(books, OWNER)) as table:
        assert list(table.scan(b"a", b"b")) == []
        assert len(connections) == 2, "the writer and a reader"
        assert modes(connections) == {(FULL, WRITE_AHEAD)}


def test_the_coordination_store_waits_for_the_disk(tmp_path: Path, connections: list[sqlite3.Connection]) -> None:
    with closing(EmbeddedStore(tmp_path / "coordination.db", 1_000)):
        assert len(connections) == 2, "the writer and the reader"
        assert modes(connections) == {(FULL, WRITE_AHEAD)}
