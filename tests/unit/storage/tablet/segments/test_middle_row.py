"""The row near the middle of a tablet, from row groups alone: balanced whenever they allow it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.model import Extent, RowRange
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.segments.middle_row import (
    CERTAIN_PART_MIN,
    Piece,
    SegmentGroups,
    counted_pieces,
    find_middle,
    middle_row,
)
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.tablet.tablet_resources import TabletResources
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from tests.support.tablet_model import Record, to_batch
from tests.support.volumes import MACHINE, name_at

ALL = RowRange(None, None)
LONGEST = 16 * 1024

Rows = list[tuple[bytes, int]]
"""Rows with their bytes, ascending."""

uneven_bytes = st.one_of(st.integers(1, 20), st.sampled_from([200, 3_000]))
file_rows = st.dictionaries(st.binary(min_size=1, max_size=3), uneven_bytes, min_size=1, max_size=40)
files = st.lists(st.tuples(file_rows, st.integers(1, 6)), min_size=1, max_size=4)


def in_groups(rows: Rows, size: int, ranges: tuple[RowRange, ...] = ()) -> SegmentGroups:
    """A segment with so many rows in each row group."""
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    groups = [(part[0][0], part[-1][0], sum(found for _, found in part)) for part in parts]
    return SegmentGroups(sum(found for _, found in rows), ranges, groups)


def certain_part(pieces: Sequence[Piece], row: bytes) -> int:
    """The bytes that lie certainly on the smaller side of a split at the row."""
    below = sum(piece.size_bytes for piece in pieces if piece.high <= row)
    return min(below, sum(piece.size_bytes for piece in pieces if piece.low > row))


@given(files)
def test_both_halves_get_a_quarter_to_three_quarters_unless_a_row_or_the_index_forbids_it(
    found: list[tuple[dict[bytes, int], int]],
) -> None:
    segments = [in_groups(sorted(rows.items()), size) for rows, size in found]
    entries = [entry for rows, _ in found for entry in rows.items()]
    total = sum(size for _, size in entries)
    middle = find_middle(segments, ALL, LONGEST)
    assert middle.size_bytes == total
    assert middle.shared_bytes == 0
    pieces = [piece for segment in segments for piece in counted_pieces(segment, ALL)]
    allowed = max(certain_part(pieces, row) for row, _ in entries)
    assert (middle.row is not None) == (allowed * CERTAIN_PART_MIN >= total), "a split row is missed, or useless"
    assert (middle.row is None) == bool(middle.reason)
    if middle.row is not None:
        below = sum(size for row, size in entries if row <= middle.row)
        assert allowed <= below <= total - allowed, "another row divides the bytes better for certain"
        if 4 * allowed >= total:
            assert total <= 4 * below <= 3 * total, "a half has less than a quarter of the bytes"


@given(files, st.sets(st.binary(min_size=1, max_size=3), min_size=1, max_size=3))
def test_a_tablet_counts_its_own_part_of_shared_files_and_is_split_inside(
    found: list[tuple[dict[bytes, int], int]], borders: set[bytes]
) -> None:
    ends = [None, *sorted(borders), None]
    tablets = [RowRange(prev, end) for prev, end in pairwise(ends)]
    counted = 0
    for rows in tablets:
        middle = find_middle([in_groups(sorted(r.items()), size, (rows,)) for r, size in found], rows, LONGEST)
        assert middle.shared_bytes == middle.size_bytes
        counted += middle.size_bytes
        if middle.row is not None:
            assert rows.contains(middle.row), "the split row lies in another tablet"
            assert middle.row != rows.end_row, "a split at the end of a tablet changes nothing"
    total = sum(size for rows, _ in found for size in rows.values())
    straddled = max(sum(rows.values()) for rows, _ in found) * len(found) * len(borders)
    assert counted <= total + straddled


def test_a_row_group_beyond_the_tablet_counts_half() -> None:
    segment = SegmentGroups(100, (RowRange(b"m", None),), [(b"a", b"k", 30), (b"l", b"p", 40), (b"q", b"z", 30)])
    assert counted_pieces(segment, RowRange(b"m", None)) == [Piece(b"m\x00", b"p", 20), Piece(b"q", b"z", 30)]


def test_the_tail_of_a_file_is_shared_among_its_row_groups() -> None:
    segment = SegmentGroups(110, (), [(b"a", b"k", 30), (b"l", b"p", 70)])
    assert [piece.size_bytes for piece in counted_pieces(segment, ALL)] == [33, 77]


def test_a_row_with_nearly_all_bytes_is_named() -> None:
    giant = [(b"giant", b"giant", 100)] * 30
    middle = find_middle([SegmentGroups(3_020, (), [(b"a", b"f", 10), *giant, (b"h", b"z", 10)])], ALL, LONGEST)
    assert middle.row is None
    assert "row b'giant' has 3000 of its 3020 bytes" in middle.reason


def test_one_row_group_can_not_be_divided() -> None:
    middle = find_middle([SegmentGroups(500, (), [(b"a", b"z", 500)])], ALL, LONGEST)
    assert middle.row is None
    assert "too few row groups to divide its 500 bytes, and a compaction makes no more" in middle.reason


def test_a_tablet_without_segments_has_no_middle() -> None:
    assert find_middle([], ALL, LONGEST).row is None


def test_rows_that_no_tablet_may_end_with_are_left_out() -> None:
    pieces = [Piece(bytes([letter]) * 9, bytes([letter]) * 9, 10) for letter in b"abcd"]
    short = [Piece(b"x", b"x", 10), Piece(b"y", b"y", 10)]
    assert middle_row([*pieces, *short], None, 9) == b"c" * 9
    assert middle_row([*pieces, *short], None, 8) == b"x"
    assert middle_row([Piece(b"", b"", 10), Piece(b"a", b"a", 10)], None, 8) is None


@pytest.mark.parametrize("groups", [{}, {"one": [b"f"], "two": [b"g"]}], ids=["one group", "two groups"])
def test_a_tablet_of_real_segments_is_divided_by_all_its_locality_groups(
    tmp_path: Path, groups: dict[str, list[bytes]]
) -> None:
    resources = TabletResources(settings=TabletSettings(row_group_records=8))
    tablet = TabletData(Extent("1", None, None), GroupMap(groups), MACHINE, name_at(tmp_path / "t"), (), resources)
    rows = [b"%04d" % number for number in range(400)]
    for part in (rows[::2], rows[1::2]):
        records = [Record(row, family, b"q", b"", 1, False, row * 40) for row in part for family in (b"f", b"g")]
        tablet.apply(to_batch(records), 1 if part[0] == rows[0] else 1_000)
        frozen = tablet.begin_flush()
        assert frozen is not None
        tablet.finish_flush(frozen, tablet.write_segments(frozen, 1))
    middle = tablet.middle(LONGEST)
    assert middle.row is not None
    assert rows[150] < middle.row < rows[250]
    assert middle.size_bytes == pytest.approx(sum(ref.bytes for ref in tablet.segments), rel=0.01)
