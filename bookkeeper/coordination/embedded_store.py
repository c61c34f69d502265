"""The SQLite file under the embedded coordination: schema, connections, transactions, errors.

Arrives: work to do in one transaction. Leaves: its result, durable when it wrote. Survives a crash: every committed
transaction (WAL journal, full sync). Readers never wait for writers; writers of several processes wait for each other
up to ``busy_timeout_ms``.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tenacity

from bookkeeper.errors import CorruptionError, NoSpaceError, UnavailableError

SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (
    session_id TEXT PRIMARY KEY, kind TEXT NOT NULL, address TEXT NOT NULL, pid INTEGER NOT NULL,
    pid_started TEXT NOT NULL, dead INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leader (
    one INTEGER PRIMARY KEY CHECK (one = 1), session_id TEXT NOT NULL, address TEXT NOT NULL, epoch INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS tree (path TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL) WITHOUT ROWID;
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
        # Several processes may be the first at once, and the switch to WAL does not honour the busy timeout.
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(sqlite3.OperationalError),
            stop=tenacity.stop_after_delay(self._busy_timeout_ms / 1000),
            wait=tenacity.wait_random(0.001, 0.05),
            reraise=True,
        )
        return retrying(self._open_once)

    def _open_once(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("BEGIN IMMEDIATE")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, SCHEMA_VERSION):
                raise CorruptionError(f"{self._path} has format {version}, this version knows {SCHEMA_VERSION}")
            for statement in filter(str.strip, _SCHEMA.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One write transaction: committed when the block ends, rolled back when it raises."""
        with self._write_lock, self._translated():
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent view of the store."""
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
        except (sqlite3.OperationalError, sqlite3.ProgrammingError) as error:
            full = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
            kind = NoSpaceError if full else UnavailableError
            raise kind(f"the coordination store {self._path} did not answer: {error}") from error
        except sqlite3.DatabaseError as error:
            raise CorruptionError(f"the coordination store {self._path} is damaged: {error}") from error

    def close(self) -> None:
        """Release the file; every later use raises UnavailableError."""
        with self._write_lock:
            self._writer.close()
        with self._read_lock:
            self._reader.close()


def increment(connection: sqlite3.Connection, counter: str) -> int:
    """Add one to a counter inside a write transaction and return its new value."""
    row = connection.execute(
        "INSERT INTO counters VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value",
        (counter,),
    ).fetchone()
    return int(row[0])
