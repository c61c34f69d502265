"""The metadata table in one SQLite file: for a single machine, any number of threads and processes.

Arrives: puts, deletes and purges. Leaves: rows in key order. Survives a crash: every call that returned (write-ahead
log, ``synchronous=FULL``); a call that was cut shows whole chunks of whole rows or nothing, and is repeated whole.

Each cell is one record: its highest rank, that rank's value, and the highest tombstone. It shows while the rank is
above the tombstone; a purge is the tombstone PURGE_RANK. Both only rise, by an upsert that reads nothing first, so
repeated and reordered calls end the same. Of two values at one rank the later write stays, as in HBase; rule R1
says that it never comes to that. Folding through ``combiners`` is the reader's (design section 4).

Threads that write at the same time share transactions, and so their fsync. A scan is a series of short reads of
bounded size: it holds no lock and keeps no snapshot between pages. Not for network filesystems.
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import tenacity

from bookkeeper.errors import (
    BookkeeperError,
    CorruptionError,
    IncompatibleError,
    InvalidInputError,
    NoSpaceError,
    NotFoundError,
    UnavailableError,
)
from bookkeeper.metadata.limits import check_cells, check_families, check_key, check_puts, check_rank
from bookkeeper.metadata.table import PURGE_RANK, Cell, CellKey, Column, Row, RowPut

FORMAT_VERSION = 1

CHUNK_CELLS = 5_000
"""Most cells that one transaction takes from one call; whole rows, so one row may exceed it."""

PAGE_CELLS, PAGE_BYTES = 4_000, 1024 * 1024
"""A page of a scan ends with the first whole row that reaches one of these."""

IDLE_CONNECTIONS_MAX = 8

CREATE_SQL = (
    """CREATE TABLE IF NOT EXISTS cells (
        row BLOB NOT NULL, family TEXT NOT NULL, qualifier BLOB NOT NULL,
        rank INTEGER NOT NULL, value BLOB NOT NULL, tombstone INTEGER NOT NULL,
        PRIMARY KEY (row, family, qualifier)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS hidden ON cells (row, family, qualifier) WHERE rank <= tombstone",
    f"PRAGMA user_version = {FORMAT_VERSION}",
)
PUT_SQL = (
    "INSERT INTO cells VALUES (?, ?, ?, ?, ?, 0) ON CONFLICT (row, family, qualifier) DO UPDATE"
    " SET rank = excluded.rank, value = excluded.value"
    " WHERE excluded.rank > tombstone AND (excluded.rank > rank OR (excluded.rank = rank AND excluded.value <> value))"
)
DELETE_SQL = (
    "INSERT INTO cells VALUES (?, ?, ?, 0, x'', ?) ON CONFLICT (row, family, qualifier) DO UPDATE"
    " SET tombstone = excluded.tombstone, value = CASE WHEN rank > excluded.tombstone THEN value ELSE x'' END"
    " WHERE excluded.tombstone > tombstone"
)
SLICE_SQL = (
    "SELECT row, family, qualifier, rank, value FROM cells WHERE rank > tombstone"
    " AND row = ? AND family = ? AND qualifier >= ? AND qualifier < ? ORDER BY qualifier"
)
COMPACT_SQL = (
    "DELETE FROM cells WHERE (row, family, qualifier) IN"
    f" (SELECT row, family, qualifier FROM cells WHERE rank <= tombstone LIMIT {CHUNK_CELLS})"
)

_RETRIED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class _Write:
    """One statement over many parameters, waiting for a transaction."""

    __slots__ = ("changed", "done", "error", "parameters", "sql")

    def __init__(self, sql: str, parameters: list[tuple[Any, ...]]) -> None:
        self.sql, self.parameters = sql, parameters
        self.done = False
        self.changed = 0
        self.error: BaseException | None = None


