"""The SQLite file of the books: made once, for one instance, and opened by everybody else.

Arrives: a path. Leaves: a file with its owner row, connections to one that is there, SQLite's errors as ours.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from bookkeeper.errors import ExistsError, NotFoundError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Row, RowPut
from bookkeeper.metadata.owner import owner_of, owner_value
from bookkeeper.metadata.sqlite.sqlite_cells import CLAIM_SQL, KIND, ROW_SQL, put_parameters, read_page
from bookkeeper.sqlite_file import JOURNAL_SUFFIX, claim, damaged, passes, passing, transaction


def make_sqlite_file(path: Path, instance_id: str, busy_timeout_ms: int) -> None:
    """Make the file of a new cluster, owned by ``instance_id``; repeating it is harmless. Raises ExistsError when the
    file holds another's books, NotFoundError without its directory, CorruptionError, UnavailableError.
    """
    refuse_missing_directory(path)
    with translated(path), closing(open_file(path, "rwc", busy_timeout_ms)) as connection:
        claim(connection, path, KIND)
        with transaction(connection):
            empty = connection.execute("SELECT 1 FROM cells LIMIT 1").fetchone() is None
            if empty:
                put = RowPut(keys.owner_row(), {keys.OWNER: owner_value(instance_id)})
                connection.executemany(CLAIM_SQL, put_parameters(put, keys.ONCE_RANK))
        owner = owner_of(read_owner(path, connection))
    if owner is None or owner.instance_id != instance_id:
        whose = "a cluster" if owner is None else f"instance {owner.instance_id}"
        raise ExistsError(
            f"the {KIND.what} {path} holds the books of {whose}; name another file with --metadata (one that an init "
            "left which was cut may be deleted)"
        )


def open_file(path: Path, mode: str = "rw", busy_timeout_ms: int = 0) -> sqlite3.Connection:
    """A connection to the file; ``mode`` rw: it is not made when it is missing. Raises what SQLite raises."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        timeout=busy_timeout_ms / 1000,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            connection.execute("PRAGMA journal_mode = WAL")
    except BaseException:
        connection.close()
        raise
    return connection


def read_owner(path: Path, connection: sqlite3.Connection) -> Row | None:
    """The owner row, None when there is none. Raises CorruptionError, and what SQLite raises."""
    rows, _ = read_page(path, connection, ROW_SQL, (keys.owner_row(),))
    return rows[0] if rows else None


def refuse_missing(path: Path) -> None:
    """Raise NotFoundError where no file was ever written. A write-ahead file may hold all that a database has."""
    refuse_missing_directory(path)
    if is_fresh(path):
        raise NotFoundError(missing_text(path))


def refuse_missing_directory(path: Path) -> None:
    """Raise NotFoundError when there can't be a file of that name."""
    if not path.parent.is_dir():
        raise NotFoundError(f"can't open the {KIND.what} {path}: its directory does not exist")


def is_fresh(path: Path) -> bool:
    """Whether nothing was ever written there."""
    journal = path.with_name(path.name + JOURNAL_SUFFIX)
    return not any(file.is_file() and file.stat().st_size for file in (path, journal))


def missing_text(path: Path) -> str:
    """What is wrong, and the next step, where there is no table."""
    return (
        f"the {KIND.what} {path} does not exist or is empty; correct metadata.url, or restore the file: only "
        "'bookkeeper init' makes one, for a new cluster"
    )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors as ours: a lock or a full disk passes, a broken file does not; anything else is a fault."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if type(error) not in (sqlite3.OperationalError, sqlite3.DatabaseError):
            raise
        if not passes(error):
            raise damaged(path, KIND.what, error) from error
        raise passing(path, KIND.what, error) from error
