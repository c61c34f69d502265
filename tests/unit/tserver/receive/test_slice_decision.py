"""The laws of a receiving tablet: nothing twice, nothing missing, from any sender and however often (R18, R19)."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.errors import InvalidInputError
from bookkeeper.tserver.receive.slice_decision import Accept, Duplicate, Gap, decide


@dataclass(frozen=True)
class Part:
    first_offset: int
    last_offset: int


@dataclass(frozen=True)
class Message:
    acked: int
    after: int
    to: int
    parts: tuple[Part, ...]


class Tablet:
    """Applies what is accepted, and keeps the source offsets in the order in which they came."""

    def __init__(self) -> None:
        self.high_water = 0
        self.applied: list[int] = []

    def take(self, message: Message) -> object:
        decision = decide(self.high_water, message.acked, message.after, message.to, message.parts)
        self.high_water = max(self.high_water, decision.high_water)
        if isinstance(decision, Accept):
            for part in decision.blocks:
                self.applied += range(part.first_offset, part.last_offset + 1)
        return decision


def test_r18_a_range_that_comes_twice_is_applied_once() -> None:
    tablet = Tablet()
    message = Message(0, 0, 4, (Part(1, 2), Part(3, 4)))
    assert isinstance(tablet.take(message), Accept)
    assert tablet.take(message) == Duplicate(4), "R18: a range that came twice is applied twice"
    assert tablet.applied == [1, 2, 3, 4]


def test_r18_only_what_is_new_of_a_longer_range_is_applied() -> None:
    tablet = Tablet()
    tablet.take(Message(0, 0, 2, (Part(1, 2),)))
    tablet.take(Message(0, 0, 6, (Part(1, 2), Part(3, 6))))
    assert tablet.applied == [1, 2, 3, 4, 5, 6]


def test_r19_a_range_that_starts_above_is_declined_with_the_high_water() -> None:
    tablet = Tablet()
    tablet.take(Message(0, 0, 1, (Part(1, 1),)))
    assert tablet.take(Message(0, 2, 3, (Part(3, 3),))) == Gap(1), "R19: a range behind a gap is taken"
    assert isinstance(tablet.take(Message(0, 1, 2, (Part(2, 2),))), Accept)
    assert isinstance(tablet.take(Message(0, 2, 3, (Part(3, 3),))), Accept)
    assert tablet.applied == [1, 2, 3]


def test_r19_a_range_without_records_for_the_tablet_still_counts() -> None:
    tablet = Tablet()
    assert tablet.take(Message(0, 0, 7, ())) == Duplicate(7)
    assert isinstance(tablet.take(Message(0, 7, 8, (Part(8, 8),))), Accept)


def test_r19_what_the_sender_knows_of_all_tablets_fills_what_this_one_was_never_asked() -> None:
    tablet = Tablet()
    assert tablet.take(Message(0, 5, 6, (Part(6, 6),))) == Gap(0)
    assert isinstance(tablet.take(Message(5, 5, 6, (Part(6, 6),))), Accept)


def test_the_high_water_never_goes_back() -> None:
    tablet = Tablet()
    tablet.take(Message(0, 0, 9, (Part(1, 9),)))
    tablet.take(Message(0, 0, 4, (Part(1, 4),)))
    assert tablet.high_water == 9


@pytest.mark.parametrize(
    "message",
    [
        Message(0, 0, 3, (Part(1, 2), Part(2, 3))),
        Message(0, 0, 3, (Part(2, 4),)),
        Message(0, 1, 3, (Part(1, 3),)),
        Message(0, 3, 2, ()),
        Message(-1, 0, 0, ()),
        Message(0, 0, 3, (Part(3, 2),)),
    ],
)
def test_offsets_that_contradict_each_other_are_refused(message: Message) -> None:
    with pytest.raises(InvalidInputError):
        Tablet().take(message)


def test_a_block_across_the_high_water_is_refused_whole() -> None:
    tablet = Tablet()
    tablet.take(Message(0, 0, 2, (Part(1, 2),)))
    with pytest.raises(InvalidInputError, match="straddle"):
        tablet.take(Message(0, 0, 4, (Part(1, 4),)))
    assert tablet.applied == [1, 2]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 12))
def test_any_number_of_senders_in_any_order_leave_each_record_once_and_in_order(seed: int, count: int) -> None:
    """Messages are cut at block ends anywhere, sent by several senders that repeat, skip and go back at will."""
    rng = random.Random(seed)
    blocks = _cut(rng, count)
    tablet = Tablet()
    ends = [0, *(block.last_offset for block in blocks)]
    mine = [block for block in blocks if rng.random() < 0.7]
    for _ in range(60):
        after, to = sorted(rng.sample(ends, 2))
        parts = tuple(block for block in mine if after < block.first_offset and block.last_offset <= to)
        acked = rng.choice([0, max((end for end in ends if end <= tablet.high_water), default=0)])
        tablet.take(Message(acked, after, to, parts))
        wanted = [o for block in mine for o in range(block.first_offset, block.last_offset + 1)]
        assert tablet.applied == [offset for offset in wanted if offset <= tablet.high_water]


def _cut(rng: random.Random, count: int) -> list[Part]:
    blocks, last = [], 0
    for _ in range(count):
        first, last = last + 1, last + rng.randint(1, 4)
        blocks.append(Part(first, last))
    return blocks
