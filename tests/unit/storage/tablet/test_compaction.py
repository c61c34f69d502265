"""The inputs of compactions and the cells that they drop; no reader notices."""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bookkeeper.config.table_properties import DEFAULT_PROPERTIES, parse_properties
from bookkeeper.errors import InvalidInputError, NotServingError
from bookkeeper.model import Extent, RowRange
from bookkeeper.storage.tablet.compaction import INPUTS_MAX, WHILE_FILLING, due_merges, families_outside, pick
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.segments.segment_format import NewSegment, SegmentRef, parse_name
from bookkeeper.storage.tablet.segments.segment_reader import Segment
from bookkeeper.storage.tablet.segments.segment_writer import leftovers
from bookkeeper.storage.tablet.sorting.entries import SortedBlock
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.tablet.tablet_resources import TabletResources
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from tests.support.faults import fault
from tests.support.tablet_model import NOW_MS, Record, age_off, scan_all, to_batch
from tests.support.volumes import MACHINE, name_at, path_of

EXTENT = Extent("t", None, None)
GROUPS = GroupMap({"one": frozenset({b"f"}), "two": frozenset({b"g"})})
PLAIN = Record(b"r", b"f", b"q", b"", 1, False, b"v")
PUT = PLAIN._replace(timestamp=5)
DELETE = PLAIN._replace(timestamp=6, delete=True, value=b"")
LIMIT_S = 60.0


class Written:
    """A tablet, and the number of its written records."""

    def __init__(self, directory: Path, extent: Extent = EXTENT, properties: dict[str, str] | None = None) -> None:
        settings = TabletSettings(row_group_records=8)
        parsed = parse_properties(properties or {})
        self.data = TabletData(
            extent, GROUPS, MACHINE, name_at(directory), [], TabletResources(settings), properties=parsed
        )
        self.count = 0

    def write(self, *records: Record) -> Sequence[NewSegment]:
        """Flushed to segments of their own."""
        self.apply(*records)
        frozen = self.data.begin_flush()
        assert frozen is not None
        segments = self.data.write_segments(frozen, self.count)
        self.data.finish_flush(frozen, segments)
        return segments

    def apply(self, *records: Record) -> None:
        self.data.apply(to_batch(records), self.count + 1)
        self.count += len(records)

    def merge(self, *inputs: NewSegment, drop_deletes: bool = False) -> list[NewSegment]:
        """Some segments, or all."""
        names = {segment.name for segment in inputs or self.data.segments}
        written = self.data.write_merged(names, 1, NOW_MS, drop_deletes=drop_deletes, check_continue=lambda: None)
        self.data.replace_segments(names, written)
        return written


@pytest.fixture
def tablet(tmp_path: Path) -> Written:
    return Written(tmp_path / "t")


def records_of(segments: Sequence[SegmentRef]) -> int:
    return sum(segment.records for segment in segments)


# ---- what is dropped


def test_a_compaction_of_everything_leaves_what_is_shown(tablet: Written) -> None:
    tablet.write(PUT, PLAIN._replace(row=b"gone", timestamp=1), PLAIN._replace(family=b"g"))
    tablet.write(PUT._replace(timestamp=7, value=b"new"), PLAIN._replace(row=b"gone", timestamp=2, delete=True))
    shown = scan_all(tablet.data)
    written = tablet.merge(drop_deletes=True)
    assert {segment.group: segment.records for segment in written} == {"one": 1, "two": 1}
    assert scan_all(tablet.data) == shown
    assert tablet.data.segments == tuple(written)


def test_a_part_keeps_its_deletes_for_what_older_segments_hold(tablet: Written) -> None:
    tablet.write(PUT)
    second = tablet.write(DELETE, PLAIN._replace(row=b"a"))
    third = tablet.write(PLAIN._replace(row=b"b"))
    assert records_of(tablet.merge(*second, *third, drop_deletes=True)) == 3, (
        "a part forgets a delete that hides an older record"
    )
    assert [record.row for record in scan_all(tablet.data)] == [b"a", b"b"]


