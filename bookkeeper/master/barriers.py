"""What must be at a peer before records of one file may follow (rule R24), in as few barriers as say it.

Arrives: barriers as the tablets' cells name them. Leaves: those that a file keeps in memory. Pure; nothing survives a
crash, for the cells have all of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

BARRIERS_MAX = 4
"""Of one earlier log of the same tserver, that a file keeps: see :func:`coarser_barriers`."""


class FileBarrier(NamedTuple):
    """Rule R24: records from ``offset`` on wait until ``file`` is finished up to ``until_offset``."""

    offset: int
    file: bytes
    until_offset: int


def necessary_barriers(barriers: Iterable[FileBarrier]) -> tuple[FileBarrier, ...]:
    """Leave out every barrier that an earlier one implies: same file, no higher offset, no lower ``until_offset``."""
    highest: dict[bytes, int] = {}
    kept: list[FileBarrier] = []
    for barrier in sorted(set(barriers), key=lambda b: (b.offset, -b.until_offset)):
        if barrier.until_offset > highest.get(barrier.file, 0):
            highest[barrier.file] = barrier.until_offset
            kept.append(barrier)
    return tuple(sorted(kept))


def coarser_barriers(file: bytes, barriers: tuple[FileBarrier, ...]) -> tuple[FileBarrier, ...]:
    """At most ``BARRIERS_MAX`` barriers of each earlier log of the tserver that wrote ``file``, whatever the number of
    tablets: the last ones become one, which holds back all that they do and a little more.

    A tserver begins a log when the one before is sealed. So whatever this file waits for is older than all its own
    records, as without this, and files never wait for each other in a circle. Of other tservers' logs that is not
    known: their barriers stay.
    """
    if len(barriers) <= BARRIERS_MAX:
        return barriers
    directory = file.rpartition(b"/")[0]
    by_file: dict[bytes, list[FileBarrier]] = {}
    for barrier in barriers:
        by_file.setdefault(barrier.file, []).append(barrier)
    kept: list[FileBarrier] = []
    for before, found in by_file.items():
        rest = found[BARRIERS_MAX - 1 :]
        if len(rest) > 1 and before.rpartition(b"/")[0] == directory:
            until = max(barrier.until_offset for barrier in rest)
            kept += [*found[: BARRIERS_MAX - 1], FileBarrier(rest[0].offset, before, until)]
        else:
            kept += found
    return tuple(sorted(kept))


def still_outstanding(barriers: Iterable[FileBarrier], files: Container[bytes]) -> tuple[FileBarrier, ...]:
    """Barriers of files that are outstanding; ``files`` are all that a scan found. One of a file that is outstanding no
    more has been passed for good, because names are never used again.
    """
    return tuple(barrier for barrier in barriers if barrier.file in files)


def barriers_are_complete_to(known_before: int, needed: int) -> int:
    """Up to which offset all barriers are known, given the needed offset known before the rows were read.

    A tablet's first use of a file, barrier included, is in the books before its first record there is appended, and
    a needed offset is written after that record is synced. So whoever knew ``known_before`` and only then read the
    rows has seen every barrier at or below it. The rows may already show a higher ``needed``, but a row that was
    read early may lack a barrier that lies below that one.
    """
    return min(known_before, needed)
