"""The metadata table in one SQLite file: for a single machine, any number of threads and processes.

Survives a crash: every call that returned (write-ahead log, ``synchronous=FULL``). An interrupted call wrote complete
chunks of complete rows or nothing, and its caller repeats all of it.

Each cell is one record: its highest rank, that rank's value, and the highest tombstone. It is visible while the rank is
above the tombstone; a purge is the tombstone PURGE_RANK. Both only rise, by an upsert without a read, so repeated and
reordered calls have the same result. Of two values at one rank the later write stays, as in HBase; rule R1 excludes
that case. The reader folds values through ``combiners``.

Threads that write at the same time share transactions, and so their fsync. A scan is a series of short reads of limited
size: it has no lock and no snapshot between pages; but all parts of a long row come from one snapshot. Not for network
filesystems.
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
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
from bookkeeper.metadata.owner import OwnerCheck, lost
from bookkeeper.metadata.sqlite.sqlite_books import missing_text, open_file, read_owner, refuse_missing, translated
from bookkeeper.metadata.sqlite.sqlite_cells import (
    CHUNK_CELLS,
    COMPACT_SQL,
    DELETE_SQL,
    FORGET_SQL,
    KIND,
    NOTE_HIDDEN_SQL,
    NOTES_SQL,
    PAGE_CELLS,
    PAGE_CELLS_FIRST,
    PUT_SQL,
    SELECT_SQL,
    SLICE_SQL,
    check_records,
    delete_parameters,
    put_parameters,
    read_page,
    read_parts,
)
from bookkeeper.sqlite_file import check_pages, is_new, transaction

IDLE_CONNECTIONS_MAX = 8
PROBE_S = 1.0
"""Seconds in which a probe has to get the right to write: writers give it back after each transaction."""
SHRUNK_BYTES_MIN = 1024 * 1024
"""A smaller file is not rewritten, however many of its pages are free."""

_RETRIED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

_Part = tuple[list[Row], bytes | None]
"""Rows, and the key of the next page (None: the end, or more parts of the same row follow)."""


class _Write:
    """One statement over many parameters in the queue for a transaction."""

    __slots__ = ("_changed_records", "_error", "_sql", "is_done", "parameters")

    def __init__(self, sql: str, parameters: list[tuple[Any, ...]]) -> None:
        self._sql, self.parameters = sql, parameters
        self.is_done = False
        self._changed_records = 0
        self._error: BaseException | None = None

    def run(self, connection: sqlite3.Connection) -> None:
        """Execute the statement in the current transaction."""
        self._changed_records = connection.executemany(self._sql, self.parameters).rowcount

    def finish(self, error: BaseException | None) -> None:
        """Record the outcome of the transaction."""
        self._error, self.is_done = error, True

    def changed_records(self, path: Path) -> int:
        """The number of changed records; raises the error of the transaction."""
        if self._error is None:
            return self._changed_records
        if isinstance(self._error, BookkeeperError):
            raise type(self._error)(self._error.message) from self._error
        raise UnavailableError(f"a write to {path} was interrupted; repeat it") from self._error


class SqliteMetadataTable:
    """:class:`~bookkeeper.metadata.metadata_table.MetadataTable` in the existing file ``path``.

    ``least_round``: books of a lower round are an older copy. ``busy_timeout_ms`` bounds how long a call waits for
    other processes before it raises UnavailableError. ``sleep`` (seconds) and ``rng`` set the time between tries.

    Raises NotFoundError, RefusedError or IncompatibleError when the file does not have the books of ``instance_id``; a
    later connection to such a file raises LostBooksError.
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
        self._path = path
        self._owner = OwnerCheck(f"the {KIND.title} {path}", instance_id, least_round)
        self._is_open = False
        rng = rng or random.Random()
        self._retry = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_busy),
            stop=tenacity.stop_after_delay(busy_timeout_ms / 1000),
            wait=lambda state: rng.uniform(0.0005, 0.002 * min(state.attempt_number, 10)),
            sleep=sleep,
            reraise=True,
        )
        self._probe_retry = self._retry.copy(stop=tenacity.stop_after_delay(PROBE_S))
        self._idle: list[sqlite3.Connection] = []
        self._idle_lock = threading.Lock()
        self._queue: deque[_Write] = deque()
        self._writer_lock = threading.Lock()
        self._closed = False
        with translated(path):
            self._writer = self._retry(self._connect)
            self._writer.execute(NOTES_SQL)
        self._hidden = 0
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
        """See :class:`~bookkeeper.metadata.metadata_table.Compactor`. A mostly empty file shrinks."""
        for first in range(0, self._hidden, CHUNK_CELLS):
            self._write(COMPACT_SQL, [(first, first + CHUNK_CELLS)])
        with translated(self._path), self._writer_lock:
            self._require_open()
            self._retry(self._shrink)
        self._write(FORGET_SQL, [()])
        self._hidden = self._write(NOTE_HIDDEN_SQL, [()])

    def _shrink(self) -> None:
        names = ("page_count", "freelist_count", "page_size")
        pages, free, page_bytes = (self._writer.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        if pages * page_bytes > SHRUNK_BYTES_MIN and 2 * free > pages:
            self._writer.execute("VACUUM")
        self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def probe(self) -> None:
        """See :class:`~bookkeeper.metadata.metadata_table.Probed`. Takes the right to write, and gives it back."""
        with translated(self._path), self._reader() as connection:
            self._probe_retry(_run_group, connection, ())

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
            while not write.is_done:
                self._commit(self._next_group())
        return write.changed_records(self._path)

    def _next_group(self) -> list[_Write]:
        """The writes of one transaction: in order of arrival, at least one, up to about CHUNK_CELLS."""
        group = [self._queue.popleft()]
        cells = len(group[0].parameters)
        while self._queue and cells < CHUNK_CELLS:
            group.append(self._queue.popleft())
            cells += len(group[-1].parameters)
        return group

    def _commit(self, group: list[_Write]) -> None:
        """One transaction for ``group``; every write gets its outcome, also when an exception ends this thread."""
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
                write.finish(error)

    # ---- reading

    def _scan(self, start: bytes, stop: bytes | None, families: tuple[str, ...]) -> Iterator[Row]:
        at: bytes | None = start
        page_cells = PAGE_CELLS_FIRST
        while at is not None:
            rows, at = self._page(at, stop, families, page_cells)
            page_cells = min(8 * page_cells, PAGE_CELLS)
            yield from rows

    def _scan_parts(self, start: bytes, stop: bytes | None, families: tuple[str, ...]) -> Iterator[Row]:
        at: bytes | None = start
        while at is not None and not _is_empty(at, stop, families):
            sql, parameters = _rows_between(at, stop, families)
            with translated(self._path), self._reader() as connection:
                (rows, at), following = self._retry(self._first_part, connection, sql, parameters)
                with closing(following):
                    for next_rows, next_at in following:
                        yield from rows
                        rows, at = next_rows, next_at
            yield from rows

    def _first_part(
        self, connection: sqlite3.Connection, sql: str, parameters: list[Any]
    ) -> tuple[_Part, Generator[_Part]]:
        parts = read_parts(self._path, connection, sql, parameters)
        return next(parts), parts

    def _page(self, start: bytes, stop: bytes | None, families: tuple[str, ...], page_cells: int = PAGE_CELLS) -> _Part:
        """Complete rows from ``start`` on, from one snapshot, and the key of the next page (None: the end)."""
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
        """See :class:`~bookkeeper.metadata.metadata_table.OwnerReader`: the path may lead to another file now."""
        with translated(self._path), closing(self._retry(open_file, self._path)) as connection:
            return self._retry(read_owner, self._path, connection)

    def check(self) -> None:
        """Compare all records with their checksums, before processes of the cluster start. Raises
        CorruptionError, UnavailableError.
        """
        with translated(self._path), self._reader() as connection:
            check_pages(connection, self._path, KIND.title)
            check_records(self._path, connection)

    # ---- the file

    def _connect(self) -> sqlite3.Connection:
        connection = open_file(self._path)
        try:
            self._check_owner(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_owner(self, connection: sqlite3.Connection) -> None:
        """Check that a connection leads to the books of this instance, and not to an older copy of them."""
        try:
            if is_new(connection, self._path, KIND):
                raise NotFoundError(missing_text(self._path))
            self._owner.check(partial(read_owner, self._path, connection))
        except PermanentError as error:
            if self._is_open and not isinstance(error, CorruptionError):
                raise lost(error) from error
            raise

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
            write.run(connection)


def _is_busy(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in _RETRIED
