"""Cells in SQLite: the table, the statements, and the checks of records that a read returns.

Each cell is one record: its highest rank, that rank's value, and the highest tombstone; a checksum of the value, NULL
while the tombstone hides it, and a checksum of the tombstone. So any flipped bit, also one that would hide a cell or
show a hidden one, raises CorruptionError and never returns a wrong cell. Law: L7.
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
"""Most cells of one call in one transaction; a larger row is not divided."""

PAGE_CELLS_FIRST, PAGE_CELLS, PAGE_BYTES = 64, 4_000, 1024 * 1024
"""A page of a scan ends with the row that reaches this number of cells or bytes. The first page is small, because some
readers need one row only; later pages grow.
"""

PART_CELLS = 1_000
"""Cells in a part of a long row; a shorter row is one part."""

KIND = FileKind(
    title="metadata table",
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
"""When two processes claim a table, the value of the first one stays."""

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
NOTES_SQL = "CREATE TEMP TABLE noted (row BLOB, family TEXT, qualifier BLOB, tombstone INTEGER)"
"""The hidden cells that a compaction has found; of one connection, in a temporary file of SQLite."""
NOTE_HIDDEN_SQL = (
    "INSERT INTO temp.noted SELECT row, family, qualifier, tombstone FROM cells"
    f" WHERE rank <= tombstone AND value_sum IS NULL LIMIT {20 * CHUNK_CELLS}"
)
FORGET_SQL = "DELETE FROM temp.noted"
COMPACT_SQL = (
    "DELETE FROM cells WHERE rank <= tombstone AND value_sum IS NULL AND (row, family, qualifier, tombstone) IN"
    " (SELECT row, family, qualifier, tombstone FROM temp.noted WHERE rowid > ? AND rowid <= ?)"
)
"""Drops noted cells that nothing has changed since: a later delete raises the tombstone."""

Record = tuple[bytes, str, bytes, int, bytes, int, int | None, int]


def value_sum(row: bytes, family: str, qualifier: bytes, rank: int, value: bytes) -> int:
    """Checksum of a visible cell."""
    return crc32(value, crc32(qualifier, crc32(row, crc32(family.encode(), (rank ^ rank >> 32) & 0xFFFFFFFF))))


def tombstone_sum(row: bytes, family: str, qualifier: bytes, tombstone: int) -> int:
    """Checksum of a tombstone, 0 for none."""
    return value_sum(row, family, qualifier, tombstone, b"-") if tombstone else 0


def put_parameters(row: RowPut, rank: int) -> list[tuple[Any, ...]]:
    """The parameters of PUT_SQL for each cell of a row."""
    key = row.key
    return [
        (key, c.family, c.qualifier, rank, value, value_sum(key, c.family, c.qualifier, rank, value))
        for c, value in row.values.items()
    ]


def delete_parameters(cells: Sequence[CellKey], rank: int) -> list[tuple[Any, ...]]:
    """The parameters of DELETE_SQL for each cell."""
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
    """Whether a visible record matches its checksums, and no tombstone hides it."""
    row, family, qualifier, rank, value, tombstone, found, found_tombstone = record
    return (
        rank > tombstone
        and found == value_sum(row, family, qualifier, rank, value)
        and found_tombstone == tombstone_sum(row, family, qualifier, tombstone)
    )


def is_sound_tombstone(record: Record) -> bool:
    """Whether a hidden record matches its checksum."""
    row, family, qualifier, _, value, tombstone, _, found = record
    return not value and found == tombstone_sum(row, family, qualifier, tombstone)


def refuse_unsound(path: Path, record: Record, sound: Callable[[Record], bool]) -> None:
    """Raise CorruptionError for a damaged record."""
    try:
        is_valid = sound(record)
    except (TypeError, AttributeError) as error:  # a flipped bit changed a type
        raise unsound(path, record) from error
    if not is_valid:
        raise unsound(path, record)


def unsound(path: Path, record: Record) -> CorruptionError:
    """The error that names the cell."""
    where = f"{record[0]!r} {record[1]}:{record[2]!r}"[:200]
    return damaged(path, KIND.title, f"the cell {where} does not match its checksum")


def check_records(path: Path, connection: sqlite3.Connection) -> None:
    """Read and check all records, also hidden ones. Raises CorruptionError."""
    for sql, sound in ((SELECT_SQL, is_sound), (HIDDEN_SQL, is_sound_tombstone)):
        with closing(connection.execute(sql)) as cursor:
            for record in cursor:
                refuse_unsound(path, record, sound)


def read_page(
    path: Path, connection: sqlite3.Connection, sql: str, parameters: Sequence[Any], page_cells: int = PAGE_CELLS
) -> tuple[list[Row], bytes | None]:
    """The rows of one page, from one snapshot, and the key of the next page (None: the end)."""
    with closing(connection.execute(sql, parameters)) as cursor:
        return next(_pages_of(path, cursor, None, page_cells))


def read_parts(
    path: Path, connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]
) -> Generator[tuple[list[Row], bytes | None]]:
    """As :func:`read_page`, but a long row is returned in several parts from the same snapshot: each part ends a list
    of rows, and only the last list has the key of the next page.
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
