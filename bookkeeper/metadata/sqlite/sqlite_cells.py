"""How a cell lies in SQLite: the table, the statements, and the checks of what is read.

Arrives: puts and deletes to write, records that were read. Leaves: statements and their parameters, or rows. Each cell
is one record: its highest rank, that rank's value, and the highest tombstone; a checksum for the value's side, NULL
while the tombstone hides it, and one for the tombstone. So a flipped bit anywhere, also one that would hide a cell or
show a hidden one, is CorruptionError instead of a wrong cell. Law: L7.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

from bookkeeper.errors import CorruptionError
from bookkeeper.metadata.metadata_table import Cell, CellKey, Column, Row, RowPut
from bookkeeper.sqlite_file import FileKind, damaged

CHUNK_CELLS = 5_000
"""Most cells that one transaction takes from one call; whole rows, so one row may exceed it."""

PAGE_CELLS_FIRST, PAGE_CELLS, PAGE_BYTES = 64, 4_000, 1024 * 1024
"""A page of a scan ends with the first whole row that reaches so many cells or bytes. The first page is small, because
some readers want one row only; those that follow grow.
"""

PART_CELLS = 1_000
"""Cells in a part of a long row; rows of fewer come whole."""

KIND = FileKind(
    what="metadata table",
    application_id=0x424B4D54,
    version=3,
    schema=(
        """CREATE TABLE cells (
        row BLOB NOT NULL, family TEXT NOT NULL, qualifier BLOB NOT NULL,
        rank INTEGER NOT NULL, value BLOB NOT NULL, tombstone INTEGER NOT NULL,
        value_sum INTEGER, tombstone_sum INTEGER NOT NULL,
        PRIMARY KEY (row, family, qualifier)
    ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX hidden ON cells (row, family, qualifier) WHERE rank <= tombstone",
    ),
)

PUT_SQL = (
    "INSERT INTO cells VALUES (?, ?, ?, ?, ?, 0, ?, 0) ON CONFLICT (row, family, qualifier) DO UPDATE"
    " SET rank = excluded.rank, value = excluded.value, value_sum = excluded.value_sum"
    " WHERE excluded.rank > tombstone AND (excluded.rank > rank OR (excluded.rank = rank AND excluded.value <> value))"
)
CLAIM_SQL = "INSERT INTO cells VALUES (?, ?, ?, ?, ?, 0, ?, 0) ON CONFLICT DO NOTHING"
"""Of two that claim a table, the first one's value stays."""

DELETE_SQL = (
    "INSERT INTO cells VALUES (?, ?, ?, 0, x'', ?, NULL, ?) ON CONFLICT (row, family, qualifier) DO UPDATE"
    " SET tombstone = excluded.tombstone, tombstone_sum = excluded.tombstone_sum,"
    " value = CASE WHEN rank > excluded.tombstone THEN value ELSE x'' END,"
    " value_sum = CASE WHEN rank > excluded.tombstone THEN value_sum END"
    " WHERE excluded.tombstone > tombstone"
)
SELECT_SQL = (
    "SELECT row, family, qualifier, rank, value, tombstone, value_sum, tombstone_sum FROM cells"
    " WHERE (rank > tombstone OR value_sum IS NOT NULL)"
)
ROW_SQL = f"{SELECT_SQL} AND row = ? ORDER BY family, qualifier"
SLICE_SQL = f"{SELECT_SQL} AND row = ? AND family = ? AND qualifier >= ? AND qualifier < ? ORDER BY qualifier"
HIDDEN_SQL = (
    "SELECT row, family, qualifier, rank, value, tombstone, value_sum, tombstone_sum FROM cells"
    " WHERE rank <= tombstone AND value_sum IS NULL"
)
COMPACT_SQL = (
    "DELETE FROM cells WHERE (row, family, qualifier) IN"
    f" (SELECT row, family, qualifier FROM cells WHERE rank <= tombstone AND value_sum IS NULL LIMIT {CHUNK_CELLS})"
)

Record = tuple[bytes, str, bytes, int, bytes, int, int | None, int]


def value_sum(row: bytes, family: str, qualifier: bytes, rank: int, value: bytes) -> int:
    """Checksum of a cell as it shows."""
    return crc32(value, crc32(qualifier, crc32(row, crc32(family.encode(), (rank ^ rank >> 32) & 0xFFFFFFFF))))


