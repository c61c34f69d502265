"""Closing what nobody else may be left to close: OPEN cells of sealed files.

Arrives: a file's OPEN cells, its seal and the summary of its block headers. Leaves: CLOSED cells with the exact final
offset, at the rank that anybody who closes that file uses, so that a late owner and any number of masters write the
same. A cut is harmless: one CLOSED cell closes the file, whichever tablet's it is.
Rules: R1, R10, R12, R15 and R24.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import combiners
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.model import Barrier, TargetShare
from bookkeeper.storage.wal import FileSummary, Seal
from combiners import ReplicationStatus


@dataclass(frozen=True, slots=True)
class ClosedCells:
    """Rows to put in one call at ``rank``."""

    rows: tuple[RowPut, ...]
    rank: int


def needs_closing(is_sealed: bool, owner_is_dead: bool) -> bool:
    """Rule R10: files that are sealed, and those of dead sessions (which are sealed first), are closed from the file.

    An unsealed file of a live session is its owner's: nobody else may say where it ends.
    """
    return is_sealed or owner_is_dead


def close_cells(
    file: str, open_values: Mapping[bytes, bytes], summary: FileSummary, tablet_rows: Collection[bytes]
) -> ClosedCells:
    """CLOSED cells for every row in ``open_values`` (row to its `repl:` value), and for tablets that the file holds
    stamped records of although their row shows no cell (rule R12 was broken: it is mended here).

    ``tablet_rows`` are the rows of all tablets there are. Raises CorruptionError when a value does not parse.
    """
    tablets = {keys.tablet_row(*tablet): found for tablet, found in summary.tablets.items()}
    stamped = {row for row, found in tablets.items() if found.block_targets and row in tablet_rows}
    created_ms = summary.created_time_ms or oldest_creation(open_values)
    column = keys.repl_column(file)
    puts = []
    for row in sorted(stamped | set(open_values)):
        barriers = tablets[row].barriers if row in tablets else ()
        table_id, _ = keys.parse_tablet_row(row)
        status = closed_status(created_ms, summary.seal, barriers, summary.shares.get(table_id, ()))
        puts.append(RowPut(row, {column: values.encode_status(status)}))
    return ClosedCells(tuple(puts), keys.closed_rank(summary.seal.offset))


def oldest_creation(open_values: Mapping[bytes, bytes]) -> int | None:
    """When a file without a header was made, by its cells (ms since the epoch)."""
    statuses = map(values.decode_status, open_values.values())
    return min((status.created_time for status in statuses if status.HasField("created_time")), default=None)


def closed_status(
    created_ms: int | None, seal: Seal, barriers: Sequence[Barrier], shares: Sequence[TargetShare]
) -> ReplicationStatus:
    """What CLOSED says of a tablet's part of a file: facts of the file, so whoever writes it writes the same (R1).

    The barriers are the tablet's own (R24), from its blocks: one that was announced in a cell and never became durable
    is not among them.
    """
    told = values.encode_shares(shares)
    opened = ReplicationStatus(created_time=created_ms, barriers=map(barrier_message, sorted(barriers)), shares=told)
    return combiners.close(combiners.append(opened, seal.offset, needed_bytes=seal.position))


def barrier_message(barrier: Barrier) -> combiners.Barrier:
    """A barrier as a status holds it."""
    return combiners.Barrier(offset=barrier.offset, file=barrier.file, until_offset=barrier.until_offset)
