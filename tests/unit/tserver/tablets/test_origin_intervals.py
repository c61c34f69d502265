"""A tablet's memory of origins: each record once, through splits and merges; forgotten when the origins are over; and
its bound refuses, never loses (R22).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import OverloadedError
from bookkeeper.metadata.origin_intervals_json import decode_origin_intervals, encode_origin_intervals
from bookkeeper.model import RowRange
from bookkeeper.origins import Part, Root, RootIntervals, RootLog, Runs, joined_roots, root_of
from bookkeeper.storage.wal.blocks.block_origins import BlockOrigins, exact_claims
from bookkeeper.tserver.receive.receiver import SliceApply
from bookkeeper.tserver.receive.tablet_slice import ReceivedRange
from bookkeeper.tserver.tablets import origin_intervals as bounds
from bookkeeper.tserver.tablets.origin_intervals import OriginIntervals
from bookkeeper.tserver.tablets.tablet import ReceivedBlock
from tests.support.faults import fault
from tests.unit.tserver.write.test_submissions import POINT, RANGE, STREAM, context, served

ROWS = RowRange(None, None)


def a_root(number: int) -> Root:
    return Root("east", f"{number}.wal", "t")


def holding(*pairs: tuple[int, int], last_ms: int = 0) -> RootIntervals:
    return RootIntervals((Part(ROWS, None, Runs.of(*pairs)),), last_ms)


def a_log(number: int) -> RootLog:
    return a_root(number).log


# ---- parts


LOW, MIDDLE, HIGH = RowRange(b"g", b"t"), RowRange(b"k", b"t"), RowRange(b"k", None)


def after_a_split() -> RootIntervals:
    """A tablet (g, t] got some of a log by one path, and some of its rows by another one; then it is split at k."""
    whole = RootIntervals((Part(LOW, None, Runs.of((1, 8))), Part(HIGH, None, Runs.of((1, 12)))))
    return whole.inside(MIDDLE).taking(Part(MIDDLE, None, Runs.of((13, 13))), 0)


def test_r22_parts_that_a_split_leaves_with_the_same_rows_are_one() -> None:
    assert after_a_split() == RootIntervals((Part(MIDDLE, None, Runs.of((1, 13))),))


def test_r22_red_when_parts_of_the_same_rows_stay_apart() -> None:
    with fault("parts-of-the-same-rows-stay-apart"):
        assert after_a_split().runs_of(MIDDLE, None) == Runs.of((1, 8), (13, 13)), "9 to 12 would be taken again"


ROW_RANGES = [RowRange(low, high) for low in (None, b"b", b"d") for high in (b"c", b"e", None) if (low or b"") < b"c"]
Records = set[tuple[bytes, bytes, int]]


def records_in(held: RootIntervals) -> Records:
    """Every record that parts name: row, family and offset."""
    return {
        (row, family, offset)
        for part in held.parts
        for row in (b"b", b"c", b"d", b"e", b"f")
        for family in (b"g", b"h")
        for offset in range(1, 10)
        if part.rows.contains(row) and part.family in (None, family) and part.runs.meets(Runs.of((offset, offset)))
    }


some_part = st.builds(
    lambda rows, family, first, more: Part(rows, family, Runs.of((first, min(9, first + more)))),
    st.sampled_from(ROW_RANGES), st.sampled_from([None, b"g", b"h"]), st.integers(1, 9), st.integers(0, 4),
)  # fmt: skip


@given(st.lists(some_part, max_size=8), some_part, st.sampled_from(ROW_RANGES))
def test_r22_however_it_is_made_a_part_has_its_rows_and_family_alone_and_no_record_is_lost(
    parts: list[Part], news: Part, rows: RowRange
) -> None:
    held, root = RootIntervals(tuple(parts)), a_root(1)
    said = records_in(RootIntervals((news,)))
    for part in parts:
        said |= records_in(RootIntervals((part,)))
    inside = {record for record in said if rows.contains(record[0])}
    both = joined_roots([{root: RootIntervals(tuple(parts))}, {root: RootIntervals((news, news))}])[root]
    for made, wanted in (
        (held.taking(news, 1), said),
        (held.taking(news, 1).inside(rows), inside),
        (both, said),
        (both.inside(rows), inside),
        (decode_origin_intervals(encode_origin_intervals({root: both}))[root], said),
    ):
        places = [(part.rows, part.family) for part in made.parts]
        assert len(set(places)) == len(places)
        assert records_in(made) == wanted


def test_r22_a_state_that_names_rows_twice_is_read_as_one_part() -> None:
    encoded = encode_origin_intervals({a_root(1): holding((1, 8))})
    (logs,) = encoded.values()
    (log,) = logs.values()
    log[1].append([None, None, None, Runs.of((1, 12)).flat()])
    assert decode_origin_intervals(encoded) == {a_root(1): holding((1, 12))}


# ---- what is remembered


def test_r22_what_is_over_is_forgotten_and_nothing_else_however_much_it_is() -> None:
    roots = OriginIntervals({a_root(number): holding((1, 9)) for number in range(3_000)})
    assert roots.forget({a_log(1), a_log(5_000)})
    assert not roots.forget({a_log(1)})
    assert roots.applied().keys() == {a_root(number) for number in range(3_000)} - {a_root(1)}
    assert roots.of(a_root(1)) == RootIntervals()


def test_r22_what_makes_it_less_has_room_when_nothing_else_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "RUNS_MAX", 3)
    roots = OriginIntervals({a_root(1): holding((1, 2), (4, 5), (7, 8))})
    assert not roots.has_room({a_root(2): holding((1, 1))})
    assert not roots.has_room({a_root(1): holding((1, 2), (4, 5), (7, 8), (11, 12))})
    joined = {a_root(1): holding((1, 8))}
    assert roots.has_room(joined)
    roots.stage(joined)
    roots.apply(joined)
    assert roots.has_room({a_root(2): holding((1, 1))})


def test_what_was_staged_and_given_up_is_not_known() -> None:
    roots = OriginIntervals({a_root(1): holding((1, 2))})
    first = roots.stage({a_root(1): holding((1, 4)), a_root(2): holding((1, 1))})
    second = roots.stage({a_root(1): holding((1, 6))})
    assert roots.of(a_root(1)) == holding((1, 6))
    roots.take_back(second)
    assert roots.of(a_root(1)) == holding((1, 4))
    roots.take_back(first)
    assert (roots.of(a_root(1)), roots.of(a_root(2))) == (holding((1, 2)), RootIntervals())
    assert roots.applied() == {a_root(1): holding((1, 2))}


def test_r22_what_is_given_up_when_what_was_before_it_is_applied_leaves_nothing_in_flight() -> None:
    roots, news = OriginIntervals({}), {a_root(1): holding((1, 4))}
    roots.stage(news)
    given_up = roots.stage({a_root(1): holding((1, 6))})
    roots.apply(news)
    roots.take_back(given_up)
    assert roots.of(a_root(1)) == holding((1, 4))
    assert roots.forget([a_root(1).log])
    assert roots.of(a_root(1)) == RootIntervals()


def test_r22_at_the_bound_a_message_is_refused_whole_and_taken_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = RANGE.blocks
    sections = ((root_of(STREAM), Runs.of((1, 1))),)
    told = ReceivedBlock(1, 1, block.records, BlockOrigins(sections, exact_claims(sections)))
    received = ReceivedRange(STREAM, ("east",), 0, 0, 1, (told,))
    tablet = served(tmp_path)
    monkeypatch.setattr(bounds, "RUNS_MAX", 0)
    with pytest.raises(OverloadedError, match="waits for the other paths"):
        SliceApply(context(), tablet, received, 0).prepare(POINT)
    assert (tablet.received.staged_high_water(STREAM), tablet.next_seq) == (0, 1)
    monkeypatch.setattr(bounds, "RUNS_MAX", 1)
    (draft,) = SliceApply(context(), tablet, received, 0).prepare(POINT)
    assert draft.header.origin.to_offset == 1
