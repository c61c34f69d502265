"""The decisions of the collector: candidates for deletion, and candidates that may be deleted.

Arrives: the logs on disk, every reference in the books, live sessions, candidates marked before. Leaves: files to mark
with `~del_` and marked files to delete. A file is deleted only by a later run than the one that marked it; its done
cells follow, when the peers were told (rule R3). Pure; the next run repairs any cut.

A mark on a log is also a proof: when it was made, every record of the log was in segments of its tablets, and none
could follow. A tserver that was stopped in the middle of its put may write its first use of the log to the books later.
This use is void, because no record followed it; loading ignores its `log:` cell. The mark stays until no such put can
be in flight (rule R4). Rules: R3, R4, R7, R12 and R17; law L2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from bookkeeper.errors import CorruptionError
from bookkeeper.master.calls.tservers import session_of_log
from bookkeeper.master.gc.file_flags import LISTED, MARKED, REFERENCED, SEALED, FileFlags
from bookkeeper.master.index.log_files import LogFile
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, Row

IMPORT_KIND = "import_directory"
"""Kind of the operation that imports."""

USE_FAMILIES, REPL_FAMILIES = ("log", "segment", "tablet"), ("repl", "tablet")
"""Columns of tablet rows for the two reference scans; the second one reads long rows in parts. ``tablet`` is for the
chain of rule R16.
"""


def references(
    tablet_rows: Iterable[Row],
    books_rows: Iterable[Row],
    quarantine_rows: Iterable[Row] = (),
    hold_rows: Iterable[Row] = (),
) -> Iterator[bytes]:
    """Every file that a `log:`, `segment:` or `repl:` cell of a tablet, a needed cell of a `~repl_` row, a range in
    quarantine or a hold names; a file may come several times. Read in this order: a range and a hold have their row
    before the other references to their file end.

    Of a remnant only `repl:` cells count: a tablet was merged when it needed no log, and its segments are in the row of
    the merged tablet. Rule R3: done cells don't count.
    """
    for row in tablet_rows:
        families = ("log", "segment", "repl") if keys.is_tablet(row) else ("repl",)
        for column in row.cells:
            if column.family in families:
                yield column.qualifier
    for row in books_rows:
        if any(column.family == "repl" for column in row.cells):
            yield keys.parse_repl_row(row.key).encode()
    for file in quarantined_files(quarantine_rows):
        yield file.encode()
    for file in held_files(hold_rows):
        yield file.encode()


def held_files(rows: Iterable[Row]) -> Iterator[str]:
    """The files of `~hold_` rows: they stay while an operation reads them."""
    for row in rows:
        yield keys.parse_hold_row(row.key)


def ended_holds(rows: Iterable[Row], running: Collection[str]) -> list[CellKey]:
    """The cells of `~hold_` rows whose operation does not run. ``running`` was read after the rows: an operation runs
    before it holds a file. A late put of one is hidden by the purge, or seen by the next run (R4).
    """
    return [
        CellKey(row.key, column)
        for row in rows
        for column in row.cells
        if keys.parse_hold_column(column.qualifier) not in running
    ]


def quarantined_files(rows: Iterable[Row]) -> set[str]:
    """The files of `~quar_` rows: they stay while one of their ranges may be shipped again."""
    return {keys.parse_quar_row(row.key) for row in rows}


def is_collectable_log(log: LogFile, referenced: Collection[str], live: Collection[str]) -> bool:
    """Rule R17: whether the log has no reference and can never get one: it is sealed, or its session is dead.

    An unreferenced file of a live session may be new.
    """
    return log.uri not in referenced and (log.sealed or log.session not in live)


def to_mark(files: FileFlags, live: Collection[str], unread: Collection[str] = ()) -> Iterator[str]:
    """Logs that get a `~del_` row now. ``unread``: sessions whose listing is incomplete."""
    for file, flags in files:
        is_free = flags & LISTED and not flags & (MARKED | REFERENCED)
        if is_free and is_collectable_log(log_of(file, flags), (), live) and is_read(file, unread):
            yield file.decode()


def late_uses(row: Row, files: FileFlags) -> list[CellKey]:
    """The row's `log:` cells that came after the mark of their log (R4): to be purged, names are never used again."""
    return [
        CellKey(row.key, column)
        for column in row.cells
        if column.family == "log" and files.of(column.qualifier) & MARKED
    ]


def is_read(file: bytes, unread: Collection[str]) -> bool:
    """Rule R17: whether nothing about a file was left unread. A file of a host that is away may exist unlisted."""
    return not unread or session_of_log(file.decode()) not in unread


def to_delete(files: FileFlags, live: Collection[str], unread: Collection[str] = ()) -> Iterator[str]:
    """Marked files without a reference, which may be deleted now. Logs were listed before the references were read.

    Besides logs these are segments, which tservers and deletions of tables mark when no tablet names them any more, and
    files that do not exist any more. ``unread``: as in :func:`to_mark`.
    """
    for file, flags in files:
        if flags & MARKED and not flags & REFERENCED and may_delete(file, flags, live) and is_read(file, unread):
            yield file.decode()


def may_delete(file: bytes, flags: int, live: Collection[str]) -> bool:
    """For a file without references: a log also has to satisfy rule R17."""
    return not flags & LISTED or is_collectable_log(log_of(file, flags), (), live)


def log_of(file: bytes, flags: int) -> LogFile:
    """A log that was listed; its session is the directory that it is in."""
    return LogFile(file.decode(), session_of(file), bool(flags & SEALED))


def session_of(log: bytes) -> str:
    """The session that writes or wrote a log that was listed."""
    return log.rsplit(b"/", 2)[-2].decode()


def parse_marks(rows: Iterable[Row]) -> Iterator[str]:
    """The files of `~del_` rows. Raises CorruptionError."""
    for row in rows:
        if keys.DEL not in row.cells:
            raise CorruptionError(f"row {row.key!r} is no deletion candidate")
        yield keys.parse_del_row(row.key)
