"""What a receiving tablet does with its share of a replicated range: take it, know it already, or decline it.

Arrives: the high-water of one stream for one tablet, and a message that covers ``(after, to]`` of the source file.
Leaves: a :class:`Decision`; nothing is changed here. Survives a crash: nothing; the commit thread puts what was
accepted into one WAL block whose header says which part of the stream it is, and that header is the high-water
(rule R18). Pure; the simulation drives the same functions. Rules: R18 and R19.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from bookkeeper.errors import InvalidInputError
from bookkeeper.metadata.keys import OFFSET_MAX


class Spanning(Protocol):
    """A block of the source file; both offsets inclusive, counted in the source file."""

    @property
    def first_offset(self) -> int:
        """Offset of the first record that it stands for."""

    @property
    def last_offset(self) -> int:
        """Offset of the last record that it stands for."""


BlockT = TypeVar("BlockT", bound=Spanning)


@dataclass(frozen=True, slots=True)
class Accept(Generic[BlockT]):
    """Apply ``blocks`` (at least one) as one WAL block; ``high_water`` holds once that is durable."""

    blocks: tuple[BlockT, ...]
    high_water: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Nothing of it is new to this tablet; ``high_water`` counts the range's end, also when it was empty (R19)."""

    high_water: int


@dataclass(frozen=True, slots=True)
class Gap:
    """The range starts above ``high_water`` + 1: decline, and tell the sender where to go on (R19)."""

    high_water: int


Decision = Accept[BlockT] | Duplicate | Gap


def known_through(high_water: int, acked: int) -> int:
    """Up to where this tablet has everything: its own high-water, or the sender's fact about all tablets."""
    return max(high_water, acked)


def leaves_gap(known: int, after: int) -> bool:
    """Rule R19: records between what is known and the start of the range could be missing."""
    return after > known


def is_known(known: int, block: Spanning) -> bool:
    """Rule R18: the whole block was applied before."""
    return block.last_offset <= known


def decide(high_water: int, acked: int, after: int, to: int, blocks: Sequence[BlockT]) -> Decision[BlockT]:
    """Judge one message for one tablet. Offsets count records of the source file.

    ``high_water``: what the tablet has of the stream, what is in flight included (0 = nothing). ``acked``: the
    sender's fact. ``blocks``: what the range ``(after, to]`` holds for this tablet, ascending. Raises
    InvalidInputError when offsets contradict each other or a block straddles what is known: ranges end where
    blocks end, so a straddling block comes from a sender that cut elsewhere, and half of it can't be dropped.
    """
    check_range(acked, after, to, blocks)
    known = known_through(high_water, acked)
    if leaves_gap(known, after):
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
        raise InvalidInputError(f"a range after {after} up to {to}, acknowledged up to {acked}, can't be")
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
