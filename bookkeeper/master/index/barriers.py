"""The barriers of a file: the records that a peer must have before records of the file may follow (rule R24).

Arrives: barriers of the tablets' cells. Leaves: those that a file has in memory. Pure; the cells have all barriers.

A tserver's logs are numbered, and it writes to a log after the one before is sealed. So a record that waits for one log
was written after everything in older logs of that tserver, and may wait for these as well: a record waits only for
older records, and files never wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from bookkeeper.master.index import log_names

BARRIERS_MAX = 4
"""Most exact barriers of one tserver's logs; above it a file has :func:`coarser_barriers`."""


class FileBarrier(NamedTuple):
    """Rule R24: records from ``offset`` on wait until ``file`` is finished up to ``until_offset``; with ``all_before``
    also until all older logs of the tserver that wrote it are finished whole.
    """

    offset: int
    file: bytes
    until_offset: int
    all_before: bool = False


def log_directory(file: bytes) -> bytes | None:
    """The directory of the numbered logs of a tserver's session, with ``file`` among them; None for any other file."""
    directory, number = log_names.split(file)
    return None if number == log_names.ALONE else directory


def necessary_barriers(barriers: Iterable[FileBarrier]) -> tuple[FileBarrier, ...]:
    """Leave out every barrier that one of no higher offset implies: of the same file with no lower ``until_offset``, or
    of a log as new and all before.
    """
    highest: dict[bytes, int] = {}
    older: dict[bytes | None, tuple[bytes, int]] = {}
    kept: list[FileBarrier] = []
    far_first = sorted(set(barriers), key=lambda b: (b.file, b.until_offset), reverse=True)
    for barrier in sorted(far_first, key=lambda b: (b.offset, not b.all_before)):
        _, file, until, all_before = barrier
        directory = log_directory(file) if older or all_before else None
        if directory in older and (file, until) <= older[directory]:
            continue
        if all_before:
            older[directory] = file, until
        elif until <= highest.get(file, 0):
            continue
        highest[file] = max(until, highest.get(file, 0))
        kept.append(barrier)
    return tuple(sorted(kept))


def imply(known: Iterable[FileBarrier], barrier: FileBarrier) -> bool:
    """Whether one of ``known`` delays all records that ``barrier`` delays: see :func:`necessary_barriers`."""
    reach = barrier.file, barrier.until_offset
    for offset, file, until, all_before in known:
        if offset > barrier.offset:
            return False  # they are in order
        if file == barrier.file:
            if until >= barrier.until_offset and all_before >= barrier.all_before:
                return True
        elif all_before and (file, until) > reach and log_directory(file) == log_directory(barrier.file):
            return True
    return False


def coarser_barriers(file: bytes, barriers: tuple[FileBarrier, ...]) -> tuple[FileBarrier, ...]:
    """Few barriers of each tserver's logs, for any number of tablets and logs: the first ones unchanged; the others are
    replaced by slightly stricter ones, because a barrier of several logs waits for all before (see above).

    Of other tservers' logs only those remain that wait for a newer log, or for more of it, than any before; each waits
    for a record, and that record waits only for older ones. Of its own tserver's logs one is enough, for everything in
    them is older than everything in ``file``: so these are at most ``BARRIERS_MAX``.
    """
    if len(barriers) <= BARRIERS_MAX:
        return barriers
    own = log_directory(file)
    by_directory: dict[bytes | None, list[FileBarrier]] = {}
    for barrier in barriers:
        by_directory.setdefault(log_directory(barrier.file), []).append(barrier)
    kept: list[FileBarrier] = []
    for directory, found in by_directory.items():
        if directory is None or len(found) <= BARRIERS_MAX:
            kept += found
        else:
            rest = found[BARRIERS_MAX - 1 :]
            kept += found[: BARRIERS_MAX - 1]
            kept += [_one_barrier(rest)] if directory == own else _rising_barriers(rest)
    return necessary_barriers(kept)


def _one_barrier(rest: Sequence[FileBarrier]) -> FileBarrier:
    """Of one tserver's logs: from the first offset on, up to the end of all."""
    newest, until = max((barrier.file, barrier.until_offset) for barrier in rest)
    older = any(barrier.all_before or barrier.file != newest for barrier in rest)
    return FileBarrier(rest[0].offset, newest, until, older)


def _rising_barriers(rest: Sequence[FileBarrier]) -> list[FileBarrier]:
    """Of one tserver's logs: each that reaches beyond those before it."""
    rising: list[FileBarrier] = []
    reached = (b"", 0)
    for barrier in rest:
        if (barrier.file, barrier.until_offset) > reached:
            reached = barrier.file, barrier.until_offset
            rising.append(barrier._replace(all_before=True))
    return rising


def still_outstanding(barriers: Iterable[FileBarrier], files: Container[bytes]) -> tuple[FileBarrier, ...]:
    """Barriers of files that are outstanding; ``files`` are all that a scan found. A file that is no longer outstanding
    is complete, because names are never used again; older logs may still be outstanding.
    """
    return tuple(barrier for barrier in barriers if barrier.all_before or barrier.file in files)


def barriers_are_complete_to(known_before: int, needed: int) -> int:
    """The offset up to which all barriers are known; ``known_before`` is the needed offset before the rows were read.

    A tablet's first use of a file, barrier included, is in the books before its first record there is appended, and a
    needed offset is written after that record is synced. So a master that knew ``known_before`` and only then read the
    rows has seen every barrier at or below it. The rows may already show a higher ``needed``, but a row that was read
    early may lack a barrier that lies below that one.
    """
    return min(known_before, needed)
