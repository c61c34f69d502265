"""Holds of operations: segments that an export reads, though their tablets give them up, and files of an import.

Arrives: the segments that tablets name. Leaves: a row `~hold_<file>` for each, with a cell of the operation. The
collector reads the holds after the tablets. So a file that a tablet still names *after* the hold was put has a
reference in every later run: until its tablet gives it up that of the tablet, and then the hold. ``bulk.file_holds``
tells about files on their way into a tablet.

A hold ends with its operation. The collector removes the holds of operations that failed, and those that a deposed
master puts late. Rules: R4 and R17.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from bookkeeper.bulk import file_holds
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.master.splits.split_rules import TabletFacts
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey

READS_MAX = 5
"""Reads of the tablets in one step, while compactions replace segments."""


def hold_named(
    stores: ReignStores, txid: str, read: Callable[[], Sequence[TabletFacts]]
) -> Sequence[TabletFacts] | None:
    """Hold all segments of the tablets that ``read`` reads; returns the tablets as of one read. None if compactions
    replace segments all the time. Raises TransientError.
    """
    held: set[str] = set()
    for _ in range(READS_MAX):
        facts = read()
        named = {name for tablet in facts for name in tablet.segments}
        if named <= held:  # R17: each was held before the read that found its name
            return facts
        put_holds(stores, txid, named - held)
        held |= named
    return None


def put_holds(stores: ReignStores, txid: str, files: Iterable[str]) -> None:
    """Put an operation's hold of each file. Raises TransientError."""
    file_holds.put_holds(stores.table, keys.hold_column(txid), set(files), stores.reign.check)


def put_log_holds(stores: ReignStores, log: str, files: Collection[str]) -> None:
    """Put a log's hold of each file; it ends when the log is deleted. Raises TransientError."""
    file_holds.put_holds(stores.table, keys.log_hold_column(log), files, stores.reign.check)


def release_holds(stores: ReignStores, txid: str) -> None:
    """Remove all holds of an operation, at its end. Raises TransientError."""
    column = keys.hold_column(txid)
    rows = stores.table.scan(*keys.section(keys.HOLD_PREFIX), (column.family,))
    cells = [CellKey(row.key, column) for row in rows if column in row.cells]
    stores.reign.check()
    stores.table.purge(cells)
