"""Checks of the SQLite files of a cluster, before a process uses their content: the kind of file, and its integrity.

CorruptionError names the file, the reason and the next step. SQLite notices damage to the form of a page, but not a
flipped bit in a value; and in its write-ahead file (``-wal``, left by a killed process) it ignores all frames from the
first bad one on. So each record has a checksum of its own, a starting cluster compares the pages with each other, and a
bad frame before a later transaction is an error. Only :func:`claim` changes a file, and only a new one. Layout of the
write-ahead file: https://sqlite.org/fileformat2.html, "The Write-Ahead Log". Law: L7.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from bookkeeper.errors import CorruptionError, IncompatibleError, NoSpaceError, UnavailableError
from bookkeeper.file_locks import exclusive_locks, process_text

JOURNAL_SUFFIX = "-wal"
LOCKS_SUFFIX = "-shm"
WRITE_LOCK = 120
"""The byte of the file of locks that a writer locks in write-ahead mode."""
TRANSIENT_CODES = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_PERM,
    }
)
"""Error codes of a call on an undamaged file. All statements fit the schema, so any other code means damage."""

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = {0x377F0682: "<", 0x377F0683: ">"}
"""The magic number of a write-ahead file, and the byte order of its checksums."""


class FileKind(Struct, frozen=True):
    """One kind of file: its name in messages, SQLite's application id, version, and the statements that create it."""

    title: str
    application_id: int
    version: int
    schema: tuple[str, ...]


def damaged(path: Path, title: str, reason: object) -> CorruptionError:
    """The error for a damaged file."""
    text = f"the {title} {path} is damaged: {reason}; stop the cluster and restore its directory from a backup"
    return CorruptionError(text, {"file": str(path), "reason": str(reason)})


def is_transient(error: sqlite3.DatabaseError) -> bool:
    """Whether the call may succeed later: the file is busy, its disk is full, or it can't be reached now."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in TRANSIENT_CODES


def transient_error(path: Path, title: str, error: sqlite3.DatabaseError) -> UnavailableError:
    """The error for a call that may succeed later; NoSpaceError when the disk is full. Of a locked file it names the
    process that keeps the lock.
    """
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and (holder := holder_of(path)) is not None:
        text = f"the {title} {path} can't be used now: {process_text(holder)} keeps it locked"
        return UnavailableError(f"{text}; end its transaction, or that process")
    if code == sqlite3.SQLITE_FULL:
        text = f"the disk of the {title} {path} is full ({error}); make room there, and it continues by itself"
        return NoSpaceError(text)
    return UnavailableError(f"the {title} {path} can't be used now: {error}")


def holder_of(path: Path) -> int | None:
    """Another process that has the right to write to the database, or has it alone; None: none is known."""
    found = [lock for lock in exclusive_locks(path.with_name(path.name + LOCKS_SUFFIX)) if lock.has(WRITE_LOCK)]
    return next((lock.pid for lock in (*found, *exclusive_locks(path)) if lock.pid != os.getpid()), None)


def is_new(connection: sqlite3.Connection, path: Path, kind: FileKind) -> bool:
    """Whether a file is empty; a file that is not empty is of this kind. Raises CorruptionError (a foreign or damaged
    file), IncompatibleError, and what SQLite raises.
    """
    with transaction(connection, "DEFERRED"):  # one snapshot: another process may create the tables now
        return _is_new(connection, path, kind)


def claim(connection: sqlite3.Connection, path: Path, kind: FileKind) -> None:
    """Create the tables in an empty file, or check that the file is of this kind. Raises as :func:`is_new`."""
    if is_new(connection, path, kind):
        with transaction(connection):
            if _is_new(connection, path, kind):  # no other process was faster
                for statement in kind.schema:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {kind.application_id}")
                connection.execute(f"PRAGMA user_version = {kind.version}")


@contextmanager
def transaction(connection: sqlite3.Connection, behaviour: str = "IMMEDIATE") -> Iterator[None]:
    """One transaction: committed when the block ends, rolled back when it raises. ``behaviour`` is that
    of SQLite's ``BEGIN``; DEFERRED, with reads only, sees one snapshot.
    """
    connection.execute(f"BEGIN {behaviour}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _is_new(connection: sqlite3.Connection, path: Path, kind: FileKind) -> bool:
    found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    schema = {row[0] for row in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")}
    if found == [0, 0] and not schema:
        return True
    if found[0] != kind.application_id and not (found[0] == 0 and 0 < found[1] < kind.version):
        raise damaged(path, kind.title, "it is a database of another program")
    if found[1] != kind.version:
        raise IncompatibleError(f"{path} has format {found[1]}; this version supports {kind.version} only")
    if schema != set(kind.schema):
        raise damaged(path, kind.title, "its tables are not those of this version")
    return False


def check_pages(connection: sqlite3.Connection, path: Path, title: str) -> None:
    """Compare all pages with each other; takes as long as reading the file. Raises CorruptionError."""
    problem = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    if problem != "ok":
        raise damaged(path, title, " ".join(problem.split()))


# ---- the write-ahead file


class _Frame(Struct, frozen=True):
    number: int
    salts: tuple[int, int]
    is_commit: bool
    stored: tuple[int, int]
    content: bytes
    """The bytes under the checksum: the first eight bytes of the frame's header, and the page."""


