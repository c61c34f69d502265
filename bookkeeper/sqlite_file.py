"""The SQLite files of a cluster: whose they are, and whether they are whole, before anything in them is believed.

Arrives: a file that is opened. Leaves: nothing, or CorruptionError that names the file, the reason and the next step.
SQLite notices damage where it breaks the form of a page, not a flipped bit inside of a value; and of its write-ahead
file (``-wal``, what a killed process leaves) it passes over everything from the first bad frame on. So checksums of
our own lie beside what counts, pages are compared with each other when a cluster starts, and a frame that is bad
although a later transaction follows it is said. Nothing is changed on disk but by :func:`claim`, in a new file.
Layout of the write-ahead file: https://sqlite.org/fileformat2.html, "The Write-Ahead Log". Law: L7.
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.errors import CorruptionError, IncompatibleError, NoSpaceError, UnavailableError

JOURNAL_SUFFIX = "-wal"
PASSING_CODES = frozenset(
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
"""What a call may meet although the file is whole. Our statements fit our schema: all else is damage."""

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = {0x377F0682: "<", 0x377F0683: ">"}
"""First word of a write-ahead file, and the byte order of its checksums."""


@dataclass(frozen=True, slots=True)
class FileKind:
    """One kind of file: what people call it, SQLite's application id, version, and the statements that make it."""

    what: str
    application_id: int
    version: int
    schema: tuple[str, ...]


def damaged(path: Path, what: str, reason: object) -> CorruptionError:
    """The error for a file that is not as it was written."""
    text = f"the {what} {path} is damaged: {reason}; stop the cluster and restore its directory from a backup"
    return CorruptionError(text, {"file": str(path), "reason": str(reason)})


def passes(error: sqlite3.DatabaseError) -> bool:
    """Whether the call may succeed later: the file is busy, its disk is full, or it can't be reached now."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in PASSING_CODES


def passing(path: Path, what: str, error: sqlite3.DatabaseError) -> UnavailableError:
    """The error for a call that may succeed later; a full disk is told as one."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
        text = f"the disk of the {what} {path} is full ({error}); make room there, and it goes on by itself"
        return NoSpaceError(text)
    return UnavailableError(f"the {what} {path} can't be used now: {error}")


def is_new(connection: sqlite3.Connection, path: Path, kind: FileKind) -> bool:
    """Whether a file is empty; else it is one of this kind. Raises CorruptionError (a foreign or damaged file),
    IncompatibleError, and what SQLite raises.
    """
    with transaction(connection, "DEFERRED"):  # one moment: somebody else may be making the tables
        return _is_new(connection, path, kind)


def claim(connection: sqlite3.Connection, path: Path, kind: FileKind) -> None:
    """Make an empty file one of this kind, or check that it is one. Raises as :func:`is_new`."""
    if is_new(connection, path, kind):
        with transaction(connection):
            if _is_new(connection, path, kind):  # nobody else was faster
                for statement in kind.schema:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {kind.application_id}")
                connection.execute(f"PRAGMA user_version = {kind.version}")


@contextmanager
def transaction(connection: sqlite3.Connection, behaviour: str = "IMMEDIATE") -> Iterator[None]:
    """One transaction: committed when the block ends, rolled back when it raises. ``behaviour``: as SQLite's ``BEGIN``
    has it; DEFERRED, of reads alone, sees one moment.
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
        raise damaged(path, kind.what, "it is a database of something else")
    if found[1] != kind.version:
        raise IncompatibleError(f"{path} has format {found[1]}; this version knows {kind.version} only")
    if schema != set(kind.schema):
        raise damaged(path, kind.what, "its tables are not those that were made")
    return False


def check_pages(connection: sqlite3.Connection, path: Path, what: str) -> None:
    """Compare all pages with each other; takes as long as reading the file. Raises CorruptionError."""
    problem = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    if problem != "ok":
        raise damaged(path, what, " ".join(problem.split()))


# ---- the write-ahead file


@dataclass(frozen=True, slots=True)
class _Frame:
    number: int
    salts: tuple[int, int]
    is_commit: bool
    stored: tuple[int, int]
    content: bytes
    """What the checksum is about: the first eight bytes of the frame's header, and the page."""


def check_journal(path: Path, what: str) -> None:
    """Before SQLite opens the database ``path``, with nobody else at work on it: whether all that is in its write-ahead
    file counts. Raises CorruptionError where a frame does not match its checksum and something follows it that was
    written when it had long been durable. A bad frame in the last transaction is what a power failure leaves.
    """
    journal = path.with_name(path.name + JOURNAL_SUFFIX)
    raw = journal.read_bytes() if journal.is_file() else b""
    if len(raw) < _HEADER.size:
        return
    bad = first_bad_frame(raw)
    if bad is not None:
        raise damaged(journal, f"write-ahead file of the {what}", f"frame {bad} does not match its checksum")


def first_bad_frame(raw: bytes) -> int | None:
    """The number of the first frame (from 1; 0 = the header) that is bad although it had been durable; or None."""
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
    """Whether a frame is proven behind the end of the transaction of ``bad``: each transaction is durable before the
    next one is written. A frame is proven by the checksum stored in the one before it.
    """
    last, ended = bad, bad is None or (bad.is_commit and bad.salts == salts)
    for frame in frames:
        ours = salts is None or frame.salts == salts
        if last is not None and ours and _sum(frame.content, last.stored, order) == frame.stored:
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
    """CRC-32 of a row: texts, bytes, numbers and nothing, told apart by their kind and length."""
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        seed = zlib.crc32(raw, zlib.crc32(b"%s %d" % (type(part).__name__.encode(), len(raw)), seed))
    return seed
