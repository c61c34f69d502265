"""The geometry of the pictures: what they draw is what the numbers say, and bounded."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.model import BlockRange
from bookkeeper.monitor.lag_history import History, Point
from bookkeeper.monitor.pictures import (
    FINISHED,
    HEIGHT,
    HELD,
    NOT_SENT,
    STEPS_MAX,
    UNDER_WAY,
    bar,
    peer_lines,
    round_top,
    spans,
    way_bar,
)


def history(*points: tuple[int, Mapping[str, float | None]]) -> dict[str, object]:
    """Columns of points: seconds of each cluster at a time, with as many records."""
    found = History()
    for at_ms, seconds in points:
        found.add(Point(at_ms, {name: (round(one or 0), 0, one) for name, one in seconds.items()}))
    return found.columns()


def numbers(path: str) -> list[float]:
    return [float(one) for one in re.findall(r"-?[\d.]+", path)]


def test_a_line_goes_to_the_latest_value_at_its_right_edge_and_stays_inside() -> None:
    (east,) = peer_lines(history(*((second * 1000, {"east": second / 2}) for second in range(0, 100, 2))), 9)
    line = east.lines[2]
    assert (east.window_ms, line.name, line.latest, line.top) == (120_000, "lag_seconds", 49.0, 50.0)
    drawn = numbers(line.line)
    assert drawn[-2:] == [STEPS_MAX, pytest.approx(HEIGHT * (1 - 49 / 50), abs=0.1)]
    assert max(drawn[::2]) <= STEPS_MAX
    assert min(drawn) >= 0


def test_half_an_hour_is_bounded_and_keeps_its_highest_moment() -> None:
    points = [(second * 1000, {"east": 900.0 if second == 600 else 1.0}) for second in range(0, 1_800, 2)]
    (east,) = peer_lines(history(*points), 9)
    line = east.lines[2]
    assert east.window_ms == 1_800_000
    assert line.points <= STEPS_MAX + 1
    assert (line.greatest, line.top) == (900.0, 1_000)
    assert 10.0 in numbers(line.line)[1::2], "900 of 1,000 is drawn a tenth below the top"


def test_an_unknown_age_is_a_gap_and_not_a_zero() -> None:
    known = {2: 5.0, 4: 5.0, 6: None, 8: None, 10: 5.0, 12: 5.0}
    (east,) = peer_lines(history(*((second * 1000, {"east": one}) for second, one in known.items())), 9)
    line = east.lines[2]
    assert line.line.count("M") == 2
    assert set(numbers(line.line)[1::2]) == {0.0}, "the top of 5 is 5"
    assert peer_lines(history((1000, {"east": None})), 9)[0].lines[2].latest is None


def test_the_clusters_with_the_greatest_lag_are_drawn_by_name_and_none_that_is_gone() -> None:
    columns = history((0, {"c": 1.0, "gone": 9.0}), (2_000, {"c": 1.0, "b": 7.0, "a": 0.0, "new": None}))
    assert [peer.cluster for peer in peer_lines(columns, 9)] == ["a", "b", "c", "new"]
    assert [peer.cluster for peer in peer_lines(columns, 2)] == ["b", "new"], "an unknown age may be the greatest"
    assert peer_lines(history(), 9) == ()


def test_a_clock_that_was_set_back_draws_nothing_in_the_future() -> None:
    (east,) = peer_lines(history((9_000_000, {"east": 3.0}), (1_000, {"east": 1.0}), (3_000, {"east": 2.0})), 9)
    assert max(numbers(east.lines[2].line)[::2]) == STEPS_MAX


@pytest.mark.parametrize(
    ("value", "base", "top"),
    [
        (0, 1000, 1),
        (0.3, 1000, 1),
        (3, 1000, 5),
        (900, 1000, 1000),
        (1001, 1000, 2000),
        (700, 1024, 1024),
        (3000, 1024, 5120),
    ],
)
def test_the_top_is_the_next_round_number(value: float, base: int, top: float) -> None:
    assert round_top(value, base) == top


@given(st.floats(0, 1e15), st.sampled_from([1000, 1024]))
def test_the_top_is_never_below_the_value(value: float, base: int) -> None:
    assert value <= round_top(value, base) <= max(1, 5 * value)


def test_a_bar_has_its_shares_side_by_side_and_nothing_for_nothing() -> None:
    parts = bar((("voters", 3), ("none", 0), ("joining", 1)), 8)
    assert [(part.kind, part.start, part.width) for part in parts] == [("voters", 0, 37.5), ("joining", 37.5, 12.5)]
    assert bar((("voters", 0),), 0) == ()


def held(first: int, last: int) -> BlockRange:
    return BlockRange(first, last, 0, 0)


def test_the_way_of_a_file_is_finished_under_way_held_and_not_sent() -> None:
    assert spans(100, 40, 60, [held(11, 20)]) == [
        (FINISHED, 1, 10),
        (HELD, 11, 20),
        (FINISHED, 21, 40),
        (UNDER_WAY, 41, 60),
        (NOT_SENT, 61, 100),
    ]
    assert spans(0, 0, None, []) == []
    assert spans(10, 12, None, []) == [(FINISHED, 1, 10)]


@st.composite
def ways(draw: st.DrawFn) -> tuple[int, int, int | None, list[BlockRange]]:
    needed = draw(st.integers(0, 60))
    limits = sorted(draw(st.sets(st.integers(1, 70), max_size=6)))
    ranges = [held(first, last - 1) for first, last in zip(limits[::2], limits[1::2], strict=False)]
    return needed, draw(st.integers(0, 70)), draw(st.none() | st.integers(1, 70)), ranges


@given(ways())
def test_each_offset_of_a_way_is_in_one_span(way: tuple[int, int, int | None, list[BlockRange]]) -> None:
    needed, finished, _, ranges = way
    found = spans(*way)
    assert [offset for _, first, last in found for offset in range(first, last + 1)] == list(range(1, needed + 1))
    kinds = {offset: kind for kind, first, last in found for offset in range(first, last + 1)}
    for offset, kind in kinds.items():
        is_held = any(one.first <= offset <= one.last for one in ranges)
        assert (kind == HELD) == is_held
        assert is_held or (kind == FINISHED) == (offset <= finished)


def test_one_record_of_a_million_is_wide_enough_to_be_seen() -> None:
    parts = way_bar(spans(1_000_000, 1_000_000, None, [held(1_000_000, 1_000_000)]))
    (small,) = (part for part in parts if part.kind == HELD)
    assert small.width >= 0.5
    assert small.start + small.width <= 100
    assert parts[-1] is small, "it is drawn over its neighbours"
