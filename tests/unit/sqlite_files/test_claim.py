"""The first process that opens a new file makes its tables; readers meanwhile see all of them, or none."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bookkeeper.sqlite_file import FileKind, claim

KIND = FileKind("ledger", 7, 1, ("CREATE TABLE pages (number INT)",))


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    return connection


@pytest.mark.parametrize("moment", ["PRAGMA application_id", "PRAGMA user_version", "SELECT sql", "BEGIN IMMEDIATE"])
def test_a_file_that_another_one_makes_meanwhile_is_no_foreign_one(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "ledger.db"
    faster: list[sqlite3.Connection] = []

    def overtake(statement: str) -> None:
        if statement.startswith(moment) and not faster:
            faster.append(connect(path))
            claim(faster[0], path, KIND)

    with closing(connect(path)) as slower:
        slower.set_trace_callback(overtake)
        claim(slower, path, KIND)
        assert slower.execute("PRAGMA application_id").fetchone() == (7,)
        assert slower.execute("SELECT count(*) FROM pages").fetchone() == (0,)
    assert faster
    faster[0].close()
