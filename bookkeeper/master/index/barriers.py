"""What must be at a peer before records of one file may follow (rule R24), in as few barriers as say it.

Arrives: barriers as the tablets' cells name them. Leaves: those that a file keeps in memory. Pure; nothing survives a
crash, for the cells have all of them.

A tserver's logs are numbered, and it writes to one when the one before is sealed. So whoever waits for a record of one
of them was written after all that is in older ones, and may wait for these as well: whatever is waited for is older
than what waits, and files never wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from bookkeeper.master.index import log_names

BARRIERS_MAX = 4
"""Of one tserver's logs, before a file keeps them as :func:`coarser_barriers`."""


class FileBarrier(NamedTuple):
    """Rule R24: records from ``offset`` on wait until ``file`` is finished up to ``until_offset``; with ``all_before``
    also until all older logs of the tserver that wrote it are finished whole.
    """

    offset: int
    file: bytes
    until_offset: int
    all_before: bool = False


def log_directory(file: bytes) -> bytes | None:
    """Where the numbered logs of a tserver's session are, ``file`` among them; None for any other file."""
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
    """Whether one of ``known`` holds back all that ``barrier`` does: see :func:`necessary_barriers`."""
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
    """Few barriers of each tserver's logs, whatever the number of tablets and logs: the first ones as they are; the
    others hold back all that they do and a little more, because those of several logs wait for all before (see above).

    Of other tservers' logs only those are kept that wait for a newer log, or for more of it, than any before; each is
    of a record that is waited for, so what it waits for is older. Of its own tserver's logs one is enough, for all that
    is in them is older than all that is in ``file``: so these are at most ``BARRIERS_MAX``.
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
    """Barriers of files that are outstanding; ``files`` are all that a scan found. One of a file that is outstanding no
    more has been passed for good, because names are never used again; older logs may be left all the same.
    """
    return tuple(barrier for barrier in barriers if barrier.all_before or barrier.file in files)


def barriers_are_complete_to(known_before: int, needed: int) -> int:
    """Up to which offset all barriers are known, given the needed offset known before the rows were read.

    A tablet's first use of a file, barrier included, is in the books before its first record there is appended, and
    a needed offset is written after that record is synced. So whoever knew ``known_before`` and only then read the
    rows has seen every barrier at or below it. The rows may already show a higher ``needed``, but a row that was
    read early may lack a barrier that lies below that one.
    """
    return min(known_before, needed)
