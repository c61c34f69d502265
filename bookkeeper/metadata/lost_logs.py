"""Logs that tablets are served without, because the host that has them is away: the facts in a tablet's row.

The master gives a log up with one cell at the rank of the tablet's present serial. The next holder reads it in the put
that takes its own serial, and writes it again at that serial. So a cell at the rank of the newest serial is known to
the holder of that serial, and any other one is void: its holder has read the log. A late put of a deposed master is
older than the serial of the holder that did not see it, and a late delete of an earlier holder hides no later cell. The
value is a fact of the log, so a rank never has two values (R1).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Cell, CellKey, Column, Row
from bookkeeper.metadata.values import FlushState, LogHome, decode_status


class LostLog(Struct, frozen=True):
    """One given-up log of a tablet. ``is_needed``: the tablet lacks its records after ``after``, up to ``known`` at
    least; else it lacks none, and peers may. ``known`` is the last offset that the books know, 0 = none.
    """

    log: str
    home: LogHome
    is_needed: bool
    after: int
    known: int


def lost_cells(row: Row) -> dict[str, Cell]:
    """Log to its ``tablet:lost:`` cell, void ones included; of a row with the family ``tablet``."""
    return {keys.parse_lost(column): cell for column, cell in sorted(row.cells.items()) if keys.is_lost(column)}


def given_up(row: Row) -> dict[str, Cell]:
    """Log to its cell, of each log that the tablet is served without.

    A cell of another rank than the newest serial does not count: it is of an earlier holder, or a deposed master wrote
    it late (N6).
    """
    serial = row.cells.get(keys.SERIAL)
    if serial is None:
        return {}
    return {log: cell for log, cell in lost_cells(row).items() if cell.rank == serial.rank}


def void_cells(row: Row) -> list[tuple[CellKey, int]]:
    """The ``tablet:lost:`` cells that do not count, each with the rank to delete it at."""
    valid = given_up(row)
    return [
        (CellKey(row.key, keys.lost_column(log)), cell.rank)
        for log, cell in lost_cells(row).items()
        if log not in valid
    ]


def renewed(row: Row) -> Mapping[Column, bytes]:
    """The cells that the next holder puts together with its serial, so that they go on to count."""
    return {keys.lost_column(log): cell.value for log, cell in given_up(row).items()}


def lost_logs(row: Row) -> list[LostLog]:
    """The given-up logs of a row with the families ``tablet``, ``log`` and ``repl``. Raises CorruptionError."""
    flush = row.cells.get(keys.FLUSH)
    through = {} if flush is None else FlushState.decode(flush.value).through
    found = []
    for log, cell in given_up(row).items():
        repl = row.cells.get(keys.repl_column(log))
        known = 0 if repl is None else decode_status(repl.value).replication_needed_offset
        is_needed = keys.log_column(log) in row.cells
        found.append(LostLog(log, LogHome.decode(cell.value), is_needed, through.get(log, 0), known))
    return found
