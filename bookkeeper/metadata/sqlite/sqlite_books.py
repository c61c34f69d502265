"""The SQLite file of the books: ``init`` creates it for one instance, all other processes only open it."""

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
from bookkeeper.sqlite_file import JOURNAL_SUFFIX, claim, damaged, is_transient, transaction, transient_error


def make_sqlite_file(path: Path, instance_id: str, busy_timeout_ms: int) -> None:
    """Create the file of a new cluster, owned by ``instance_id``; repeating it is harmless. Raises ExistsError when the
    file has books of another owner, NotFoundError without its directory, CorruptionError, UnavailableError.
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
        owner_text = "a cluster" if owner is None else f"instance {owner.instance_id}"
        raise ExistsError(
            f"the {KIND.title} {path} holds the books of {owner_text}; name another file with --metadata (you "
            "may delete the file of an interrupted init)"
        )


def open_file(path: Path, mode: str = "rw", busy_timeout_ms: int = 0) -> sqlite3.Connection:
    """A connection to the file; ``mode`` rw does not create a missing file, rwc does. Raises SQLite's errors."""
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
    """The owner row, None when there is none. Raises CorruptionError and SQLite's errors."""
    rows, _ = read_page(path, connection, ROW_SQL, (keys.owner_row(),))
    return rows[0] if rows else None


def refuse_missing(path: Path) -> None:
    """Raise NotFoundError when the file and its write-ahead file, which may have all the content, are empty."""
    refuse_missing_directory(path)
    if is_fresh(path):
        raise NotFoundError(missing_text(path))


def refuse_missing_directory(path: Path) -> None:
    """Raise NotFoundError when the directory of the file is missing."""
    if not path.parent.is_dir():
        raise NotFoundError(f"can't open the {KIND.title} {path}: its directory does not exist")


def is_fresh(path: Path) -> bool:
    """Whether neither the file nor its write-ahead file has content."""
    journal = path.with_name(path.name + JOURNAL_SUFFIX)
    return not any(file.is_file() and file.stat().st_size for file in (path, journal))


def missing_text(path: Path) -> str:
    """The error text for a missing table, with the next step."""
    return (
        f"the {KIND.title} {path} does not exist or is empty; correct metadata.url, or restore the file: only "
        "'bookkeeper init' creates one, for a new cluster"
    )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translate SQLite's errors: a lock or a full disk is transient, a damaged file is not; others stay unchanged."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if type(error) not in (sqlite3.OperationalError, sqlite3.DatabaseError):
            raise
        if not is_transient(error):
            raise damaged(path, KIND.title, error) from error
        raise transient_error(path, KIND.title, error) from error
