"""The progress of one target in one file, and the target's amount of the file."""

from __future__ import annotations

from typing import NamedTuple


class Progress(NamedTuple):
    """A target's progress in a file: the finished offset (records) and its position in the file (bytes); and the
    target's own records and bytes up to there.
    """

    offset: int
    position: int
    records: int = 0
    size: int = 0


class Amount(NamedTuple):
    """One target's part of a file's needed records: their number, and the size of their blocks, bytes."""

    records: int
    size: int


NO_PROGRESS = Progress(0, 0)
NO_AMOUNT = Amount(0, 0)
