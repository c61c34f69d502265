"""FinishedWorkUpdater: how far each target has a file, from the two sides that were written apart.

Arrives: the done cells of a `~repl_` row, written by workers, and the needed side of the snapshot. Leaves: the
offset and byte position that every target has reached, and whether that is all there is. Pure; nothing survives a
crash. Sources: design section 4 ("Who combines"); books.md R3 and R9.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

import combiners
from bookkeeper.master.files import NO_PROGRESS, FileEntry, Progress
from combiners import ReplicationStatus, is_fully_replicated


def read_done(done: bytes, file: bytes, problems: list[str]) -> Progress:
    """How far a target is. Garbage is named in ``problems`` and counts as nothing finished: it is shipped once more."""
    try:
        status = ReplicationStatus.FromString(done)
    except DecodeError as error:
        problems.append(f"~repl_{file!r}: {len(done)} bytes in a done cell are no replication status: {error}")
        return NO_PROGRESS
    offset = status.replication_finished_offset
    return Progress(offset, status.finished_bytes) if offset else NO_PROGRESS


def is_complete(entry: FileEntry) -> bool:
    """Rule R9: CLOSED, and every configured target of every table that refers to the file has all of it.

    A CLOSED file for which no target is configured any more is complete.
    """
    if not entry.is_closed() or len(entry.progress) != len(entry.scope.targets):
        return False
    return all(has_everything(entry, progress) for progress in entry.progress)


def has_everything(entry: FileEntry, progress: Progress) -> bool:
    """One target has all that the file will ever hold: both sides folded, judged by the combiner."""
    if progress.offset < entry.needed:
        return False
    finished = ReplicationStatus(replication_finished_offset=progress.offset)
    return is_fully_replicated(combiners.combine([entry.message(), finished]))
