"""The SQLite file of the embedded coordination: schema, connections, transactions, errors.

A committed transaction survives a crash (WAL journal, full sync). Readers never wait for writers. Writers of several
processes wait for each other, up to ``busy_timeout_ms``.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tenacity

from bookkeeper.sqlite_file import (
    FileKind,
    check_pages,
    claim,
    damaged,
    is_transient,
    row_sum,
    transaction,
    transient_error,
)

KIND = FileKind(
    title="coordination store",
    application_id=0x424B434F,
    version=4,
    schema=(
        "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
        """CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY, kind TEXT NOT NULL, address TEXT NOT NULL, pid INTEGER NOT NULL,
    pid_started TEXT NOT NULL, dead INTEGER NOT NULL DEFAULT 0, host TEXT, incarnation TEXT,
    zone TEXT
) WITHOUT ROWID""",
        """CREATE TABLE leader (
    one INTEGER PRIMARY KEY CHECK (one = 1), session_id TEXT NOT NULL, address TEXT NOT NULL, epoch INTEGER NOT NULL
)""",
        "CREATE TABLE tree (path TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL) WITHOUT ROWID",
        """CREATE TABLE candidacies (
    session_id TEXT NOT NULL, election TEXT NOT NULL, place INTEGER NOT NULL, value BLOB NOT NULL, sum INTEGER NOT NULL,
    PRIMARY KEY (session_id, election)
) WITHOUT ROWID""",
        "CREATE TABLE digest (one INTEGER PRIMARY KEY CHECK (one = 1), value INTEGER NOT NULL)",
    ),
)

_CONTENT = (
    "SELECT name, value FROM counters ORDER BY 1",
    "SELECT session_id, kind, address, pid, pid_started, dead, host, incarnation, zone FROM sessions ORDER BY 1",
    "SELECT session_id, address, epoch FROM leader",
    "SELECT path, value, version FROM tree ORDER BY 1",
)
"""Queries of the content under the digest, which is small and changes rarely. A candidacy has a sum of its own: there
are as many as replicas, and they change with each new state.
"""


class EmbeddedStore:
    """One SQLite file, used by many threads and processes."""

    def __init__(self, path: Path, busy_timeout_ms: int) -> None:
        self._path = path
        self._busy_timeout_ms = busy_timeout_ms
        self._read_lock = threading.Lock()
        self._write_lock = threading.Lock()
        with self._translated():
            self._writer = self._open_first()
            self._reader = self._connect()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=self._busy_timeout_ms / 1000, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def _open_first(self) -> sqlite3.Connection:
        # Several processes may create the file at once, and the switch to WAL does not honour the busy timeout.
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_transient),
            stop=tenacity.stop_after_delay(self._busy_timeout_ms / 1000),
            wait=tenacity.wait_random(0.001, 0.05),
            reraise=True,
        )
        return retrying(self._open_once)

    def _open_once(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            claim(connection, self._path, KIND)
            connection.execute("BEGIN")
            check_pages(connection, self._path, KIND.title)
            stored = connection.execute("SELECT value FROM digest").fetchone()
            if not is_whole(connection, stored):
                raise damaged(self._path, KIND.title, "its content does not match its checksum")
            connection.execute("ROLLBACK")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One write transaction: committed when the block ends, rolled back when it raises."""
        with self._write_lock, self._translated(), transaction(self._writer):
            yield self._writer
            self._writer.execute("INSERT OR REPLACE INTO digest VALUES (1, ?)", (digest(self._writer),))

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent snapshot of the store."""
        with self._read_lock, self._translated():
            self._reader.execute("BEGIN")
            try:
                yield self._reader
            finally:
                self._reader.execute("ROLLBACK")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if not isinstance(error, sqlite3.ProgrammingError) and not is_transient(error):
                raise damaged(self._path, KIND.title, error) from error
            raise transient_error(self._path, KIND.title, error) from error

    def close(self) -> None:
        """Release the file; every later use raises UnavailableError."""
        with self._write_lock:
            self._writer.close()
        with self._read_lock:
            self._reader.close()


def digest(connection: sqlite3.Connection) -> int:
    """Checksum of the store's content in this transaction."""
    checksum = 0
    for sql in _CONTENT:
        for row in connection.execute(sql):
            checksum = row_sum(row, checksum)
    return checksum


def is_whole(connection: sqlite3.Connection, stored: tuple[int] | None) -> bool:
    """Whether the content matches the stored digest; a store without content has none."""
    return digest(connection) == (0 if stored is None else stored[0])


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, sqlite3.DatabaseError) and is_transient(error)


def increment(connection: sqlite3.Connection, counter: str) -> int:
    """Increment a counter inside a write transaction and return its new value."""
    row = connection.execute(
        "INSERT INTO counters VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value",
        (counter,),
    ).fetchone()
    return int(row[0])
