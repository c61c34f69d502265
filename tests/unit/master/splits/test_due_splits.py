"""Which tablets the master splits by itself: those that are too large, the largest first, and none again and again."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bookkeeper.bulk.booked_segment import part_of_segment
from bookkeeper.master.splits import due_splits
from bookkeeper.master.splits.due_splits import (
    TABLETS_AT_ONCE,
    LargeTablet,
    Measured,
    TabletSize,
    due_tablets,
    size_of_segments,
)
from bookkeeper.master.splits.split_rules import TabletFacts
from bookkeeper.metadata import keys
from bookkeeper.metadata.values import SegmentEntry
from bookkeeper.model import Extent, RowRange
from bookkeeper.storage.tablet.segments.middle_row import RowGroup, SegmentGroups, find_middle
from tests.support.faults import fault

LIMIT = 1_000
HALF = Extent("1", b"m", None)
ROUNDS_MAX = 60


def large(name: str, counted: int, *, table: str = "t", rests: bool = False) -> LargeTablet:
    return LargeTablet(name.encode(), Extent("1", name.encode(), None), table, counted, rests)


# ---- the choice


def test_the_largest_tablets_are_split_first_and_few_at_once() -> None:
    found = due_tablets([large(f"{number:02d}", 100 + number) for number in range(20)], ())
    assert [tablet.counted_bytes for tablet in found] == list(range(119, 119 - TABLETS_AT_ONCE, -1))


def test_a_tablet_that_rests_is_not_split() -> None:
    assert due_tablets([large("a", 9, rests=True), large("b", 3)], ()) == [large("b", 3)]


def test_a_table_in_the_hands_of_an_operation_is_not_split() -> None:
    tablets = [large("a", 9, table="imported"), large("b", 3)]
    assert due_tablets(tablets, {"table imported", "shared read_only"}) == [large("b", 3)], (
        "a tablet is split while an import has its table"
    )


def test_without_its_rule_a_table_is_split_during_an_import() -> None:
    red = pytest.raises(AssertionError, match="a tablet is split while an import has its table")
    with fault("operations-hold-no-table"), red:
        test_a_table_in_the_hands_of_an_operation_is_not_split()


# ---- sizes


def entry(size: int, first: bytes, last: bytes, *ranges: RowRange) -> SegmentEntry:
    return SegmentEntry("default", 9, size, first, last, 1, 9, 1, ranges)


def test_files_with_rows_of_other_tablets_are_counted_apart() -> None:
    shared = entry(500, b"a", b"z", RowRange(None, b"m"))
    facts = TabletFacts(HALF, None, {"own": entry(30, b"a", b"b"), "shared": shared}, ())
    assert size_of_segments(facts) == TabletSize(HALF, 30, 500, frozenset({"shared"}))


@pytest.mark.parametrize(
    ("size", "counted"),
    [
        (TabletSize(HALF, 30, 500, frozenset({"s"})), 250),
        (TabletSize(HALF, 90, 500, frozenset({"s"})), 310),
        (TabletSize(HALF, 90), 90),
        (TabletSize(HALF, 90, 700, frozenset({"s", "t"})), 790),
        (TabletSize(replace(HALF, end_row=b"p"), 30, 500, frozenset({"s"})), 530),
    ],
    ids=["as measured", "new files of its own", "compacted", "other shared files", "merged"],
)
def test_a_measure_counts_for_the_rows_and_shared_files_that_were_measured(size: TabletSize, counted: int) -> None:
    measured = Measured(HALF, frozenset({"s"}), 220)
    assert due_splits.counted_bytes(size, measured) == counted
    assert due_splits.counted_bytes(size, None) == size.whole_bytes + size.shared_bytes


# ---- many splits of one table


@dataclass
class SimulatedTable:
    """Tablets with segments, and the index of each file: the books and the tservers of one table."""

    files: dict[str, list[RowGroup]]
    tablets: list[TabletFacts] = field(default_factory=list)
    measured: dict[bytes, Measured] = field(default_factory=dict)
    resting: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        segments = {name: entry(bytes_of(groups), groups[0][0], groups[-1][1]) for name, groups in self.files.items()}
        self.tablets = [TabletFacts(Extent("1", None, None), None, segments, ())]

    def counted(self, facts: TabletFacts) -> int:
        return due_splits.counted_bytes(size_of_segments(facts), self.measured.get(facts.row))

    def look(self) -> int:
        """One look of the master: measures and splits what is due; returns how many tablets it measured."""
        by_row = {facts.row: facts for facts in self.tablets}
        due = due_tablets(
            (
                LargeTablet(row, facts.extent, "t", self.counted(facts), row in self.resting)
                for row, facts in by_row.items()
                if self.counted(facts) > LIMIT
            ),
            (),
        )
        for tablet in due:
            self._measure(by_row[tablet.row])
        return len(due)

    def _measure(self, facts: TabletFacts) -> None:
        groups = [SegmentGroups(e.size_bytes, e.ranges, self.files[name]) for name, e in facts.segments.items()]
        middle = find_middle(groups, facts.extent.rows, 100)
        size = size_of_segments(facts)
        self.measured[facts.row] = Measured(facts.extent, size.shared_files, middle.shared_bytes)
        if self.counted(facts) <= LIMIT:
            return
        if middle.row is None:
            self.resting.add(facts.row)
            return
        halves = (replace(facts.extent, end_row=middle.row), replace(facts.extent, prev_row=middle.row))
        self.tablets.remove(facts)
        for extent in halves:
            parts = {name: part_of_segment(e, extent.rows) for name, e in facts.segments.items()}
            own = {name: part for name, part in parts.items() if part is not None}
            self.tablets.append(TabletFacts(extent, None, own, ()))

    def settle(self) -> None:
        """Look until nothing is due."""
        for _ in range(ROUNDS_MAX):
            if not self.look():
                return
        raise AssertionError(f"after {ROUNDS_MAX} looks the table of {len(self.tablets)} tablets is split again")


def bytes_of(groups: list[RowGroup]) -> int:
    return sum(size for _, _, size in groups)


def numbered(count: int, size: int, step: int = 1) -> list[RowGroup]:
    """Row groups one behind the other."""
    return [(b"%06d" % (n * step), b"%06d" % (n * step + step - 1), size) for n in range(count)]


def one_large_file_is_divided(total_groups: int) -> None:
    """A file of many tablets' size: its tablets share it, and nothing is compacted."""
    table = SimulatedTable({"file": numbered(total_groups, 10)})
    table.settle()
    total = 10 * total_groups
    fair = total / LIMIT
    assert fair <= len(table.tablets) <= 2 * fair + 1, (
        f"a tablet is split again and again: {total} bytes are in {len(table.tablets)} tablets"
    )
    assert not table.resting


