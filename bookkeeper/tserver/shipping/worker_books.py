"""The finished side of the books: one ``done:`` cell for each file and target, which only workers write.

The rank of a cell rises with the finished offset, so a late write of another worker hides no later offset. The value is
a function of the rank (R1): the offset, and the byte position behind the block that ends there.

A stream has a cell, with offset 0, before its first message leaves. So the operation that ends streams finds it, even
if the peer never answered: the peer may remember the stream, and has to forget it (R20).
"""

from __future__ import annotations

from collections.abc import Iterable

import combiners
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import MetadataTable, RowPut
from bookkeeper.model import TargetKey
from bookkeeper.rpc.contract.messages import WorkItem
from bookkeeper.tserver.shipping.worker_plan import StreamProgress


def read_progress(metadata: MetadataTable, item: WorkItem) -> StreamProgress:
    """The progress of the item's stream in the books. Raises TransientError or CorruptionError."""
    row = metadata.get(keys.repl_row(item.file), ("done",))
    cell = row.cells.get(keys.done_column(item.target)) if row else None
    if cell is None:
        return StreamProgress(0, 0)
    status = combiners.combine([values.decode_status(cell.value)])
    offset = status.replication_finished_offset
    return StreamProgress(
        offset, offset, status.finished_bytes, status.finished_share_records, status.finished_share_bytes
    )


def read_finished(metadata: MetadataTable, file: str, target: TargetKey) -> int:
    """The finished offset of a file at a target; 0 when the books have none. Raises TransientError, CorruptionError."""
    row = metadata.get(keys.repl_row(file), ("done",))
    cell = row.cells.get(keys.done_column(target)) if row else None
    return 0 if cell is None else values.decode_status(cell.value).replication_finished_offset


def write_finished(metadata: MetadataTable, advanced: Iterable[tuple[WorkItem, StreamProgress]]) -> None:
    """Put the finished offsets, one call for each rank; durable on return. Raises TransientError."""
    by_rank: dict[int, list[RowPut]] = {}
    for item, progress in advanced:
        put = RowPut(keys.repl_row(item.file), {keys.done_column(item.target): finished_value(progress)})
        # The offset is the rank, plus one for the cell that announces the stream: a late write turns nothing back.
        by_rank.setdefault(keys.done_rank(progress.recorded), []).append(put)
    for rank, puts in sorted(by_rank.items()):
        metadata.put(puts, rank)


def announce(metadata: MetadataTable, items: Iterable[WorkItem]) -> None:
    """Put cells with offset 0 for streams that have none yet; durable on return. Raises TransientError."""
    write_finished(metadata, [(item, StreamProgress(0, 0)) for item in items])


def finished_value(progress: StreamProgress) -> bytes:
    """The value of a finished cell."""
    status = combiners.ReplicationStatus(
        replication_finished_offset=progress.recorded,
        finished_bytes=progress.position,
        finished_share_records=progress.records,
        finished_share_bytes=progress.size,
    )
    return values.encode_status(status)
