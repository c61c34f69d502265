"""The finished side of the books: one cell for each file and target, written by workers and by nobody else.

Arrives: facts about what a peer has. Leaves: ``done:`` cells whose rank rises with the finished offset: the newest is
the farthest, whoever writes and however late. The value is a function of
the rank (R1): the offset, and the byte position behind the block that ends there. Survives a crash: the cells.

A stream has a cell, with nothing finished, before its first message leaves: whoever ends the stream finds it there,
even if no answer ever came (R20: the peer may remember it, and has to be told).
"""

from __future__ import annotations

from collections.abc import Iterable

import combiners
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import MetadataTable, RowPut
from bookkeeper.rpc.contract.messages import WorkItem
from bookkeeper.tserver.shipping.worker_plan import Fact


def read_fact(metadata: MetadataTable, item: WorkItem) -> Fact:
    """How far the books say that the item's stream is; raises TransientError or CorruptionError."""
    row = metadata.get(keys.repl_row(item.file), ("done",))
    cell = row.cells.get(keys.done_column(item.target)) if row else None
    if cell is None:
        return Fact(0, 0)
    status = combiners.combine([values.decode_status(cell.value)])
    offset = status.replication_finished_offset
    return Fact(offset, offset, status.finished_bytes, status.finished_share_records, status.finished_share_bytes)


def write_finished(metadata: MetadataTable, advanced: Iterable[tuple[WorkItem, Fact]]) -> None:
    """Put the finished offsets, one call for each rank; durable on return. Raises TransientError."""
    by_rank: dict[int, list[RowPut]] = {}
    for item, fact in advanced:
        put = RowPut(keys.repl_row(item.file), {keys.done_column(item.target): finished_value(fact)})
        by_rank.setdefault(finished_rank(fact), []).append(put)
    for rank, puts in sorted(by_rank.items()):
        metadata.put(puts, rank)


def announce(metadata: MetadataTable, items: Iterable[WorkItem]) -> None:
    """Put cells with nothing finished for streams that have none yet; durable on return. Raises TransientError."""
    write_finished(metadata, [(item, Fact(0, 0)) for item in items])


def finished_rank(fact: Fact) -> int:
    """The rank of a finished cell is its offset, and one more for the cell that announces the stream: a late or
    repeated write can't turn it back.
    """
    return keys.done_rank(fact.booked)


def finished_value(fact: Fact) -> bytes:
    """The value of a finished cell."""
    status = combiners.ReplicationStatus(
        replication_finished_offset=fact.booked,
        finished_bytes=fact.position,
        finished_share_records=fact.records,
        finished_share_bytes=fact.size,
    )
    return values.encode_status(status)
