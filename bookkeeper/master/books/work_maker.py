"""WorkMaker: the needed cell of each outstanding file for each configured target.

Arrives: the snapshot's files in order and, streamed beside them, the `~repl_` rows. Leaves: for each file the cells to
write and to delete in its row (only changes), and the progress of its targets. A crash anywhere does no harm: every
value is a fact that the next cycle finds again, every delete is at the rank of the cycle that decided it. Rules: R1,
R2, R5 and R9.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from bookkeeper.errors import CorruptionError
from bookkeeper.master.books.finished import read_done
from bookkeeper.master.index.file_entry import FileEntry, merge_statuses
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, Column, Row, RowPut
from bookkeeper.model import TargetKey

BOOKS_FAMILIES = ("repl", "done")
"""The columns that the join reads of each `~repl_` row."""

_PREFIX_LENGTH = len(keys.REPL_PREFIX)
_NO_MORE: tuple[bytes, FileEntry | None] = (b"", None)


class RowChange(Struct, frozen=True):
    """The changes of one `~repl_` row, all at the cycle's rank: needed values to write, needed cells to delete."""

    key: bytes
    puts: Mapping[Column, bytes]
    deletes: Sequence[CellKey]

    def put(self) -> RowPut | None:
        """The row's put, or None when there is nothing to write."""
        return RowPut(self.key, self.puts) if self.puts else None


class RankWatch(Struct):
    """The highest rank of the needed cells read (rule R8). Done cells have ranks of their own."""

    highest: int = 0

    def observe(self, row: Row) -> None:
        """Take a `~repl_` row into account."""
        for column, cell in row.cells.items():
            if column.family == "repl":
                self.meet(cell.rank)

    def meet(self, rank: int) -> None:
        """Take the rank of one needed cell into account."""
        self.highest = max(self.highest, rank)


Joined = tuple[bytes, FileEntry | None, Row | None]
"""A file with its entry of the snapshot, its `~repl_` row, or both."""


def join(files: Outstanding, rows: Iterable[Row]) -> Iterator[Joined]:
    """Merge-join: the snapshot in order of files beside the `~repl_` rows, which are streamed in the same order."""
    ordered = files.in_order()
    file, entry = next(ordered, _NO_MORE)
    for row in rows:
        row_file = row.key[_PREFIX_LENGTH:]
        while entry is not None and file < row_file:
            yield file, entry, None
            file, entry = next(ordered, _NO_MORE)
        if entry is not None and file == row_file:
            yield file, entry, row
            file, entry = next(ordered, _NO_MORE)
        else:
            yield row_file, None, row
    while entry is not None:
        yield file, entry, None
        file, entry = next(ordered, _NO_MORE)


def make_work(
    entry: FileEntry, row: Row | None, configured: Collection[TargetKey], watch: RankWatch, problems: list[str]
) -> RowChange | None:
    """The change that a file's row needs, None when none. Also updates ``entry.progress``: the rank of a done cell
    gives its finished offset, so a cell at the rank of the present offset adds nothing (rule R1).

    ``configured`` are the targets of all tables: columns of others are deleted.
    """
    if row is None:
        puts: dict[Column, bytes] = dict.fromkeys(entry.scope.columns, entry.status)
        return RowChange(keys.REPL_PREFIX + entry.file, puts, ()) if puts else None
    index_by_qualifier = entry.scope.index_by_qualifier
    missing = len(index_by_qualifier)
    changed: dict[Column, bytes] = {}
    unconfigured: list[Column] = []
    for column, cell in row.cells.items():
        index = index_by_qualifier.get(column.qualifier)
        if column.family == "done":
            if index is not None and cell.rank != keys.done_rank(entry.finished_at(index)):
                entry.advance(index, read_done(cell, entry.file, problems))
            continue
        if cell.rank > watch.highest:
            watch.meet(cell.rank)
        if index is None:
            unconfigured.append(column)
            continue
        missing -= 1
        if not entry.says(cell.value):
            value = changed_value(cell.value, entry.status)
            if value is not None:
                changed[column] = value
    if missing:
        changed |= {column: entry.status for column in entry.scope.columns if column not in row.cells}
    if not changed and not unconfigured:
        return None
    deletes = [CellKey(row.key, column) for column in unconfigured if is_unconfigured(column, configured)]
    return RowChange(row.key, changed, deletes) if changed or deletes else None


def changed_value(written: bytes, status: bytes) -> bytes | None:
    """The needed value to write, or None when the cell has it already (messages are compared, not only bytes).

    The present value is folded in, so a fact of another leader is not lost below a higher rank.
    """
    if written == status:
        return None
    before = merge_statuses(written)
    after = merge_statuses(written, status)
    return None if after == before else after.SerializeToString(deterministic=True)


def is_unconfigured(column: Column, configured: Collection[TargetKey]) -> bool:
    """Rule R9: a needed cell is deleted when its target is no longer configured. Rule R5: the whole key decides."""
    try:
        return keys.parse_target(column.qualifier) not in configured
    except CorruptionError:
        return True
