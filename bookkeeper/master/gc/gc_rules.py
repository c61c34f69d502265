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

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from bookkeeper.bulk.adoption import is_adoptable
from bookkeeper.errors import CorruptionError
from bookkeeper.master.calls.tservers import session_of_log
from bookkeeper.master.gc.file_flags import LISTED, MARKED, REFERENCED, SEALED, FileFlags
from bookkeeper.master.index.log_files import LogFile
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, Column, Row

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
    first_holds: Iterable[Row] = (),
) -> Iterator[bytes]:
    """Every file that a `log:`, `segment:` or `repl:` cell of a tablet, a needed cell of a `~repl_` row, a range in
    quarantine or a hold names; a file may come several times. Read in this order, ``first_holds`` before all: a hold
    may end when a tablet names its file, and a range and a hold have their row before the other references to their
    file end.

    Of a remnant only `repl:` cells count: a tablet was merged when it needed no log, and its segments are in the row of
    the merged tablet. Rule R3: done cells don't count.
    """
    for file in held_files(first_holds):
        yield file.encode()
    for row in tablet_rows:
        families = ("log", "segment", "repl") if keys.is_tablet(row) else ("repl",)
        for column in row.cells:
            if column.family in families:
                yield column.qualifier
    for row in books_rows:
        if any(column.family == "repl" for column in row.cells):
            yield keys.parse_repl_row(row.key).encode()
    for row in quarantine_rows:
        yield keys.parse_quar_row(row.key).encode()
    for file in held_files(hold_rows):
        yield file.encode()


def held_files(rows: Iterable[Row]) -> Iterator[str]:
    """The files of `~hold_` rows."""
    for row in rows:
        yield keys.parse_hold_row(row.key)


class Holders(Struct, frozen=True):
    """The possible holders of files, read after the holds, because each one is there before it holds a file: the
    operations that run, live tservers, and whether a log is there. ``leaving``: sessions of tservers that are over, and
    whose puts may still be in flight.
    """

    operations: Collection[str]
    live: Collection[str]
    leaving: Collection[str]
    has_log: Callable[[str], bool]

    def keep(self, column: Column) -> bool:
        """Rule R4: whether the holder of a cell of a `~hold_` row needs it still. A tserver that names a file holds it
        until its put can't be in flight any more; the others protect a file from what comes after them.
        """
        if column.family == keys.TAKING_FAMILY:
            session = keys.parse_taking(column.qualifier)
            return session in self.live or session in self.leaving
        if column.family == "recv":
            return keys.parse_arrival(column.qualifier) in self.live
        if column.family == "log":
            return self.has_log(keys.parse_log_hold(column.qualifier))
        return keys.parse_hold_column(column.qualifier) in self.operations


def dead_takers(rows: Iterable[Row], live: Collection[str]) -> set[str]:
    """The sessions that are over and hold a file that a tablet was to name."""
    columns = (column for row in rows for column in row.cells if column.family == keys.TAKING_FAMILY)
    return {session for column in columns if (session := keys.parse_taking(column.qualifier)) not in live}


def is_collectable_log(log: LogFile, referenced: Collection[str], writers: Collection[str]) -> bool:
    """Rule R17: whether the log has no reference and can never get one: it is sealed, or none of ``writers`` made it.

    An unreferenced file of a live session may be new. One of a dead session on record waits for its recovery, which
    seals it: until then a process whose machine was paused, with its clock, counts on its lease and acknowledges
    records.
    """
    return log.name not in referenced and (log.sealed or log.session not in writers)


def to_mark(files: FileFlags, writers: Collection[str], unread: Collection[str] = ()) -> Iterator[str]:
    """Logs that get a `~del_` row now. ``unread``: sessions whose listing is incomplete."""
    for file, flags in files:
        is_free = flags & LISTED and not flags & (MARKED | REFERENCED)
        if is_free and is_collectable_log(log_of(file, flags), (), writers) and is_read(file, unread):
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


def to_delete(files: FileFlags, writers: Collection[str], unread: Collection[str] = ()) -> Iterator[str]:
    """Marked files without a reference. Logs were listed before the references were read.

    Besides logs these are segments, which tservers and deletions of tables mark when no tablet names them any more, and
    files that do not exist any more. A segment that several tablets may take stays for longer: see :func:`idle_files`.
    ``unread``: as in :func:`to_mark`.
    """
    for file, flags in files:
        if flags & MARKED and not flags & REFERENCED and may_delete(file, flags, writers) and is_read(file, unread):
            yield file.decode()


def idle_files(known: Mapping[str, int], files: FileFlags, writers: Collection[str], now_ns: int) -> dict[str, int]:
    """Rule R4: of the files that tablets take by name, those that could be deleted, with the time when nothing needed
    them first (boot clock, ns). A compaction of one tablet marks a file that another one may name late: by a put in
    flight, or on the word of a hold in flight.
    """
    return {file: known.get(file, now_ns) for file in filter(is_adoptable, to_delete(files, writers))}


def may_delete(file: bytes, flags: int, writers: Collection[str]) -> bool:
    """For a file without references: a log also has to satisfy rule R17."""
    return not flags & LISTED or is_collectable_log(log_of(file, flags), (), writers)


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