def tombstone_sum(row: bytes, family: str, qualifier: bytes, tombstone: int) -> int:
    """Checksum of a tombstone, 0 for none."""
    return value_sum(row, family, qualifier, tombstone, b"-") if tombstone else 0


def put_parameters(row: RowPut, rank: int) -> list[tuple[Any, ...]]:
    """What PUT_SQL needs for each cell of a row."""
    key = row.key
    return [
        (key, c.family, c.qualifier, rank, value, value_sum(key, c.family, c.qualifier, rank, value))
        for c, value in row.values.items()
    ]


def delete_parameters(cells: Sequence[CellKey], rank: int) -> list[tuple[Any, ...]]:
    """What DELETE_SQL needs for each cell."""
    return [
        (
            c.key,
            c.column.family,
            c.column.qualifier,
            rank,
            tombstone_sum(c.key, c.column.family, c.column.qualifier, rank),
        )
        for c in cells
    ]


def is_sound(record: Record) -> bool:
    """Whether a record that shows is as it was written, and may show."""
    row, family, qualifier, rank, value, tombstone, found, found_tombstone = record
    return (
        rank > tombstone
        and found == value_sum(row, family, qualifier, rank, value)
        and found_tombstone == tombstone_sum(row, family, qualifier, tombstone)
    )


def is_sound_tombstone(record: Record) -> bool:
    """Whether a record that a tombstone hides is as it was written."""
    row, family, qualifier, _, value, tombstone, _, found = record
    return not value and found == tombstone_sum(row, family, qualifier, tombstone)


def refuse_unsound(path: Path, record: Record, sound: Callable[[Record], bool]) -> None:
    """Raise CorruptionError for a record that is not as it was written."""
    try:
        good = sound(record)
    except (TypeError, AttributeError) as error:  # a flipped bit made another type of it
        raise unsound(path, record) from error
    if not good:
        raise unsound(path, record)


def unsound(path: Path, record: Record) -> CorruptionError:
    """The error that names the cell."""
    where = f"{record[0]!r} {record[1]}:{record[2]!r}"[:200]
    return damaged(path, KIND.what, f"the cell {where} does not match its checksum")


def check_records(path: Path, connection: sqlite3.Connection) -> None:
    """Read all there is, hidden or not. Raises CorruptionError."""
    for sql, sound in ((SELECT_SQL, is_sound), (HIDDEN_SQL, is_sound_tombstone)):
        with closing(connection.execute(sql)) as cursor:
            for record in cursor:
                refuse_unsound(path, record, sound)


def read_page(
    path: Path, connection: sqlite3.Connection, sql: str, parameters: Sequence[Any], page_cells: int = PAGE_CELLS
) -> tuple[list[Row], bytes | None]:
    """Step through one statement, which sees one moment, until a row ends beyond the limits of a page."""
    with closing(connection.execute(sql, parameters)) as cursor:
        return next(_pages_of(path, cursor, None, page_cells))


def cells_of_next_page(page_cells: int) -> int:
    """How many cells the page behind one of so many has."""
    return min(8 * page_cells, PAGE_CELLS)


def read_parts(
    path: Path, connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]
) -> Generator[tuple[list[Row], bytes | None]]:
    """As :func:`read_page`, but where a row is long there is more to come of the same moment: each part of it ends what
    is handed over, and only with the last comes where to go on.
    """
    with closing(connection.execute(sql, parameters)) as cursor:
        yield from _pages_of(path, cursor, PART_CELLS, PAGE_CELLS)


def _pages_of(
    path: Path, records: Iterable[Record], part_cells: int | None, page_cells: int
) -> Generator[tuple[list[Row], bytes | None]]:
    rows: list[Row] = []
    columns: dict[tuple[str, bytes], Column] = {}
    key: bytes | None = None
    cells: dict[Column, Cell] = {}
    cells_left, bytes_left = page_cells, PAGE_BYTES
    for record in records:
        refuse_unsound(path, record, is_sound)
        row, family, qualifier, rank, value, *_ = record
        if row != key:
            if cells_left <= 0 or bytes_left <= 0:
                yield rows, row
                return
            key, cells = row, {}
            rows.append(Row(row, cells))
        elif len(cells) == part_cells:
            yield rows, None
            cells, columns = {}, {}
            rows = [Row(row, cells)]
        column = columns.get((family, qualifier))
        if column is None:
            column = columns[family, qualifier] = Column(family, qualifier)
        cells[column] = Cell(rank, value)
        cells_left -= 1
        bytes_left -= len(row) + len(qualifier) + len(value)
    yield rows, None
