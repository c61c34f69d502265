"""Acts of other processes on a metadata table in tests; run by ``python -m`` or started by ``multiprocessing``."""

from __future__ import annotations

import random
import sys

from bookkeeper.metadata.metadata_table import Column, MetadataTable, RowPut
from tests.support.books import made_books

COLUMN = Column("repl", b"w/1.wal")


def put_ranks(table: MetadataTable, cells: int, ranks: list[int]) -> None:
    """Put every rank into the same few rows, one call a rank; the value tells the rank (rule R1)."""
    for rank in ranks:
        table.put([RowPut(b"row-%03d" % cell, {COLUMN: b"%d" % rank}) for cell in range(cells)], rank)


def put_shuffled_ranks(url: str, cells: int, ranks: list[int], seed: int) -> None:
    """As :func:`put_ranks`, in an order of its own and with a table of its own."""
    table = made_books(url)
    put_ranks(table, cells, random.Random(seed).sample(ranks, len(ranks)))
    table.close()


def put_until_killed(url: str) -> None:
    """Put one row after the other and tell each one on standard output once the call returned."""
    table = made_books(url)
    number = 0
    while True:
        number += 1
        table.put([RowPut(b"row-%08d" % number, {COLUMN: b"%d" % number})], number)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    put_until_killed(sys.argv[1])
