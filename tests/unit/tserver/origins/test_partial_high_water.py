"""R18 for tablets that were merged: each row takes a record of a stream once, and none is missed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import PartialHighWater, RowRange, StreamKey
from bookkeeper.tserver.origins.partial_high_water import unknown_parts, without_rows
from bookkeeper.tserver.receive.slice_decision import Accept, Gap, decide
from bookkeeper.tserver.tablets.load_plan import drop_reached
from bookkeeper.tserver.tablets.tablet import ReceivedBlock, tablet_records
from tests.support.tservers import records

STREAM = StreamKey("east", "1.wal", "7", "1", 1)
LETTERS = [bytes([letter]) for letter in b"abcdef"]


def block(first: int, *rows: bytes) -> ReceivedBlock:
    return ReceivedBlock(
        first, first + len(rows) - 1, tablet_records(records([(row, b"v") for row in rows], timestamp=1))
    )


def rows_of(blocks: tuple[ReceivedBlock, ...]) -> list[list[bytes]]:
    return [found.records.batch.column("row").to_pylist() for found in blocks]


def test_records_go_only_to_rows_that_lack_them() -> None:
    ahead = [PartialHighWater(RowRange(b"b", b"d"), 6), PartialHighWater(RowRange(b"e", None), 3)]
    blocks = (block(1, b"a", b"c", b"f"), block(4, b"c", b"b", b"f"), block(7, b"c"))
    assert rows_of(unknown_parts(blocks, ahead)) == [[b"a"], [b"b", b"f"], [b"c"]]


def test_a_block_of_which_nothing_is_new_is_left_out() -> None:
    assert unknown_parts((block(1, b"c", b"d"),), [PartialHighWater(RowRange(b"b", b"d"), 6)]) == ()


def test_a_share_says_what_is_left_in_it() -> None:
    left = without_rows(block(1, b"d", b"a", b"c"), [RowRange(b"b", None)])
    assert left is not None
    assert (left.records.min_row, left.records.max_row, left.records.families) == (b"a", b"a", [b"f"])
    whole = block(1, b"a")
    assert without_rows(whole, [RowRange(b"b", None)]) is whole


def test_a_block_that_lies_across_what_some_rows_have_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        unknown_parts((block(5, b"a", b"c"),), [PartialHighWater(RowRange(b"b", b"d"), 5)])


def test_what_all_rows_have_is_ahead_no_more() -> None:
    parts = (PartialHighWater(RowRange(b"b", b"d"), 6), PartialHighWater(RowRange(b"e", None), 9))
    ahead: dict[StreamKey, tuple[PartialHighWater, ...]] = {STREAM: parts}
    drop_reached(ahead, STREAM, 5)
    assert len(ahead[STREAM]) == 2
    drop_reached(ahead, STREAM, 6)
    assert ahead == {STREAM: (PartialHighWater(RowRange(b"e", None), 9),)}
    drop_reached(ahead, STREAM, 9)
    assert ahead == {}


# ---- a receiving tablet that was merged, against a sender that repeats itself


@dataclass
class Tablet:
    """Applies what is decided. ``missing`` are the source offsets that each row lacks."""

    high_water: int
    ahead: dict[StreamKey, tuple[PartialHighWater, ...]]
    taken: list[tuple[int, bytes]] = field(default_factory=list)

    def receive(self, after: int, to: int, blocks: tuple[ReceivedBlock, ...]) -> bool:
        decision = decide(self.high_water, 0, after, to, unknown_parts(blocks, self.ahead.get(STREAM, ())))
        if isinstance(decision, Gap):
            return False
        if isinstance(decision, Accept):
            self.taken += [(b.first_offset, row) for b in decision.blocks for row in b.records.batch["row"].to_pylist()]
        self.high_water = decision.high_water
        drop_reached(self.ahead, STREAM, decision.high_water)
        return True


@given(
    left=st.integers(0, 8),
    right=st.integers(0, 8),
    border=st.sampled_from(LETTERS[:-1]),
    written=st.lists(st.lists(st.sampled_from(LETTERS), min_size=1, max_size=4, unique=True), min_size=8, max_size=8),
    sent=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=12),
)
def test_r18_each_row_of_a_merged_tablet_gets_each_repeated_record_once(
    left: int, right: int, border: bytes, written: list[list[bytes]], sent: list[tuple[int, int]]
) -> None:
    blocks = tuple(block(10 * number, *rows) for number, rows in enumerate(written, 1))
    ends = [0, *(found.last_offset for found in blocks)]
    parts = [(RowRange(None, border), ends[left]), (RowRange(border, None), ends[right])]
    common = min(offset for _, offset in parts)
    ahead = tuple(PartialHighWater(rows, offset) for rows, offset in parts if offset > common)
    tablet = Tablet(common, {STREAM: ahead} if ahead else {})
    for start, end in [*sent, (0, 8)]:
        if start <= end:
            tablet.receive(ends[start], ends[end], blocks[start:end])
    had = [
        (found.first_offset, row)
        for found in blocks
        for row in found.records.batch.column("row").to_pylist()
        if any(rows.contains(row) and found.last_offset <= offset for rows, offset in parts)
    ]
    everything = [(b.first_offset, row) for b in blocks for row in b.records.batch.column("row").to_pylist()]
    assert sorted([*had, *tablet.taken]) == sorted(everything)