def test_without_its_rule_what_a_part_forgets_comes_back(tablet: Written) -> None:
    with (
        fault("a-part-forgets-deletes"),
        pytest.raises(AssertionError, match="a part forgets a delete that hides an older record"),
    ):
        test_a_part_keeps_its_deletes_for_what_older_segments_hold(tablet)


def test_a_whole_locality_group_forgets_its_deletes(tablet: Written) -> None:
    (one, _) = tablet.write(PUT, PLAIN._replace(family=b"g"))
    (two, _) = tablet.write(DELETE, DELETE._replace(family=b"g", row=b"z"))
    assert tablet.merge(one, two, drop_deletes=True) == []
    assert [record.family for record in scan_all(tablet.data)] == [b"g"]


def test_what_older_groups_hold_of_a_family_counts_as_outside(tablet: Written) -> None:
    tablet.data.configure(GroupMap({}), DEFAULT_PROPERTIES)
    tablet.write(PUT)
    tablet.data.configure(GROUPS, DEFAULT_PROPERTIES)
    inputs = [*tablet.write(DELETE), *tablet.write(PLAIN._replace(row=b"a"))]
    assert {segment.group for segment in inputs} == {"one"}
    assert records_of(tablet.merge(*inputs, drop_deletes=True)) == 2
    assert [record.row for record in scan_all(tablet.data)] == [b"a"]


def test_deletes_are_kept_as_long_as_the_table_says(tmp_path: Path) -> None:
    tablet = Written(tmp_path, properties={"table.compaction.deletes_kept_ms": "100"})
    old, young = (DELETE._replace(row=row, timestamp=NOW_MS - age) for row, age in ((b"a", 101), (b"b", 100)))
    tablet.write(old, young)
    assert records_of(tablet.merge(drop_deletes=True)) == 1
    late = PLAIN._replace(row=b"b", timestamp=NOW_MS - 200)
    tablet.write(late, late._replace(row=b"a"))
    assert [record.row for record in scan_all(tablet.data)] == [b"a"]


def test_versions_that_do_not_count_and_aged_ones_go_with_any_compaction(tmp_path: Path) -> None:
    properties = {"table.versions.max": "2", "table.age_off_ms": str(age_off(4))}
    tablet = Written(tmp_path, properties=properties)
    tablet.write(PLAIN._replace(row=b"elsewhere"))
    inputs = [*tablet.write(*(PLAIN._replace(timestamp=time) for time in range(10)))]
    inputs += tablet.write(PLAIN._replace(row=b"aged", timestamp=3), DELETE._replace(row=b"aged delete", timestamp=3))
    assert records_of(tablet.merge(*inputs)) == 2
    assert [record.timestamp for record in scan_all(tablet.data)] == [9, 8]


def test_versions_of_one_cell_are_counted_over_many_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookkeeper.storage.tablet.flush.ROUND_RECORDS", 3)
    tablet = Written(tmp_path, properties={"table.versions.max": "5"})
    for start in range(3):
        tablet.write(*(PLAIN._replace(timestamp=time) for time in range(start, 60, 3)))
    tablet.write(DELETE._replace(timestamp=56))
    assert records_of(tablet.merge(drop_deletes=True)) == 3
    assert [record.timestamp for record in scan_all(tablet.data)] == [59, 58, 57]


def test_a_tablet_takes_its_rows_of_a_segment_that_it_shares(tmp_path: Path) -> None:
    whole = Written(tmp_path / "whole")
    every = [PLAIN._replace(row=row) for row in (b"a", b"b", b"c", b"d")]
    whole.write(*every)
    part = TabletData(Extent("t", b"c", b"a"), GROUPS, MACHINE, name_at(tmp_path / "part"), whole.data.segments)
    names = {segment.name for segment in part.segments}
    written = part.write_merged(names, 1, NOW_MS, drop_deletes=True, check_continue=lambda: None)
    part.replace_segments(names, written)
    assert [(segment.records, segment.min_row, segment.max_row) for segment in written] == [(2, b"b", b"c")]
    assert path_of(written[0].name).parent == tmp_path / "part"
    assert scan_all(part) == every[1:3]
    assert scan_all(whole.data) == every


