"""FinishedWorkUpdater: joins the needed side and the finished side of each target of a file.

Arrives: the done cells of a `~repl_` row, written by workers, and the needed side of the snapshot. Leaves: the offset
and byte position that every target has reached, and whether the file is complete. Pure. Rules: R1, R3 and R9.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

import combiners
from bookkeeper.master.index.file_entry import FileEntry
from bookkeeper.master.index.target_progress import NO_PROGRESS, Progress
from bookkeeper.metadata.metadata_table import Cell
from combiners import ReplicationStatus, is_fully_replicated


def read_done(done: Cell, file: bytes, problems: list[str]) -> Progress:
    """A target's progress in a file. An unreadable cell is added to ``problems`` and counts as no progress: the records
    are shipped once more.
    """
    try:
        status = ReplicationStatus.FromString(done.value)
    except DecodeError as error:
        problems.append(f"~repl_{file!r}: {len(done.value)} bytes in a done cell are no replication status: {error}")
        return NO_PROGRESS
    offset = status.replication_finished_offset
    if not offset:
        return NO_PROGRESS
    return Progress(offset, status.finished_bytes, status.finished_share_records, status.finished_share_bytes)


def is_complete(entry: FileEntry) -> bool:
    """Rule R9: CLOSED, and every configured target of every table that refers to the file has all of it.

    A CLOSED file for which no target is configured any more is complete.
    """
    return entry.is_closed() and all(has_everything(entry, index) for index in range(len(entry.scope.targets)))


def has_everything(entry: FileEntry, index: int) -> bool:
    """Whether one target has all records that the file will ever have: both sides folded, judged by the combiner."""
    finished = ReplicationStatus(replication_finished_offset=entry.finished_at(index))
    return is_fully_replicated(combiners.combine([entry.message(), finished]))
