"""Acts of an operator on an HBase table behind a cluster's back: copy it, drop it, empty it, put a copy back.

Arrives: a running HBase and a table's name. Leaves: :class:`TableCopy`: every cell with its rank, as in a snapshot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import happybase

from bookkeeper.metadata.hbase.hbase_table import ALL_FAMILIES
from tests.support.hbase import HBaseInstance

TIMEOUT_MS = 120_000
Cells = dict[int, dict[bytes, dict[bytes, bytes]]]
"""Rank to row to column to value."""


@contextmanager
def connected(hbase: HBaseInstance) -> Iterator[happybase.Connection]:
    """A connection that asks for no owner."""
    connection = happybase.Connection(hbase.host, hbase.thrift_port, timeout=TIMEOUT_MS)
    try:
        yield connection
    finally:
        connection.close()


def tables(hbase: HBaseInstance) -> set[str]:
    """The names of all tables."""
    with connected(hbase) as connection:
        return {name.decode() for name in connection.tables()}


@dataclass(frozen=True, slots=True)
class TableCopy:
    """All cells of a table at one moment, nothing written in between."""

    hbase: HBaseInstance
    table: str
    cells: Cells

    @classmethod
    def of(cls, hbase: HBaseInstance, table: str) -> TableCopy:
        """Copy a table."""
        cells: Cells = defaultdict(lambda: defaultdict(dict))
        with connected(hbase) as connection:
            for row, columns in connection.table(table).scan(include_timestamp=True):
                for column, (value, rank) in columns.items():
                    cells[rank][row][column] = value
        return cls(hbase, table, cells)

    def drop(self) -> None:
        """Drop the table."""
        with connected(self.hbase) as connection:
            connection.delete_table(self.table, disable=True)

    def put_back(self, cells: Cells | None = None) -> None:
        """Make the table anew with what was copied, or with these cells."""
        with connected(self.hbase) as connection:
            connection.create_table(self.table, {name: {"max_versions": 1} for name in ALL_FAMILIES})
            for rank, rows in (self.cells if cells is None else cells).items():
                with connection.table(self.table).batch(timestamp=rank) as batch:
                    for row, columns in rows.items():
                        batch.put(row, columns)

    def truncate(self) -> None:
        """As HBase's shell does: drop it, and make an empty one."""
        self.drop()
        self.put_back({})