@given(data=st.data())
@settings(max_examples=40)
def test_of_a_shared_file_the_rows_that_count_are_read_and_merged(data: st.DataObject) -> None:
    """After a merge of tablets a file may count in some stretches of rows and not between them."""
    with tempfile.TemporaryDirectory() as place:
        whole = Written(Path(place) / "whole")
        names = [b"%02d" % number for number in range(40)]
        (segment,) = whole.write(*(PLAIN._replace(row=row) for row in names))
        borders = data.draw(st.lists(st.sampled_from([*names, b"1", b"12x", b""]), unique=True, max_size=6).map(sorted))
        edges: list[bytes | None] = [None, *borders, None]
        every = [RowRange(low, high) for low, high in itertools.pairwise(edges)]
        ranges = tuple(rows for rows in every if data.draw(st.booleans())) or every[:1]
        shared = replace(segment, ranges=tuple(ranges))
        part = TabletData(
            EXTENT,
            GROUPS,
            MACHINE,
            name_at(Path(place) / "part"),
            [shared],
            TabletResources(TabletSettings(row_group_records=8)),
        )
        counting = [row for row in names if any(rows.contains(row) for rows in ranges)]
        assert [record.row for record in scan_all(part, 60)] == counting
        start, stop = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names))
        found = [record.row for record in scan_all(part, start=start, stop=stop)]
        assert found == [row for row in counting if start <= row < stop]
        written = part.write_merged({shared.name}, 1, NOW_MS, drop_deletes=True, check_continue=lambda: None)
        part.replace_segments({shared.name}, written)
        assert records_of(part.segments) == len(counting)
        assert [record.row for record in scan_all(part)] == counting


# ---- how it goes on


def test_what_is_written_meanwhile_is_not_lost(tablet: Written) -> None:
    tablet.write(PUT)
    tablet.write(PLAIN._replace(row=b"a"))
    names = {segment.name for segment in tablet.data.segments}
    written = tablet.data.write_merged(names, 1, NOW_MS, drop_deletes=True, check_continue=lambda: None)
    tablet.write(DELETE)
    tablet.apply(PLAIN._replace(row=b"z"))
    tablet.data.replace_segments(names, written)
    assert [record.row for record in scan_all(tablet.data)] == [b"a", b"z"]
    with pytest.raises(InvalidInputError):
        tablet.data.replace_segments(names, written)


def test_one_that_is_given_up_leaves_nothing(tablet: Written) -> None:
    tablet.write(*(PLAIN._replace(row=b"%d" % number) for number in range(20)))

    def give_up() -> None:
        raise NotServingError("the tablet leaves")

    names = {segment.name for segment in tablet.data.segments}
    with pytest.raises(NotServingError):
        tablet.data.write_merged(names, 1, NOW_MS, drop_deletes=True, check_continue=give_up)
    assert leftovers(MACHINE.entries(tablet.data.directory), names) == []
    assert len(scan_all(tablet.data)) == 20


def test_files_say_whose_they_are(tablet: Written) -> None:
    (flushed,) = tablet.write(PUT)
    written = tablet.data.write_merged({flushed.name}, 77, NOW_MS, drop_deletes=True, check_continue=lambda: None)
    assert parse_name(path_of(flushed.name).name) == (1, False)
    assert parse_name(path_of(written[0].name).name + ".tmp") == (77, True)
    assert parse_name("notes.parquet") is parse_name("c-x") is parse_name("cc7-x") is parse_name("7") is None