def check_journal(path: Path, title: str) -> None:
    """Check the write-ahead file of the database ``path`` before SQLite opens it, while no other process uses it.
    Raises CorruptionError when a bad frame precedes a later transaction, because the frame was durable before that was
    written. A power failure may leave a bad frame in the last transaction.
    """
    journal = path.with_name(path.name + JOURNAL_SUFFIX)
    raw = journal.read_bytes() if journal.is_file() else b""
    if len(raw) < _HEADER.size:
        return
    bad = first_bad_frame(raw)
    if bad is not None:
        raise damaged(journal, f"write-ahead file of the {title}", f"frame {bad} does not match its checksum")


def first_bad_frame(raw: bytes) -> int | None:
    """The number of the first bad frame (from 1; 0 = the header) that was durable; None when there is none."""
    magic, _, page_bytes, _, *salts, first, second = _HEADER.unpack_from(raw)
    order = _MAGIC.get(magic, "<")
    sound = magic in _MAGIC and _sum(raw[:24], (0, 0), order) == (first, second)
    if not sound:
        return 0 if _follows(_frames(raw, 4096), None, "<") else None
    frames = _frames(raw, page_bytes)
    seed = (first, second)
    for frame in frames:
        if list(frame.salts) != salts or _sum(frame.content, seed, order) != frame.stored:
            return frame.number if _follows(frames, frame, order, (salts[0], salts[1])) else None
        seed = frame.stored
    return None


def _frames(raw: bytes, page_bytes: int) -> Iterator[_Frame]:
    size = _FRAME.size + page_bytes
    for number, start in enumerate(range(_HEADER.size, len(raw) - size + 1, size), 1):
        _, pages, salt1, salt2, first, second = _FRAME.unpack_from(raw, start)
        content = raw[start : start + 8] + raw[start + _FRAME.size : start + size]
        yield _Frame(number, (salt1, salt2), pages != 0, (first, second), content)


def _follows(frames: Iterator[_Frame], bad: _Frame | None, order: str, salts: tuple[int, int] | None = None) -> bool:
    """Whether a valid frame follows the transaction of ``bad``: each transaction is durable before SQLite writes the
    next one. A frame is valid when its checksum continues the checksum of the frame before it.
    """
    last, ended = bad, bad is None or (bad.is_commit and bad.salts == salts)
    for frame in frames:
        same_log = salts is None or frame.salts == salts
        if last is not None and same_log and _sum(frame.content, last.stored, order) == frame.stored:
            if ended:
                return True
            ended = frame.is_commit
        last = frame
    return False


def _sum(content: bytes, seed: Sequence[int], order: str) -> tuple[int, int]:
    first, second = seed
    for low, high in struct.iter_unpack(f"{order}2I", content):
        first = (first + low + second) & 0xFFFFFFFF
        second = (second + high + first) & 0xFFFFFFFF
    return first, second


# ---- checksums of our own


def row_sum(parts: Sequence[object], seed: int = 0) -> int:
    """CRC-32 of a row of texts, bytes, numbers and None; the type and the length of each part count."""
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        seed = zlib.crc32(raw, zlib.crc32(b"%s %d" % (type(part).__name__.encode(), len(raw)), seed))
    return seed
