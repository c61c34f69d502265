"""Which process keeps a file locked: the list of the kernel, without a lock of one's own."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bookkeeper.file_locks import SUPERVISOR_LOCK, exclusive_locks, is_supervised, process_text
from bookkeeper.sqlite_file import holder_of
from tests.support.locked_database import locked_by_another


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (x)")
    return path


@pytest.mark.parametrize(
    "statements",
    [("BEGIN EXCLUSIVE",), ("BEGIN IMMEDIATE",), ("PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE")],
    ids=["exclusive", "immediate", "alone"],
)
def test_the_process_that_keeps_a_database_locked_is_known(database: Path, statements: tuple[str, ...]) -> None:
    assert holder_of(database) is None
    with locked_by_another(database, *statements) as pid:
        assert holder_of(database) == pid
        assert process_text(pid).startswith(f"process {pid} (python")
    assert holder_of(database) is None


def test_a_reader_and_this_process_keep_no_other_from_writing(database: Path) -> None:
    with locked_by_another(database, "BEGIN", "SELECT * FROM t"):
        assert holder_of(database) is None
    with closing(sqlite3.connect(database, isolation_level=None)) as own:
        own.execute("BEGIN IMMEDIATE")
        assert holder_of(database) is None


def test_a_directory_is_supervised_while_its_lock_is_held_and_a_look_takes_none(tmp_path: Path) -> None:
    assert not is_supervised(tmp_path)
    (tmp_path / SUPERVISOR_LOCK).parent.mkdir()
    with (tmp_path / SUPERVISOR_LOCK).open("w") as lock:
        assert not is_supervised(tmp_path)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert is_supervised(tmp_path)
    assert not is_supervised(tmp_path)


def test_processes_that_wait_for_a_lock_and_shared_locks_are_no_holders(tmp_path: Path) -> None:
    file, listed = tmp_path / "file", tmp_path / "locks"
    file.touch()
    found = file.stat()
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    listed.write_text(
        f"1: FLOCK  ADVISORY  WRITE 7 {device}:{found.st_ino} 0 EOF\n"
        f"1: -> FLOCK  ADVISORY  WRITE 8 {device}:{found.st_ino} 0 EOF\n"
        f"2: POSIX  ADVISORY  READ 9 {device}:{found.st_ino} 120 120\n"
        f"3: POSIX  ADVISORY  WRITE 10 {device}:{found.st_ino} 120 127\n"
        f"4: FLOCK  ADVISORY  WRITE 11 {device}:{found.st_ino + 1} 0 EOF\n"
    )
    locks = exclusive_locks(file, listed)
    assert [(lock.kind, lock.pid, lock.has(120), lock.has(128)) for lock in locks] == [
        ("FLOCK", 7, True, True),
        ("POSIX", 10, True, False),
    ]
    assert exclusive_locks(file, tmp_path / "no list") == []