def test_a_page_that_is_being_filled_pins_its_segments(tablet: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    (old,) = tablet.write(PUT)
    begun, check_continue = threading.Event(), threading.Event()
    original = Segment._read_block

    def slow(segment: Segment, number: int) -> SortedBlock:
        if segment.ref.name == old.name and threading.current_thread() is reader:
            begun.set()
            assert check_continue.wait(LIMIT_S)
        return original(segment, number)

    monkeypatch.setattr(Segment, "_read_block", slow)
    shown: list[Record] = []
    reader = threading.Thread(target=lambda: shown.extend(scan_all(tablet.data)))
    reader.start()
    assert begun.wait(LIMIT_S)
    tablet.merge(drop_deletes=True)
    assert tablet.data.is_read([old.name])
    check_continue.set()
    reader.join(LIMIT_S)
    assert not tablet.data.is_read([old.name])
    assert shown == scan_all(tablet.data) == [PUT]


# ---- what is merged


def refs(*sizes: int, group: str = "g") -> list[SegmentRef]:
    return [
        SegmentRef(f"{group}-{number:03d}", group, 1, size, b"a", b"b", number, number, number)
        for number, size in enumerate(sizes)
    ]


def sizes_of(picked: Sequence[SegmentRef]) -> list[int]:
    return [ref.bytes for ref in picked]


@pytest.mark.parametrize(
    ("sizes", "picked"),
    [
        ((), []),
        ((5,), []),
        ((5, 5), []),
        ((5, 5, 5), [5, 5, 5]),
        ((100, 5, 4, 6), []),
        ((100, 5, 4, 6, 5), [4, 5, 5, 6]),
        ((1000, 100, 10, 1), []),
        ((30, 10, 10, 10), [10, 10, 10]),
        ((30, 20, 20, 20), [20, 20, 20, 30]),
        (tuple(4**n for n in range(12)), [1, 4, 16]),
    ],
)
def test_segments_of_like_sizes_are_merged_and_the_smallest_when_they_are_too_many(
    sizes: tuple[int, ...], picked: list[int]
) -> None:
    assert sizes_of(pick(refs(*sizes), DEFAULT_PROPERTIES)) == picked


def test_a_merge_has_a_bounded_number_of_inputs() -> None:
    many = refs(*range(1000, 1100))
    assert sizes_of(pick(many, DEFAULT_PROPERTIES)) == list(range(1000, 1000 + INPUTS_MAX))
    wide = parse_properties({"table.compaction.ratio": "1000"})
    assert len(pick(many, wide)) == INPUTS_MAX


def test_a_record_is_rewritten_a_logarithmic_number_of_times() -> None:
    segments: list[SegmentRef] = []
    rewritten = flushes = 0
    for flushes in range(1, 1001):
        segments += [SegmentRef(f"f{flushes}", "g", 1, 100, b"a", b"b", 1, 1, 1)]
        for merge in due_merges(segments, DEFAULT_PROPERTIES):
            total = sum(ref.bytes for ref in merge.inputs)
            rewritten += total
            segments = [ref for ref in segments if ref not in merge.inputs]
            segments.append(SegmentRef(f"m{flushes}", "g", 1, total, b"a", b"b", 1, 1, 1))
    assert len(segments) <= DEFAULT_PROPERTIES.segments_max
    assert rewritten / (100 * flushes) < 8


def test_while_a_tablet_fills_up_only_far_too_many_segments_are_merged() -> None:
    left_alone = DEFAULT_PROPERTIES.segments_max * WHILE_FILLING
    assert due_merges(refs(*[5] * left_alone), DEFAULT_PROPERTIES)
    assert due_merges(refs(*[5] * left_alone), DEFAULT_PROPERTIES, filling=True) == []
    [merge] = due_merges(refs(*[5] * (left_alone + 1)), DEFAULT_PROPERTIES, filling=True)
    assert len(merge.inputs) == left_alone + 1


def test_groups_are_merged_each_for_itself() -> None:
    segments = [*refs(5, 5, 5, group="a"), *refs(9, 9, group="b"), *refs(90, 1, 1, 1, group="c")]
    merges = due_merges(segments, DEFAULT_PROPERTIES)
    assert [(merge.inputs[0].group, len(merge.inputs), merge.whole_group) for merge in merges] == [
        ("a", 3, True),
        ("c", 3, False),
    ]


def test_families_that_are_too_many_to_be_listed_may_be_any() -> None:
    assert families_outside([frozenset({b"f"}), frozenset({b"g"})]) == frozenset({b"f", b"g"})
    assert families_outside([frozenset({b"f"}), None]) is None
    assert families_outside([]) == frozenset()