class SqliteMetadataTable:
    """:class:`~bookkeeper.metadata.table.MetadataTable` in the file ``path``, created when it is missing.

    ``busy_timeout_ms`` bounds how long a call waits for other processes before it raises UnavailableError. ``sleep``
    (seconds) and ``rng`` space those tries.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy_timeout_ms: int = 30_000,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        if not path.parent.is_dir():
            raise NotFoundError(f"can't open the metadata table {path}: its directory does not exist")
        self._path = path
        rng = rng or random.Random()
        self._retry = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_busy),
            stop=tenacity.stop_after_delay(busy_timeout_ms / 1000),
            wait=lambda state: rng.uniform(0.0005, 0.002 * min(state.attempt_number, 10)),
            sleep=sleep,
            reraise=True,
        )
        self._idle: list[sqlite3.Connection] = []
        self._idle_lock = threading.Lock()
        self._queue: deque[_Write] = deque()
        self._writer_lock = threading.Lock()
        self._closed = False
        with self._translated():
            self._writer = self._retry(self._connect)
            self._retry(self._create)

    # ---- the protocol

    def put(self, rows: Sequence[RowPut], rank: int) -> None:
        """See :class:`~bookkeeper.metadata.table.MetadataTable`."""
        check_puts(rows, rank)
        chunk: list[tuple[Any, ...]] = []
        for row in rows:
            if chunk and len(chunk) + len(row.values) > CHUNK_CELLS:
                self._write(PUT_SQL, chunk)
                chunk = []
            chunk += [(row.key, c.family, c.qualifier, rank, value) for c, value in row.values.items()]
        self._write(PUT_SQL, chunk)

    def delete(self, cells: Sequence[CellKey], rank: int) -> None:
        """See :class:`~bookkeeper.metadata.table.MetadataTable`."""
        check_rank(rank)
        self._tombstones(cells, rank)

    def purge(self, cells: Sequence[CellKey]) -> None:
        """See :class:`~bookkeeper.metadata.table.MetadataTable`."""
        self._tombstones(cells, PURGE_RANK)

    def get(self, key: bytes, families: Collection[str] | None = None) -> Row | None:
        """See :class:`~bookkeeper.metadata.table.MetadataTable`."""
        check_key(key)
        rows, _ = self._page(key, key + b"\x00", check_families(families))
        return rows[0] if rows else None

    def get_slice(self, key: bytes, family: str, start: bytes, stop: bytes) -> Row | None:
        """See :class:`~bookkeeper.metadata.table.SliceReader`."""
        check_key(key)
        check_families((family,))
        with self._translated(), self._reader() as connection:
            rows, _ = self._retry(_read_page, connection, SLICE_SQL, (key, family, start, stop))
        return rows[0] if rows else None

    def scan(
        self, start: bytes = b"", stop: bytes | None = None, families: Collection[str] | None = None
    ) -> Iterator[Row]:
        """See :class:`~bookkeeper.metadata.table.MetadataTable`."""
        return self._scan(start, stop, check_families(families))

    def compact(self) -> None:
        """See :class:`~bookkeeper.metadata.table.MetadataTable`. All tombstones go at once."""
        while self._write(COMPACT_SQL, [()]):
            pass
        with self._translated(), self._writer_lock:
            self._require_open()
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """See :class:`~bookkeeper.metadata.table.MetadataTable`. Writes in flight finish first."""
        with self._writer_lock:
            self._closed = True
            self._writer.close()
        with self._idle_lock:
            while self._idle:
                self._idle.pop().close()

    # ---- writing

    def _tombstones(self, cells: Sequence[CellKey], rank: int) -> None:
        check_cells(cells)
        for first in range(0, len(cells), CHUNK_CELLS):
            chunk = cells[first : first + CHUNK_CELLS]
            self._write(DELETE_SQL, [(c.key, c.column.family, c.column.qualifier, rank) for c in chunk])

    def _write(self, sql: str, parameters: list[tuple[Any, ...]]) -> int:
        """Run in a transaction that other threads may share; returns the number of changed records once durable."""
        if not parameters:
            return 0
        write = _Write(sql, parameters)
        self._queue.append(write)
        with self._writer_lock:
            while not write.done:
                self._commit(self._next_group())
        if write.error is None:
            return write.changed
        if isinstance(write.error, BookkeeperError):
            raise type(write.error)(write.error.message) from write.error
        raise UnavailableError(f"a write to {self._path} was cut; repeat it") from write.error

    def _next_group(self) -> list[_Write]:
        """The writes of one transaction: in order of arrival, at least one, up to about CHUNK_CELLS."""
        group = [self._queue.popleft()]
        cells = len(group[0].parameters)
        while self._queue and cells < CHUNK_CELLS:
            group.append(self._queue.popleft())
            cells += len(group[-1].parameters)
        return group

    def _commit(self, group: list[_Write]) -> None:
        """One transaction for ``group``; its outcome goes to every write, also when this thread is being ended."""
        error: BaseException | None = None
        try:
            with self._translated():
                self._require_open()
                self._retry(_transaction, self._writer, group)
        except BookkeeperError as failed:
            error = failed
        except BaseException as failed:
            error = failed
            raise
        finally:
            for write in group:
                write.error, write.done = error, True

    # ---- reading

    def _scan(self, start: bytes, stop: bytes | None, families: tuple[str, ...]) -> Iterator[Row]:
        at: bytes | None = start
        while at is not None:
            rows, at = self._page(at, stop, families)
            yield from rows

    def _page(self, start: bytes, stop: bytes | None, families: tuple[str, ...]) -> tuple[list[Row], bytes | None]:
        """Whole rows from ``start`` on, read at one moment, and where to go on (None: nothing is left)."""
        if not families or (stop is not None and start >= stop):
            return [], None
        sql = "SELECT row, family, qualifier, rank, value FROM cells WHERE rank > tombstone AND row >= ?"
        parameters: list[Any] = [start]
        if stop is not None:
            sql += " AND row < ?"
            parameters.append(stop)
        sql += f" AND family IN ({', '.join('?' * len(families))}) ORDER BY row, family, qualifier"
        with self._translated(), self._reader() as connection:
            return self._retry(_read_page, connection, sql, [*parameters, *families])

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        with self._idle_lock:
            self._require_open()
            connection = self._idle.pop() if self._idle else None
        connection = connection or self._retry(self._connect)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._idle_lock:
            if not self._closed and len(self._idle) < IDLE_CONNECTIONS_MAX:
                self._idle.append(connection)
                return
        connection.close()

    # ---- the file

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                connection.execute("PRAGMA journal_mode = WAL")
        except BaseException:
            connection.close()
            raise
        return connection

    def _create(self) -> None:
        version = self._format_version()
        if version == 0:
            _transaction(self._writer, [_Write(sql, [()]) for sql in CREATE_SQL])
        elif version != FORMAT_VERSION:
            raise IncompatibleError(f"{self._path} has format {version}; this version knows {FORMAT_VERSION} only")

    def _format_version(self) -> int:
        with closing(self._writer.execute("PRAGMA user_version")) as cursor:
            return int(cursor.fetchone()[0])

    def _require_open(self) -> None:
        if self._closed:
            raise InvalidInputError(f"the metadata table {self._path} was closed")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """SQLite's errors as ours: a lock or a full disk passes, a broken file does not; anything else is a fault."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _CORRUPT:
                raise CorruptionError(f"{self._path} is not a readable metadata table: {error}") from error
            if not isinstance(error, sqlite3.OperationalError):
                raise
            kind = NoSpaceError if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL else UnavailableError
            raise kind(f"the metadata table {self._path} can't be used now: {error}") from error


