"""The decision of a receiving tablet about its slice of a message: accept, duplicate or gap.

The input is the tablet's high-water of the stream, and a message that covers ``(after, to]`` of the source file. The
commit thread puts the accepted blocks into one WAL block, whose header has their part of the
stream, and that header is the high-water (R18). Pure; the simulation drives the same functions. Rules: R18 and R19.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from bookkeeper.errors import InvalidInputError
from bookkeeper.metadata.keys import OFFSET_MAX


class Spanning(Protocol):
    """A block of the source file; both offsets inclusive, counted in the source file."""

    @property
    def first_offset(self) -> int:
        """Offset of the first record that it covers."""

    @property
    def last_offset(self) -> int:
        """Offset of the last record that it covers."""


BlockT = TypeVar("BlockT", bound=Spanning)


class Accept(Struct, Generic[BlockT], frozen=True):
    """Apply ``blocks`` (at least one) as one WAL block; ``high_water`` holds once that is durable."""

    blocks: tuple[BlockT, ...]
    high_water: int


class Duplicate(Struct, frozen=True):
    """The tablet has all records of the slice; ``high_water`` counts the range's end, also when it was empty (R19)."""

    high_water: int


class Gap(Struct, frozen=True):
    """The range starts above ``high_water`` + 1: decline. The answer has ``high_water``, the offset after which the
    sender continues (R19).
    """

    high_water: int


Decision = Accept[BlockT] | Duplicate | Gap


def is_known(known: int, block: Spanning) -> bool:
    """Rule R18: the block was applied before."""
    return block.last_offset <= known


def decide(high_water: int, acked: int, after: int, to: int, blocks: Sequence[BlockT]) -> Decision[BlockT]:
    """Decide about one message for one tablet. Offsets count records of the source file.

    ``high_water``: of the tablet, with slices that are not durable yet (0 = nothing). ``acked``: the sender knows that
    all tablets of this peer have the records up to it. ``blocks``: the
    blocks of the range ``(after, to]`` with records for this tablet, ascending. Raises InvalidInputError when offsets
    contradict each other or a block straddles the known offset: ranges end where blocks end, so a straddling block
    comes from a sender that cuts differently, and half of it can't be dropped.
    """
    check_range(acked, after, to, blocks)
    known = max(high_water, acked)  # the tablet has each record up to here
    if after > known:  # R19: records between could be missing
        return Gap(known)
    fresh = tuple(block for block in blocks if not is_known(known, block))
    if not fresh:
        return Duplicate(max(known, to))
    if fresh[0].first_offset <= known:
        raise InvalidInputError(
            f"source offsets {fresh[0].first_offset} to {fresh[0].last_offset} straddle the high-water {known}: "
            "a range must end where a block of the source file ends"
        )
    return Accept(fresh, max(known, to))


def check_range(acked: int, after: int, to: int, blocks: Sequence[Spanning]) -> None:
    """Raise InvalidInputError unless the blocks ascend without overlap inside ``(after, to]``."""
    if acked < 0 or not 0 <= after <= to:
        raise InvalidInputError(f"a range after {after} up to {to}, acknowledged up to {acked}, can't exist")
    check_offset(max(acked, to))
    last = after
    for block in blocks:
        if not last < block.first_offset <= block.last_offset <= to:
            raise InvalidInputError(
                f"source offsets {block.first_offset} to {block.last_offset} do not follow {last} in ({after}, {to}]"
            )
        last = block.last_offset


def check_offset(offset: int) -> None:
    """Raise InvalidInputError for an offset of a source file that the books could not hold."""
    if offset > OFFSET_MAX:
        raise InvalidInputError(f"source offset {offset}: at most {OFFSET_MAX} can be counted")
