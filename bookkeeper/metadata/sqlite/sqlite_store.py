"""The metadata table in one SQLite file: for a single machine, any number of threads and processes.

Arrives: puts, deletes and purges. Leaves: rows in key order. Survives a crash: every call that returned (write-ahead
log, ``synchronous=FULL``); a call that was cut shows whole chunks of whole rows or nothing, and is repeated whole.

Each cell is one record: its highest rank, that rank's value, and the highest tombstone. It shows while the rank is
above the tombstone; a purge is the tombstone PURGE_RANK. Both only rise, by an upsert that reads nothing first, so
repeated and reordered calls end the same. Of two values at one rank the later write stays, as in HBase; rule R1
says that it never comes to that. Folding through ``combiners`` is the reader's.

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
    CorruptionError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    UnavailableError,
)
from bookkeeper.metadata.metadata_limits import check_cells, check_families, check_key, check_puts, check_rank
from bookkeeper.metadata.metadata_table import PURGE_RANK, CellKey, Row, RowPut
from bookkeeper.metadata.owner import check_owner, check_round, lost, round_of
from bookkeeper.metadata.sqlite.sqlite_books import missing_text, open_file, read_owner, refuse_missing, translated
from bookkeeper.metadata.sqlite.sqlite_cells import (
    CHUNK_CELLS,
    COMPACT_SQL,
    DELETE_SQL,
    KIND,
    PAGE_CELLS,
    PAGE_CELLS_FIRST,
    PUT_SQL,
    SELECT_SQL,
    SLICE_SQL,
    cells_of_next_page,
    check_records,
    delete_parameters,
    put_parameters,
    read_page,
    read_parts,
)
from bookkeeper.sqlite_file import check_pages, is_new, transaction

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
    """:class:`~bookkeeper.metadata.metadata_table.MetadataTable` in the file ``path``, which is there.

    ``least_round``: of an older round the books can't be. ``busy_timeout_ms`` bounds how long a call waits for other
    processes before it raises UnavailableError. ``sleep`` (seconds) and ``rng`` space those tries.

    Raises NotFoundError, RefusedError or IncompatibleError when the file does not hold the books of ``instance_id``; a
    later connection that finds so raises LostBooksError.
    """

    def __init__(
        self,
        path: Path,
        instance_id: str,
        least_round: int = 0,
        *,
        busy_timeout_ms: int = 30_000,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        refuse_missing(path)
        self._path, self._instance_id, self._round = path, instance_id, least_round
        self._is_open = False
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
        with translated(path):
            self._writer = self._retry(self._connect)
        self._is_open = True

    # ---- the protocol

    def put(self, rows: Sequence[RowPut], rank: int) -> None:
        """See :class:`~bookkeeper.metadata.metadata_table.MetadataTable`."""
        check_puts(rows, rank)
        chunk: list[tuple[Any, ...]] = []
        for row in rows:
            if chunk and len(chunk) + len(row.values) > CHUNK_CELLS:
                self._write(PUT_SQL, chunk)
                chunk = []
            chunk += put_parameters(row, rank)
        self._write(PUT_SQL, chunk)

    def delete(self, cells: Sequence[CellKey], rank: int) -> None:
        """See :class:`~bookkeeper.metadata.metadata_table.MetadataTable`."""
        check_rank(rank)
        self._tombstones(cells, rank)

    def purge(self, cells: Sequence[CellKey]) -> None:
        """See :class:`~bookkeeper.metadata.metadata_table.MetadataTable`."""
        self._tombstones(cells, PURGE_RANK)

    def get(self, key: bytes, families: Collection[str] | None = None) -> Row | None:
        """See :class:`~bookkeeper.metadata.metadata_table.MetadataTable`."""
        check_key(key)
        rows, _ = self._page(key, key + b"\x00", check_families(families))
        return rows[0] if rows else None

    def get_slice(self, key: bytes, family: str, start: bytes, stop: bytes) -> Row | None:
        """See :class:`~bookkeeper.metadata.metadata_table.SliceReader`."""
        check_key(key)
        check_families((family,))
        with translated(self._path), self._reader() as connection:
            rows, _ = self._retry(read_page, self._path, connection, SLICE_SQL, (key, family, start, stop))
        return rows[0] if rows else None

    def scan(
        self, start: bytes = b"", stop: bytes | None = None, families: Collection[str] | None = None
    ) -> Iterator[Row]:
        """See :class:`~bookkeeper.metadata.metadata_table.MetadataTable`."""
        return self._scan(start, stop, check_families(families))

    def scan_parts(self, start: bytes, stop: bytes | None, families: Collection[str]) -> Iterator[Row]:
        """See :class:`~bookkeeper.metadata.metadata_table.PartReader`."""
        return self._scan_parts(start, stop, check_families(families))

    def compact(self) -> None:
        """See :class:`~bookkeeper.metadata.metadata_table.MetadataTable`. All tombstones go at once."""
        while self._write(COMPACT_SQL, [()]):
            pass
        with translated(self._path), self._writer_lock:
            self._require_open()
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """See :class:`~bookkeeper.metadata.metadata_table.MetadataTable`. Writes in flight finish first."""
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
            with translated(self._path):
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
        page_cells = PAGE_CELLS_FIRST
        while at is not None:
            rows, at = self._page(at, stop, families, page_cells)
            page_cells = cells_of_next_page(page_cells)
            yield from rows

    def _scan_parts(self, start: bytes, stop: bytes | None, families: tuple[str, ...]) -> Iterator[Row]:
        at: bytes | None = start
        while at is not None and not _is_empty(at, stop, families):
            sql, parameters = _rows_between(at, stop, families)
            with translated(self._path), self._reader() as connection:
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

    def _page(self, start: bytes, stop: bytes | None, families: tuple[str, ...], page_cells: int = PAGE_CELLS) -> _Part:
        """Whole rows from ``start`` on, read at one moment, and where to go on (None: nothing is left)."""
        if _is_empty(start, stop, families):
            return [], None
        sql, parameters = _rows_between(start, stop, families)
        with translated(self._path), self._reader() as connection:
            return self._retry(read_page, self._path, connection, sql, parameters, page_cells)

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

    def owner_row(self) -> Row | None:
        """See :class:`~bookkeeper.metadata.metadata_table.OwnerReader`: what is at the path now may be another file."""
        with translated(self._path), closing(self._retry(open_file, self._path)) as connection:
            return self._retry(read_owner, self._path, connection)

    def check(self) -> None:
        """Read everything and compare it with its checksums, before processes of the cluster start. Raises
        CorruptionError, UnavailableError.
        """
        with translated(self._path), self._reader() as connection:
            check_pages(connection, self._path, KIND.what)
            check_records(self._path, connection)

    # ---- the file

    def _connect(self) -> sqlite3.Connection:
        connection = open_file(self._path)
        try:
            self._prove(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prove(self, connection: sqlite3.Connection) -> None:
        """That a connection leads to the books of this instance, and to no older copy than was seen before."""
        table = f"the {KIND.what} {self._path}"
        try:
            if is_new(connection, self._path, KIND):
                raise NotFoundError(missing_text(self._path))
            row = read_owner(self._path, connection)
            check_owner(table, row, self._instance_id)
            check_round(table, round_of(row), self._round)
        except PermanentError as error:
            if self._is_open and not isinstance(error, CorruptionError):
                raise lost(error) from error
            raise
        self._round = max(self._round, round_of(row))

    def _require_open(self) -> None:
        if self._closed:
            raise InvalidInputError(f"the metadata table {self._path} was closed")


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
