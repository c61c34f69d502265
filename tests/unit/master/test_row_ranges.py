"""Ranges of rows, as references to shared files and high-waters that differ by row are made of them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.model import RowRange, chain_break, join_ranges

ROWS = st.binary(min_size=1, max_size=2)
BORDERS = st.none() | ROWS
RANGES = st.tuples(BORDERS, BORDERS).map(lambda pair: RowRange(*pair))


@given(st.lists(RANGES, max_size=4), ROWS)
def test_joined_ranges_hold_the_same_rows_in_order_and_apart(ranges: list[RowRange], row: bytes) -> None:
    real = [rows for rows in ranges if rows.prev_row is None or rows.end_row is None or rows.prev_row < rows.end_row]
    joined = join_ranges(real)
    assert any(rows.contains(row) for rows in joined) == any(rows.contains(row) for rows in real)
    for before, after in pairwise(joined):
        assert before.end_row is not None
        assert after.prev_row is not None
        assert before.end_row < after.prev_row


@given(RANGES, RANGES, ROWS)
def test_the_common_part_of_two_ranges_holds_the_rows_of_both(one: RowRange, two: RowRange, row: bytes) -> None:
    part = one.part_in(two)
    assert (part is not None and part.contains(row)) == (one.contains(row) and two.contains(row))


@given(st.sets(ROWS, max_size=4), st.integers(0, 4))
def test_a_chain_breaks_where_a_tablet_is_missing_and_nowhere_else(ends: set[bytes], missing: int) -> None:
    rows = [None, *sorted(ends), None]
    whole = [RowRange(prev_row, end_row) for prev_row, end_row in pairwise(rows)]
    assert chain_break(whole) is None
    at = min(missing, len(ends))
    assert chain_break([*whole[:at], *whole[at + 1 :]]) == at


@given(st.sets(ROWS, min_size=1, max_size=4))
def test_a_chain_breaks_where_tablets_overlap(ends: set[bytes]) -> None:
    whole = [RowRange(prev_row, end_row) for prev_row, end_row in pairwise([None, *sorted(ends), None])]
    assert chain_break([RowRange(None, None), *whole]) == 1
    assert chain_break([*whole[:1], *whole]) == 1