@pytest.mark.parametrize("total_groups", [101, 190, 1_000, 3_000])
def test_tablets_that_share_a_file_are_split_until_each_own_part_is_small_enough(total_groups: int) -> None:
    one_large_file_is_divided(total_groups)


def test_when_shared_files_count_completely_tablets_are_split_again_and_again() -> None:
    with fault("shared-files-count-completely"), pytest.raises(AssertionError, match="split again and again"):
        one_large_file_is_divided(190)


def test_a_half_is_split_again_once_it_has_grown_and_not_when_it_has_compacted() -> None:
    table = SimulatedTable({"file": numbered(150, 10)})
    table.settle()
    first, second = sorted(table.tablets, key=lambda facts: facts.row)
    assert table.counted(first) == 750
    compacted = TabletFacts(first.extent, None, {"c": entry(750, b"000000", b"000074")}, ())
    grown = TabletFacts(second.extent, None, {**second.segments, "new": entry(240, b"000100", b"000120")}, ())
    table.files |= {"c": numbered(75, 10), "new": [(b"%06d" % n, b"%06d" % n, 30) for n in range(100, 108)]}
    table.tablets = [compacted, grown]
    assert table.look() == 0, "a half is measured or split before it has grown beyond the limit"
    grown = replace(grown, segments={**grown.segments, "more": entry(240, b"000100", b"000120")})
    table.files["more"] = table.files["new"]
    table.tablets = [compacted, grown]
    table.settle()
    assert len(table.tablets) == 3


sizes = st.one_of(st.integers(5, 30), st.sampled_from([100, 700, 2_500]))


@given(st.lists(st.lists(st.tuples(st.integers(1, 40), sizes), min_size=1, max_size=60), min_size=1, max_size=3))
def test_any_table_comes_to_rest_with_tablets_that_are_small_or_can_not_be_split(
    found: list[list[tuple[int, int]]],
) -> None:
    files: dict[str, list[RowGroup]] = {}
    for number, steps in enumerate(found):
        row, groups = 0, []
        for step, size in steps:  # an odd step: the row goes on in the next row group
            groups.append((b"%06d" % row, b"%06d" % (row + step), size))
            row += step + (step % 2 == 0)
        files[f"file{number}"] = groups
    table = SimulatedTable(files)
    table.settle()
    for facts in table.tablets:
        assert table.counted(facts) <= LIMIT or facts.row in table.resting
    assert len(table.tablets) <= sum(map(len, files.values())) + 1
    assert {facts.row for facts in table.tablets} >= {keys.tablet_row("1", None)}
