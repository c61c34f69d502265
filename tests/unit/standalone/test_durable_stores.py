"""SQLite stores before a cluster starts, when the disk lacks bytes that the page cache shows."""

from __future__ import annotations

import mmap
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from bookkeeper.errors import CorruptionError
from bookkeeper.metadata.metadata_table import Column, RowPut
from bookkeeper.metadata.sqlite.sqlite_store import SqliteMetadataTable
from bookkeeper.standalone.directory import complete_cluster, init_cluster
from bookkeeper.standalone.durable_stores import make_durable
from bookkeeper.storage.volume.file_ops import FileOps, sync_directory
from tests.support.books import OWNER, sqlite_books
from tests.support.failing_disk import FailingDisk, failing_disk
from tests.support.faults import fault
from tests.support.small_disk import NoMountError

COLUMN = Column("repl", b"f")
ROOT = Path(__file__).parents[3]


class LosingOps(FileOps):
    """The disk lacks a page of these files."""

    def __init__(self, *lost: str) -> None:
        self.lost = lost

    def read_disk(self, fd: int, buffer: mmap.mmap, position: int) -> int:
        count = super().read_disk(fd, buffer, position)
        if Path(f"/proc/self/fd/{fd}").readlink().name in self.lost:
            buffer[count - 4096 : count] = bytes(4096)
        return count


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A table with content in its file and in its write-ahead file."""
    path = tmp_path / "metadata.db"
    with child("dies_with_a_journal", path):
        pass
    path.chmod(0o600)
    return path


@contextmanager
def child(function: str, path: Path, owner: str = OWNER) -> Iterator[subprocess.Popen[str]]:
    """A process that runs a function of this module, with lines in and out."""
    script = f"import sys; from {__name__} import {function}; {function}(*sys.argv[1:])"
    command = [sys.executable, "-c", script, str(path), owner]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


def dies_with_a_journal(path: str, _owner: str) -> None:
    """Write, and end without closing the table."""
    table = sqlite_books(Path(path))
    put(table, b"a")
    table.compact()
    put(table, b"b")
    os._exit(0)


def dies_of_its_disk(path: str, owner: str) -> None:
    """Commit a and b; after a line of input, copy them from the write-ahead file to the database and print an error."""
    table = SqliteMetadataTable(Path(path), owner)
    put(table, b"a")
    put(table, b"b")
    print("committed", flush=True)
    sys.stdin.readline()
    try:
        sqlite3.connect(path).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.OperationalError as error:
        print(error, flush=True)
    os._exit(0)


def put(table: SqliteMetadataTable, key: bytes) -> None:
    table.put([RowPut(key, {COLUMN: b"v" * 10_000})], 5)


def keys_in(path: Path, owner: str = OWNER) -> list[bytes]:
    with closing(SqliteMetadataTable(path, owner)) as table:
        return [row.key for row in table.scan(b"a", b"c")]


def keys_left(path: Path, owner: str) -> list[bytes] | None:
    """The remaining keys of a store; None for a damaged one."""
    try:
        return keys_in(path, owner)
    except CorruptionError:
        return None


def test_a_file_on_the_disk_stays_as_it_is(store: Path) -> None:
    before = store.stat().st_ino
    assert make_durable(store) == []
    assert store.stat().st_ino == before
    assert make_durable(store.with_name("none.db")) == []


@pytest.mark.parametrize("lost", [["metadata.db"], ["metadata.db-wal"], ["metadata.db", "metadata.db-wal"]])
def test_a_file_that_the_disk_lacks_a_part_of_is_replaced(store: Path, lost: Sequence[str]) -> None:
    files = [store.with_name(name) for name in lost]
    contents = [file.read_bytes() for file in files]
    before = [file.stat().st_ino for file in files]
    assert make_durable(store, LosingOps(*lost)) == files
    assert [file.read_bytes() for file in files] == contents
    assert all(file.stat().st_ino != inode for file, inode in zip(files, before, strict=True))
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert keys_in(store) == [b"a", b"b"]
    assert [file.name for file in store.parent.iterdir() if file.name.endswith(".new")] == []


def test_a_store_whose_disk_can_not_be_read_is_written_anew(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> int:
        raise OSError("no such way")

    monkeypatch.setattr(FileOps, "read_disk", refuse)
    assert make_durable(store) == [store, store.with_name("metadata.db-wal")]
    assert keys_in(store) == [b"a", b"b"]


# ---- a real disk


def checkpoint_that_fails(disk: FailingDisk, path: Path, owner: str) -> None:
    """A process commits a and b; the sync of the database fails in a checkpoint, and the process is gone."""
    with child("dies_of_its_disk", path, owner) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "committed\n"
        disk.fail()
        process.stdin.write("\n")
        process.stdin.flush()
        assert "disk I/O error" in process.stdout.readline()
    disk.mend()


def check_a_store_whose_sync_failed(directory: Path) -> None:
    """The start makes the checkpoint anew, which succeeds; then the power fails."""
    with failing_disk(directory) as disk:
        settings = init_cluster(disk.directory / "west", "west")
        path = disk.directory / "west" / "metadata.db"
        owner = settings.instance.instance_id
        checkpoint_that_fails(disk, path, owner)
        complete_cluster(settings)
        assert keys_in(path, owner) == [b"a", b"b"]
        sync_directory(path.parent, FileOps())  # as the kernel does by itself a few seconds later
        with disk.after_power_failure() as left:
            found = keys_left(left / "west" / "metadata.db", owner)
            assert found == [b"a", b"b"], "a committed row is lost with the power"


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    """A directory below which disks that fail can be made."""
    try:
        with failing_disk(tmp_path / "trial"):
            return tmp_path
    except NoMountError as error:
        pytest.skip(str(error))


def test_commits_before_a_failed_sync_and_a_restart_survive_a_power_failure(disks: Path) -> None:
    check_a_store_whose_sync_failed(disks / "disk")


def test_a_start_that_trusts_the_page_cache_loses_a_commit(disks: Path) -> None:
    with fault("stores-are-believed"), pytest.raises(AssertionError, match="a committed row is lost with the power"):
        check_a_store_whose_sync_failed(disks / "disk")
