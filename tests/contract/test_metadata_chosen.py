"""Many rows are read at once from every metadata table: each one that is there, whatever lies between them."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from typing import cast

import pytest

from bookkeeper.metadata.chosen_rows import SCANNED_FOR_ONE, chosen_rows
from bookkeeper.metadata.metadata_table import Column, MetadataTable, Row, RowPut

CELL, OTHER = Column("replica", b"h"), Column("tablet", b"dir")
ROWS = 120


def key(number: int) -> bytes:
    return b"2;%06d" % number


@pytest.mark.parametrize("seed", range(12))
def test_each_wanted_row_that_is_there_is_found(table: MetadataTable, seed: int) -> None:
    rng = random.Random(seed)
    there = rng.sample(range(ROWS), rng.choice((0, 3, 60, ROWS)))
    table.put([RowPut(key(number), {CELL: b"%d" % number, OTHER: b"x"}) for number in there], 5)
    wanted = rng.sample(range(ROWS + 20), rng.choice((0, 1, 5, 50, ROWS)))
    found = chosen_rows(table, map(key, wanted), ("replica",))
    assert found.keys() == {key(number) for number in set(wanted).intersection(there)}
    for at, row in found.items():
        assert row == table.get(at, ("replica",))


class CountedReads:
    """Counts the rows that a scan reads, and the reads of one row."""

    def __init__(self, table: MetadataTable) -> None:
        self._table = table
        self.scanned = 0
        self.alone = 0

    def get(self, key: bytes, families: Collection[str] | None = None) -> Row | None:
        self.alone += 1
        return self._table.get(key, families)

    def scan(
        self, start: bytes = b"", stop: bytes | None = None, families: Collection[str] | None = None
    ) -> Iterator[Row]:
        for row in self._table.scan(start, stop, families):
            self.scanned += 1
            yield row


def test_neighbours_are_scanned_and_rows_far_apart_are_read_alone(table: MetadataTable) -> None:
    table.put([RowPut(key(number), {CELL: b"v"}) for number in range(ROWS)], 5)
    near, far = CountedReads(table), CountedReads(table)
    chosen_rows(
        cast(MetadataTable, near), [key(number) for number in range(0, ROWS, SCANNED_FOR_ONE - 1)], ("replica",)
    )
    assert near.alone == 0, "rows that lie together are read one by one"
    chosen_rows(cast(MetadataTable, far), [key(0), key(ROWS - 1)], ("replica",))
    assert far.scanned <= 2 * SCANNED_FOR_ONE, "a scan reads all rows between two"
    assert far.alone == 1
