"""The contract of SQLite's store beyond the common one: processes share a file, also when one of them is killed."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from bookkeeper.errors import CorruptionError, IncompatibleError, NoSpaceError, NotFoundError, UnavailableError
from bookkeeper.metadata.metadata_table import Cell, CellKey, Column, RowPut
from bookkeeper.metadata.opening import sqlite_url
from bookkeeper.metadata.sqlite.sqlite_cells import CHUNK_CELLS
from bookkeeper.metadata.sqlite.sqlite_store import SqliteMetadataTable
from tests.support.books import OWNER, sqlite_books
from tests.support.locked_database import locked_by_another
from tests.support.metadata_processes import COLUMN

REPL = Column("repl", b"f")
CELL = CellKey(b"1<", REPL)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


@pytest.fixture
def table(path: Path) -> Iterator[SqliteMetadataTable]:
    made = sqlite_books(path, rng=random.Random(1))
    yield made
    made.close()


def _put(table: SqliteMetadataTable, rank: int, key: bytes = b"1<") -> None:
    table.put([RowPut(key, {REPL: b"%d" % rank})], rank)


def _value(table: SqliteMetadataTable, key: bytes = b"1<") -> Cell | None:
    row = table.get(key)
    return None if row is None else row.cells[REPL]


@pytest.mark.parametrize("puts_before_kill", [1, 7, 150])
def test_kill_9_loses_nothing_that_was_acknowledged(path: Path, puts_before_kill: int) -> None:
    command = [sys.executable, "-m", "tests.support.metadata_processes", sqlite_url(path)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(puts_before_kill):
            writer.stdout.readline()
        writer.kill()
        acknowledged = puts_before_kill + len([line for line in writer.stdout.read().split("\n") if line])
    with closing(sqlite_books(path)) as table:
        rows = list(table.scan())
    assert [row.cells[COLUMN].rank for row in rows] == list(range(1, len(rows) + 1))
    assert acknowledged <= len(rows) <= acknowledged + 1


def _record_count(path: Path) -> int:
    with closing(sqlite3.connect(path)) as raw:
        count: int = raw.execute("SELECT count(*) FROM cells").fetchone()[0]
    return count


def test_a_second_compaction_drops_what_was_hidden_at_the_first(path: Path, table: SqliteMetadataTable) -> None:
    """Rule R4: the caller waits between them until no write from before the tombstones is in flight."""
    cells = [CellKey(b"row-%05d" % n, REPL) for n in range(CHUNK_CELLS + 10)]
    table.put([RowPut(cell.key, {cell.column: b"v"}) for cell in cells], 5)
    table.delete(cells[1:], 5)
    table.purge([CELL])
    table.compact()
    assert _record_count(path) == CHUNK_CELLS + 12
    table.compact()
    assert _record_count(path) == 2, "one, and the owner"
    _put(table, 4)
    assert _value(table) == Cell(4, b"4")


def test_a_compaction_leaves_what_was_hidden_since_the_last_one(path: Path, table: SqliteMetadataTable) -> None:
    _put(table, 4)
    table.delete([CELL], 4)
    table.compact()
    table.delete([CELL], 6)
    table.compact()
    _put(table, 5)
    assert _value(table) is None, "the tombstone of the second delete may have writes in flight below it"
    table.compact()
    assert _record_count(path) == 1, "the owner"


def test_the_books_of_ten_thousand_logs_leave_a_file_as_small_as_those_of_a_hundred(
    path: Path, table: SqliteMetadataTable
) -> None:
    families = ("log", "repl", "done", "del", "recv", "quar", "fate")
    sizes = []
    for rank in range(1, 101):
        rows = [
            RowPut(b"log-%05d-%s" % (number, family.encode()), {Column(family, b"q" * 40): b"v" * 60})
            for number in range(100 * rank, 100 * rank + 100)
            for family in families
        ]
        table.put(rows, rank)
        table.delete([CellKey(row.key, column) for row in rows for column in row.values], rank)
        table.compact()
        sizes.append(path.stat().st_size)
    assert max(sizes[3:]) <= 2 * sizes[3]


def test_a_file_shrinks_when_most_of_it_is_free(path: Path, table: SqliteMetadataTable) -> None:
    rows = [RowPut(b"row-%05d" % number, {REPL: b"v" * 500}) for number in range(20_000)]
    table.put(rows, 1)
    table.delete([CellKey(row.key, REPL) for row in rows[100:]], 1)
    table.compact()
    before = path.stat().st_size
    table.compact()
    assert path.stat().st_size < before / 20
    assert len(list(table.scan())) == 100


def test_a_scan_that_pauses_blocks_no_writer_and_keeps_no_snapshot(path: Path, table: SqliteMetadataTable) -> None:
    table.put([RowPut(b"row-%05d" % n, {REPL: b"v"}) for n in range(9_000)], 5)
    scan = table.scan()
    first = next(scan)
    with closing(sqlite_books(path, busy_timeout_ms=200)) as other:
        _put(other, 6, b"row-00001")
        other.compact()
    assert path.with_name("metadata.db-wal").stat().st_size == 0
    assert [first.key, *(row.key for row in scan)] == [b"row-%05d" % n for n in range(9_000)]


def test_a_file_that_another_process_holds_is_unavailable_after_the_limit(path: Path) -> None:
    with closing(sqlite_books(path, busy_timeout_ms=150, rng=random.Random(1))) as table:
        with closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            with pytest.raises(UnavailableError, match="locked"):
                _put(table, 5)
            assert _value(table) is None
            holder.execute("ROLLBACK")
        _put(table, 6)
        assert _value(table) == Cell(6, b"6")


def test_a_write_waits_for_the_process_that_holds_the_file(path: Path, table: SqliteMetadataTable) -> None:
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    waiting = threading.Event()

    def sleep(_: float) -> None:
        if not waiting.is_set():
            waiting.set()
            holder.execute("COMMIT")

    with closing(SqliteMetadataTable(path, OWNER, sleep=sleep, rng=random.Random(1))) as second:
        _put(second, 5)
    holder.close()
    assert waiting.is_set()
    assert _value(table) == Cell(5, b"5")


def test_threads_that_write_together_share_transactions(path: Path, table: SqliteMetadataTable) -> None:
    """While one thread waits for the file, the writes of the others queue and then become one transaction."""
    commits: list[str] = []
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(8) as pool:
        writes = [pool.submit(_put, table, 5, b"row-%d" % n) for n in range(8)]
        while len(table._queue) < 7:
            assert not any(write.done() for write in writes)
        table._writer.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
        holder.execute("COMMIT")
        for write in writes:
            write.result()
    holder.close()
    assert len(commits) == 2
    assert len(list(table.scan())) == 8


def test_a_full_disk_is_unavailable_and_leaves_whole_rows(table: SqliteMetadataTable) -> None:
    _put(table, 5)
    pages = table._writer.execute("PRAGMA page_count").fetchone()[0]
    table._writer.execute(f"PRAGMA max_page_count = {pages + 3}")
    with pytest.raises(NoSpaceError, match="full"):
        table.put([RowPut(b"row-%d" % n, {REPL: b"v" * 4_000}) for n in range(50)], 6)
    assert [row.key for row in table.scan()] == [b"1<"]
    table._writer.execute("PRAGMA max_page_count = 1000000")
    table.put([RowPut(b"row-%d" % n, {REPL: b"v" * 4_000}) for n in range(50)], 6)
    assert len(list(table.scan())) == 51


@pytest.mark.parametrize(
    "content", [b"not a database, but long enough to be looked at" * 10, b"SQLite format 3\x00" * 99]
)
def test_a_file_that_is_no_database_is_corrupt(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(CorruptionError, match="metadata"):
        sqlite_books(path)


def test_a_damaged_file_is_corrupt_when_it_is_read(path: Path) -> None:
    with closing(sqlite_books(path)) as table:
        table.put([RowPut(b"row-%05d" % n, {REPL: b"v" * 100}) for n in range(2_000)], 5)
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 30] = b"\xa5" * (4096 * 27)
    path.write_bytes(content)
    with pytest.raises(CorruptionError), closing(sqlite_books(path)) as table:
        list(table.scan())


@pytest.mark.parametrize("version", [1, 2, 4])
def test_another_format_is_refused(path: Path, version: int) -> None:
    sqlite_books(path).close()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(IncompatibleError, match=f"format {version}"):
        sqlite_books(path)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="directory does not exist"):
        sqlite_books(tmp_path / "none" / "metadata.db")


def test_a_probe_names_the_process_that_keeps_others_from_writing_while_reads_go_on(
    path: Path, table: SqliteMetadataTable
) -> None:
    _put(table, 1)
    with locked_by_another(path, "BEGIN EXCLUSIVE") as holder:
        with pytest.raises(UnavailableError, match=f"process {holder} .*keeps it locked; end its transaction"):
            table.probe()
        assert _value(table) == Cell(1, b"1")
    table.probe()
    assert _value(table) == Cell(1, b"1")
