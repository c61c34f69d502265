"""Which tablets are split next: all rows in few changes, each bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.master.splits import split_plan
from bookkeeper.master.splits.split_plan import SplitPlan, Splittable, plan_splits
from bookkeeper.model import Extent

THREE = [Extent("1", b"g", None), Extent("1", b"p", b"g"), Extent("1", None, b"p")]
rows_of_table = st.sets(st.binary(min_size=1, max_size=2), max_size=40)


def holding(extents: Sequence[Extent], rows: Sequence[bytes], row_bytes: int = 10) -> Iterator[Splittable]:
    """The tablets that hold some of the rows."""
    return (Splittable(extent, row_bytes) for extent in extents if any(map(extent.contains, rows)))


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([], []),
        ([b"g", b"p"], []),
        ([b"g", b"h"], [(THREE[1], (b"h",))]),
        ([b"a", b"b", b"z"], [(THREE[0], (b"a", b"b")), (THREE[2], (b"z",))]),
    ],
)
def test_every_tablet_gets_the_rows_inside_of_it(
    rows: list[bytes], found: list[tuple[Extent, tuple[bytes, ...]]]
) -> None:
    assert plan_splits(holding(THREE, rows), rows) == SplitPlan(tuple(found), len(rows))


@given(rows_of_table, rows_of_table, st.integers(1, 5), st.integers(1, 9), st.integers(1, 30), st.integers(0, 40))
def test_change_after_change_all_rows_are_ends_and_each_change_is_bounded(
    ends: set[bytes], wanted: set[bytes], tablets_max: int, splits_max: int, keys_max: int, row_bytes: int
) -> None:
    rows, left, reached = sorted(wanted), sorted(wanted), set(ends)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_plan, "TABLETS_AT_ONCE", tablets_max)
        patch.setattr(split_plan, "_Capacity", partial(split_plan._Capacity, splits_max, keys_max, 100))
        while left:
            borders = [None, *sorted(reached), None]
            extents = [Extent("1", end, prev) for prev, end in pairwise(borders)]
            plan = plan_splits(holding(extents, left, row_bytes), left)
            made = [row for _, splits in plan.tablets for row in splits]
            assert plan.handled > 0, "each change comes nearer to the end"
            assert reached.isdisjoint(made)
            assert len(plan.tablets) <= tablets_max
            assert len(made) <= splits_max
            assert len(made) == 1 or sum(map(len, made)) <= keys_max
            for extent, splits in plan.tablets:
                assert all(extent.contains(row) for row in splits)
            reached.update(made)
            left = left[plan.handled :]
    assert reached == ends.union(rows)


def test_no_more_tablets_are_read_than_are_split() -> None:
    taken = []

    def read() -> Iterator[Splittable]:
        for number in range(1_000):
            taken.append(number)
            yield Splittable(Extent("1", b"%03d" % (number + 1), b"%03d" % number), 10)

    rows = [b"%03dx" % number for number in range(1_000)]
    plan = plan_splits(read(), rows)
    assert len(taken) == len(plan.tablets) == split_plan.TABLETS_AT_ONCE
