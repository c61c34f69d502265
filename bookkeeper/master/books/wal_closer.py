"""Closes files whose owner can't close them: OPEN cells of sealed files become CLOSED.

Arrives: a file's OPEN cells, its seal and the summary of its block headers. Leaves: CLOSED cells with the exact final
offset. Every process that closes the file uses the same rank, so a late owner and any number of masters write the same.
A crash does no harm: one CLOSED cell, of any tablet, closes the file. Rules: R1, R10, R12, R15 and R24.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

import combiners
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.model import Barrier, TargetShare
from bookkeeper.storage.wal.reading.wal_recovery import FileSummary
from bookkeeper.storage.wal.writing.seal import Seal
from combiners import ReplicationStatus


class ClosedCells(Struct, frozen=True):
    """Rows to put in one call at ``rank``."""

    rows: tuple[RowPut, ...]
    rank: int


def close_cells(
    file: str, open_values: Mapping[bytes, bytes], summary: FileSummary, tablet_rows: Collection[bytes]
) -> ClosedCells:
    """CLOSED cells for every row in ``open_values`` (row to its `repl:` value), and for tablets with records for a
    target in the file whose row has no cell of it (a violation of rule R12, repaired here).

    ``tablet_rows`` are the rows of all tablets. Raises CorruptionError when a value does not parse.
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
    """The creation time of a file without a header, from its cells (ms since the epoch)."""
    statuses = map(values.decode_status, open_values.values())
    return min((status.created_time for status in statuses if status.HasField("created_time")), default=None)


def closed_status(
    created_ms: int | None, seal: Seal, barriers: Sequence[Barrier], shares: Sequence[TargetShare]
) -> ReplicationStatus:
    """The CLOSED status of a tablet's part of a file. It holds facts of the file alone, so every writer writes the same
    (R1).

    The barriers are the tablet's own (R24), from its blocks; a barrier in a cell whose block never became durable is
    left out.
    """
    opened = ReplicationStatus(
        created_time=created_ms,
        barriers=[
            combiners.Barrier(offset=b.offset, file=b.file, until_offset=b.until_offset) for b in sorted(barriers)
        ],
        shares=values.encode_shares(shares),
    )
    return combiners.close(combiners.append(opened, seal.offset, needed_bytes=seal.position))
