"""Holds: rows in the books that keep files which no tablet names.

Each file that a tablet may take is held from before it exists. The holder is the operation that makes the file, the
tserver that receives it, or a log with the file's records. A tserver that takes a file into a tablet

1. puts a hold of its own,
2. reads the file's holds again: another holder must still be there,
3. names the file in the tablet's row,
4. gives its hold up.

So the file is held or named at each moment. The collector reads the holds, then the tablets, then the holds again: a
hold that ends when a tablet names the file is in the first read or its successor in the second, and a hold that begins
before a tablet gives the file up is in the last read. Rules: R4 and R17.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, Column, MetadataTable, RowPut

BATCH_ROWS = 2_000
"""Holds in one put."""


def put_holds(
    table: MetadataTable, column: Column, files: Collection[str], check: Callable[[], None] = lambda: None
) -> None:
    """Put a hold of each file; ``check`` runs before each batch and may raise. Raises TransientError."""
    names = sorted(files)
    for first in range(0, len(names), BATCH_ROWS):
        check()
        rows = [RowPut(keys.hold_row(name), {column: values.EMPTY}) for name in names[first : first + BATCH_ROWS]]
        table.put(rows, keys.ONCE_RANK)


def end_holds(table: MetadataTable, column: Column, files: Sequence[str]) -> None:
    """End a holder's holds of files, for ever. Raises TransientError."""
    table.purge([CellKey(keys.hold_row(name), column) for name in files])


def unheld(table: MetadataTable, files: Collection[str]) -> list[str]:
    """The files that have no holder but tservers which are about to name them. Raises TransientError.

    Rule R17: two tservers that are about to name a file do not vouch for each other, because the collector may have
    read the books before both of their holds.
    """
    found = []
    for name in sorted(files):
        row = table.get(keys.hold_row(name), keys.HOLD_FAMILIES)
        if row is None or all(column.family == keys.TAKING_FAMILY for column in row.cells):
            found.append(name)
    return found
