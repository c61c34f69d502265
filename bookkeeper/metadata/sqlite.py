"""The metadata table in one SQLite file: for a single machine, any number of threads and processes.

Arrives: puts, deletes and purges. Leaves: rows in key order. Survives a crash: every call that returned (write-ahead
log, ``synchronous=FULL``); a call that was cut shows whole chunks of whole rows or nothing, and is repeated whole.

Each cell is one record: its highest rank, that rank's value, and the highest tombstone. It shows while the rank is
above the tombstone; a purge is the tombstone PURGE_RANK. Both only rise, by an upsert that reads nothing first, so
repeated and reordered calls end the same. Of two values at one rank the later write stays, as in HBase; rule R1
says that it never comes to that. Folding through ``combiners`` is the reader's (design section 4).

Threads that write at the same time share transactions, and so their fsync. A scan is a series of short reads of
bounded size: it holds no lock and keeps no snapshot between pages; but one that hands over a long row in parts reads
that row at one moment, however long its reader takes. Not for network filesystems.
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import tenacity

from bookkeeper.errors import (
    BookkeeperError,
    InvalidInputError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from bookkeeper.metadata.limits import check_cells, check_families, check_key, check_puts, check_rank
from bookkeeper.metadata.sqlite_cells import (
    CHUNK_CELLS,
    COMPACT_SQL,
    DELETE_SQL,
    KIND,
    PUT_SQL,
    SELECT_SQL,
    SLICE_SQL,
    check_records,
    delete_parameters,
    put_parameters,
    read_page,
    read_parts,
)
from bookkeeper.metadata.table import PURGE_RANK, CellKey, Row, RowPut
from bookkeeper.sqlite_file import check_pages, claim, damaged, passes, passing, transaction

IDLE_CONNECTIONS_MAX = 8

_RETRIED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

_Part = tuple[list[Row], bytes | None]
"""Rows, and where to go on (None: nothing is left, or more of the same row)."""


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
            chunk += put_parameters(row, rank)
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
            rows, _ = self._retry(read_page, self._path, connection, SLICE_SQL, (key, family, start, stop))
        return rows[0] if rows else None

    def scan(
        self, start: bytes = b"", stop: bytes | None = None, families: Collection[str] | None = None
    ) -> Iterator[Row]:
        """See :class:`~bookkeeper.metadata.table.MetadataTable`."""
        return self._scan(start, stop, check_families(families))

    def scan_parts(self, start: bytes, stop: bytes | None, families: Collection[str]) -> Iterator[Row]:
        """See :class:`~bookkeeper.metadata.table.PartReader`."""
        return self._scan_parts(start, stop, check_families(families))

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
            self._write(DELETE_SQL, delete_parameters(chunk, rank))

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
                self._retry(_run_group, self._writer, group)
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

    def _scan_parts(self, start: bytes, stop: bytes | None, families: tuple[str, ...]) -> Iterator[Row]:
        at: bytes | None = start
        while at is not None and not _is_empty(at, stop, families):
            sql, parameters = _rows_between(at, stop, families)
            with self._translated(), self._reader() as connection:
                (rows, at), following = self._retry(self._first_part, connection, sql, parameters)
                with closing(following):
                    for more, going_on in following:
                        yield from rows
                        rows, at = more, going_on
            yield from rows

    def _first_part(
        self, connection: sqlite3.Connection, sql: str, parameters: list[Any]
    ) -> tuple[_Part, Generator[_Part]]:
        parts = read_parts(self._path, connection, sql, parameters)
        return next(parts), parts

    def _page(self, start: bytes, stop: bytes | None, families: tuple[str, ...]) -> _Part:
        """Whole rows from ``start`` on, read at one moment, and where to go on (None: nothing is left)."""
        if _is_empty(start, stop, families):
            return [], None
        sql, parameters = _rows_between(start, stop, families)
        with self._translated(), self._reader() as connection:
            return self._retry(read_page, self._path, connection, sql, parameters)

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
        claim(self._writer, self._path, KIND)

    def check(self, instance_id: str) -> None:
        """Read everything and compare it with its checksums; the file belongs to the instance that did so first. As a
        cluster starts, before its processes. Raises CorruptionError, RefusedError, UnavailableError.
        """
        with self._translated(), self._reader() as connection:
            check_pages(connection, self._path, KIND.what)
            check_records(self._path, connection)
        self._write("INSERT INTO owner VALUES (1, ?) ON CONFLICT DO NOTHING", [(instance_id,)])
        with self._translated(), self._reader() as connection:
            (owner,) = connection.execute("SELECT instance_id FROM owner").fetchone()
        if owner != instance_id:
            raise RefusedError(
                f"the metadata table {self._path} holds the books of instance {owner}, not of {instance_id}; restore "
                "that of this cluster"
            )

    def _require_open(self) -> None:
        if self._closed:
            raise InvalidInputError(f"the metadata table {self._path} was closed")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """SQLite's errors as ours: a lock or a full disk passes, a broken file does not; anything else is a fault."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if type(error) not in (sqlite3.OperationalError, sqlite3.DatabaseError):
                raise
            if not passes(error):
                raise damaged(self._path, KIND.what, error) from error
            raise passing(self._path, KIND.what, error) from error


def _is_empty(start: bytes, stop: bytes | None, families: tuple[str, ...]) -> bool:
    return not families or (stop is not None and start >= stop)


def _rows_between(start: bytes, stop: bytes | None, families: tuple[str, ...]) -> tuple[str, list[Any]]:
    """The statement and its parameters."""
    sql = f"{SELECT_SQL} AND row >= ?"
    parameters: list[Any] = [start]
    if stop is not None:
        sql += " AND row < ?"
        parameters.append(stop)
    sql += f" AND family IN ({', '.join('?' * len(families))}) ORDER BY row, family, qualifier"
    return sql, [*parameters, *families]


def _run_group(connection: sqlite3.Connection, writes: Iterable[_Write]) -> None:
    with transaction(connection):
        for write in writes:
            write.changed = connection.executemany(write.sql, write.parameters).rowcount


def _is_busy(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in _RETRIED
