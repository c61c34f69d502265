"""Conversion of rows and columns to HBase's form and back. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bookkeeper.metadata.metadata_table import Cell, Column, Row


def family_names(families: Iterable[str]) -> list[bytes]:
    """Families as HBase expects them."""
    return [family.encode() for family in families]


def column_name(column: Column) -> bytes:
    """A column as HBase names it."""
    return column.family.encode() + b":" + column.qualifier


def column_range(start: bytes, stop: bytes) -> bytes:
    """HBase's filter language: qualifiers from ``start`` (included) to ``stop`` (excluded)."""
    quoted = [b"'" + bound.replace(b"'", b"''") + b"'" for bound in (start, stop)]
    return b"ColumnRangeFilter (" + quoted[0] + b", true, " + quoted[1] + b", false)"


def rows_of(found: Iterable[Any]) -> list[Row]:
    """HBase's rows as :class:`Row`; equal columns share one object."""
    columns: dict[bytes, Column] = {}
    return [
        Row(row.row, {_column(name, columns): Cell(cell.timestamp, cell.value) for name, cell in row.columns.items()})
        for row in found
    ]


def parts_of(found: Iterable[Any], cells: int) -> list[Row]:
    """HBase's rows as parts of at most so many cells, in the order of the columns' names."""
    parts = []
    for row in found:
        names = sorted(row.columns)
        for first in range(0, len(names), cells):
            some = ((name, row.columns[name]) for name in names[first : first + cells])
            parts.append(Row(row.row, {_parse_column(name): Cell(cell.timestamp, cell.value) for name, cell in some}))
    return parts


def _column(name: bytes, columns: dict[bytes, Column]) -> Column:
    column = columns.get(name)
    if column is None:
        column = columns[name] = _parse_column(name)
    return column


def _parse_column(name: bytes) -> Column:
    family, _, qualifier = name.partition(b":")
    return Column(family.decode(), qualifier)


def bytes_of(rows: Iterable[Row]) -> int:
    """The size of the keys and values of rows."""
    return sum(len(row.key) + sum(len(cell.value) for cell in row.cells.values()) for row in rows)
