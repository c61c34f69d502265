"""RemoveCompleteReplicationRecords: the choice of complete files, and the order of the deletes of their cells.

Arrives: the joined files and rows of this cycle, the facts that the cycle before had, and the files that are missing on
disk. Leaves: files whose `repl` columns are purged and whose needed cells are then deleted; rows without `repl` columns
whose needed cells are deleted; books of files that have been missing for long. A crash between the two deletes leaves a
row without `repl` columns, which a later cycle finds. Rules: R1-R4, R7 and R9.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping

from msgspec import Struct

from bookkeeper.master.books.finished import is_complete
from bookkeeper.master.index.file_entry import FileEntry
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, Column, Row


def is_removable(entry: FileEntry, cycle: int) -> bool:
    """Whether the file is complete, and this leader may act on it (rule R7): an earlier cycle of this reign read the
    file as CLOSED, and this one read the configuration later.

    So the configuration names every target that any block of the file can have. Ranks fence writes, but they can't
    fence deletes.
    """
    return 0 < entry.closed_in < cycle and is_complete(entry)


def is_orphan(file: bytes, previous: Container[bytes] | None) -> bool:
    """Whether a crash between the two deletes left a `~repl_` row without `repl` columns.

    Rule R7: the previous cycle of the same reign (None: there was none) must have found no columns either.
    """
    return previous is not None and file not in previous


def repl_cells(rows: Iterable[Row], files: Container[bytes]) -> Iterator[CellKey]:
    """The second scan: the `repl:` cells of ``files`` on all tablets."""
    for row in rows:
        for column in row.cells:
            if column.family == "repl" and column.qualifier in files:
                yield CellKey(row.key, column)


def needed_cells(row: Row) -> list[CellKey]:
    """The needed cells of a `~repl_` row, to be deleted at the deciding cycle's rank (rule R2).

    Rule R3: the done cells stay until the file itself is gone.
    """
    return [CellKey(row.key, column) for column in row.cells if column.family == "repl"]


def written_cells(files: Iterable[tuple[bytes, FileEntry]]) -> Iterator[CellKey]:
    """The needed cells that files have for their targets, also those that this cycle's join has just written: a delete
    at a rank hides that rank.
    """
    for file, entry in files:
        key = keys.REPL_PREFIX + file
        for column in entry.scope.columns:
            yield CellKey(key, column)


class MissingFile(Struct, frozen=True):
    """Books that name a missing file, and the time (boot clock, ns) at which this reign noticed it."""

    file: bytes
    since_ns: int


def note_missing(
    known: Mapping[bytes, MissingFile], named: Iterable[bytes], existing: Collection[bytes], now_ns: int
) -> dict[bytes, MissingFile]:
    """The files named in the books that do not exist, with the time of the first notice."""
    missing = {}
    for file in named:
        if file not in existing:
            missing[file] = known.get(file) or MissingFile(file, now_ns)
    return missing


def is_void(missing: MissingFile, now_ns: int, flight_ns: int) -> bool:
    """Rule R4: whether the file is missing for longer than any write can be in flight, so that a purge is final."""
    return now_ns - missing.since_ns > flight_ns


def all_cells(row: Row, families: Collection[str]) -> list[CellKey]:
    """Every cell of these families in a row."""
    return [CellKey(row.key, Column(c.family, c.qualifier)) for c in row.cells if c.family in families]
