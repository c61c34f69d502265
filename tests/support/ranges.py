"""Range descriptors for tests."""

from __future__ import annotations

from bookkeeper.model import TargetKey
from bookkeeper.replay.ranges import Range
from tests.support.wal_files import EAST, TO_EAST, WEST


def a_range(
    file: str,
    first: int,
    last: int,
    *,
    finished: int | None = None,
    range_id: int = 1,
    hint: int = 0,
    target: TargetKey = TO_EAST,
    quorum: str = "memory://east",
    instance: str = EAST,
    order_key: int = 0,
    run_id: str = "",
) -> Range:
    """A range from west to east, right behind what is finished unless told otherwise."""
    known = first - 1 if finished is None else finished
    return Range(range_id, file, first, last, hint, target, quorum, instance, WEST, known, order_key, run_id)