def _transaction(connection: sqlite3.Connection, writes: Iterable[_Write]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for write in writes:
            write.changed = connection.executemany(write.sql, write.parameters).rowcount
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _is_busy(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in _RETRIED


def _read_page(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> tuple[list[Row], bytes | None]:
    """Step through one statement, which sees one moment, until a row ends beyond the limits of a page."""
    with closing(connection.execute(sql, parameters)) as cursor:
        return _page_of(cursor)


def _page_of(records: Iterable[tuple[bytes, str, bytes, int, bytes]]) -> tuple[list[Row], bytes | None]:
    rows: list[Row] = []
    columns: dict[tuple[str, bytes], Column] = {}
    key: bytes | None = None
    cells: dict[Column, Cell] = {}
    cells_left, bytes_left = PAGE_CELLS, PAGE_BYTES
    for row, family, qualifier, rank, value in records:
        if row != key:
            if cells_left <= 0 or bytes_left <= 0:
                return rows, row
            key, cells = row, {}
            rows.append(Row(row, cells))
        column = columns.get((family, qualifier))
        if column is None:
            column = columns[family, qualifier] = Column(family, qualifier)
        cells[column] = Cell(rank, value)
        cells_left -= 1
        bytes_left -= len(row) + len(qualifier) + len(value)
    return rows, None
