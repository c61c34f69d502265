"""Decisions of splits and merges: their writes, the ranks and the order, and the state of the new tablets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bookkeeper.errors import CorruptionError, RefusedError
from bookkeeper.master.splits import split_rules
from bookkeeper.master.splits.split_rules import Change, TabletFacts
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Cell, CellKey, Row
from bookkeeper.metadata.values import VOTER, FlushState, ReplicaCell, SegmentEntry
from bookkeeper.model import Extent, PartialHighWater, RowRange, StreamKey
from bookkeeper.origins import Part, Root, RootIntervals, Runs
from tests.support.faults import fault

STREAM = StreamKey("east", "their/1.wal", "7", "1", 1)
OTHER = StreamKey("east", "their/2.wal", "7", "1", 1)
ROOT = Root("east", "their/1.wal", "7")


def entry(first: bytes, last: bytes, *ranges: RowRange) -> SegmentEntry:
    return SegmentEntry("default", 9, 90, first, last, 1, 9, 5, ranges)


def state(
    high_water: Mapping[StreamKey, int] | None = None,
    segments: Iterable[str] = (),
    *,
    last_seq: int = 9,
    last_time_ms: int = 900,
    wals: Sequence[tuple[str, int]] = (("w1", 9),),
    through: Mapping[str, int] | None = None,
    partial_high_waters: Mapping[StreamKey, tuple[PartialHighWater, ...]] | None = None,
) -> FlushState:
    return FlushState(
        77,
        through or {},
        last_seq,
        last_time_ms,
        high_water or {},
        tuple(wals),
        tuple(segments),
        0,
        partial_high_waters or {},
    )


def facts(
    prev_row: bytes | None,
    end_row: bytes | None,
    flush: FlushState | None = None,
    segments: Mapping[str, SegmentEntry] | None = None,
    dead: Sequence[str] = (),
) -> TabletFacts:
    return TabletFacts(Extent("1", end_row, prev_row), flush, segments or {}, tuple(dead))


def row_of(found: TabletFacts, serial: int = 3) -> Row:
    """The row that says so."""
    cells = {
        keys.PREV_ROW: Cell(1, values.encode_prev_row(found.extent.prev_row)),
        keys.DIR: Cell(1, b"t-00001"),
        keys.SERIAL: Cell(serial, keys.SERIAL_VALUE),
    }
    if found.flush is not None:
        cells[keys.FLUSH] = Cell(77, found.flush.encode())
    cells |= {keys.segment_column(name): Cell(77, known.encode()) for name, known in found.segments.items()}
    cells |= {keys.segment_column(name): Cell(60, entry(b"a", b"z").encode()) for name in found.dead}
    return Row(found.row, cells)


def flush_in(change: Change, row: bytes) -> FlushState:
    (put,) = (put for put in (*change.first, *change.then) if put.key == row)
    return FlushState.decode(put.values[keys.FLUSH])


def segments_in(change: Change, row: bytes) -> dict[str, SegmentEntry]:
    (put,) = (put for put in (*change.first, *change.then) if put.key == row)
    cells = {column.qualifier.decode(): raw for column, raw in put.values.items() if column.family == "segment"}
    return {name: SegmentEntry.decode(raw) for name, raw in cells.items()}


# ---- which tablets change

THREE = [Extent("1", b"g", None), Extent("1", b"p", b"g"), Extent("1", None, b"p")]


@pytest.mark.parametrize(
    ("prev_row", "end_row", "merged"),
    [
        (None, None, THREE),
        (None, b"g", THREE[:1]),
        (None, b"h", THREE[:2]),
        (b"g", None, THREE[1:]),
        (b"f", None, THREE),
        (b"p", b"q", THREE[2:]),
        (b"h", b"i", THREE[1:2]),
    ],
)
def test_merged_are_the_tablets_with_rows_in_the_range(
    prev_row: bytes | None, end_row: bytes | None, merged: list[Extent]
) -> None:
    assert split_rules.to_merge(THREE, RowRange(prev_row, end_row)) == merged


# ---- facts


def test_facts_have_the_content_of_a_row_and_survive_encoding() -> None:
    known = state({STREAM: 4}, ["s1"], partial_high_waters={STREAM: (PartialHighWater(RowRange(b"c", None), 9),)})
    found = facts(b"c", b"m", known, {"s1": entry(b"d", b"e", RowRange(b"c", b"m"))}, ["late"])
    assert split_rules.facts_of(row_of(found)) == found
    assert split_rules.decode_facts(split_rules.encode_facts([found, facts(b"m", None)])) == [found, facts(b"m", None)]  # type: ignore[arg-type]


def test_a_tablet_that_lacks_a_segment_is_not_touched() -> None:
    with pytest.raises(CorruptionError, match="s1"):
        split_rules.facts_of(row_of(facts(None, None, state(segments=["s1"]))))


def test_a_remnant_is_no_tablet() -> None:
    with pytest.raises(CorruptionError):
        split_rules.facts_of(Row(b"1;m", {keys.SERIAL: Cell(4, keys.SERIAL_VALUE)}))


def test_facts_that_fit_in_no_cell_are_refused() -> None:
    many = {f"{'x' * 400}/{number}": entry(b"a", b"z") for number in range(9_000)}
    with pytest.raises(RefusedError, match="compact"):
        split_rules.encode_facts([facts(None, None, state(segments=many), many)])


def test_r1_the_serial_of_a_change_is_above_all_of_its_rows_remnants_included() -> None:
    remnant = Row(b"1;m", {keys.SERIAL: Cell(9, keys.SERIAL_VALUE)})
    assert split_rules.next_serial([row_of(facts(None, None), serial=4), remnant, None]) == 10
    assert split_rules.next_serial([]) == 1


def test_r16_a_reference_is_put_where_it_is_needed_before_it_goes_where_it_was() -> None:
    """After each call, each segment that counts is in a row that counts."""
    split = split_rules.split_change(WHOLE, [b"m"], 4, "s-7")
    merge = split_rules.merge_change(
        [facts(None, b"m", state(segments=["low"]), {"low": SEGMENTS["low"]}), facts(b"m", None)], 4
    )
    for change, named in ((split, {b"1<": set(SEGMENTS)}), (merge, {b"1;m": {"low"}})):
        left = {row: set(names) for row, names in named.items()}
        wanted = set().union(*named.values())
        writes = split_rules.in_order(change)
        assert all(keys.SERIAL in put.values for put in writes[0].puts), "the serial fences earlier holders first"
        for write in writes[1:]:
            for put in write.puts:
                left.setdefault(put.key, set()).update(segments_in(change, put.key))
            for cell in write.deletes:
                if cell.column.family == "segment":
                    left[cell.key].discard(keys.parse_file(cell.column.qualifier))
            assert set().union(*left.values()) >= wanted
        made = [put.key for write in writes[1:] for put in write.puts]
        assert made == sorted(made), "of a split the earlier rows are made before the last one is cut"


def test_of_merged_tablets_one_may_know_nothing_yet() -> None:
    known = state({STREAM: 40}, last_seq=9, last_time_ms=900)
    change = split_rules.merge_change([facts(None, b"m"), facts(b"m", None, known)], 4)
    found = flush_in(change, b"1<")
    assert (found.last_seq, found.last_time_ms, found.last_wals) == (9, 900, (("w1", 9),))
    assert found.high_water.get(STREAM, 0) == 0, "the other one has nothing of the stream"
    assert found.partial_high_waters[STREAM] == (PartialHighWater(RowRange(b"m", None), 40),)
    assert flush_in(split_rules.merge_change([facts(None, b"m"), facts(b"m", None)], 4), b"1<").last_seq == 0


# ---- splits

SEGMENTS = {"low": entry(b"a", b"f"), "both": entry(b"c", b"x"), "high": entry(b"p", b"z")}
WHOLE = facts(None, None, state({STREAM: 40}, SEGMENTS, through={"w1": 9}), SEGMENTS, ["late"])


def test_a_split_copies_to_the_earlier_row_and_then_shrinks_the_later_one() -> None:
    change = split_rules.split_change(WHOLE, [b"m"], 4, "s-7")
    (made,), (left,) = change.first, change.then
    assert (made.key, left.key) == (b"1;m", b"1<")
    assert (made.values[keys.PREV_ROW], made.values[keys.DIR]) == (values.encode_prev_row(None), b"s-7-0")
    assert left.values[keys.PREV_ROW] == values.encode_prev_row(b"m")
    assert keys.DIR not in left.values
    assert change.rows == (b"1;m", b"1<")


def test_r16_cells_that_the_later_row_does_not_need_go_last() -> None:
    change = split_rules.split_change(WHOLE, [b"m"], 4, "s-7")
    assert {cell.key for cell in change.deletes} == {b"1<"}
    assert [keys.parse_file(cell.column.qualifier) for cell in change.deletes] == ["low"]


def test_r1_a_change_writes_above_earlier_holders_and_below_later_ones() -> None:
    change = split_rules.split_change(WHOLE, [b"m"], 4, "s-7")
    assert keys.first_flush_id(3) + 2**32 - 2 < change.rank < keys.first_flush_id(5)
    assert flush_in(change, b"1;m").flush_id == change.rank


def test_each_half_has_the_segments_that_reach_it_and_the_rows_of_them_that_are_its_own() -> None:
    change = split_rules.split_change(WHOLE, [b"m"], 4, "s-7")
    low, high = segments_in(change, b"1;m"), segments_in(change, b"1<")
    assert low == {"low": SEGMENTS["low"], "both": entry(b"c", b"x", RowRange(None, b"m"))}
    assert high == {"high": SEGMENTS["high"], "both": entry(b"c", b"x", RowRange(b"m", None))}
    assert set(flush_in(change, b"1;m").segments) == set(low)
    assert set(flush_in(change, b"1<").segments) == set(high)


def test_r18_r24_each_part_has_the_state_of_the_split_tablet() -> None:
    change = split_rules.split_change(WHOLE, [b"c", b"m"], 4, "s-7")
    for row in (b"1;c", b"1;m", b"1<"):
        found = flush_in(change, row)
        assert (found.high_water, found.last_wals, found.through) == ({STREAM: 40}, (("w1", 9),), {"w1": 9})
        assert (found.last_seq, found.last_time_ms) == (9, 900)


def test_a_tablet_that_was_never_flushed_is_split_as_well() -> None:
    change = split_rules.split_change(facts(b"a", b"z"), [b"m"], 1, "s-7")
    assert (
        flush_in(change, b"1;m")
        == flush_in(change, b"1;z")
        == replace(split_rules.EMPTY_FLUSH_STATE, flush_id=change.rank)
    )


def test_r18_rows_that_are_ahead_stay_so_in_the_half_that_has_them() -> None:
    ahead = {STREAM: (PartialHighWater(RowRange(b"k", b"p"), 60),), OTHER: (PartialHighWater(RowRange(b"t", None), 9),)}
    flush = state({STREAM: 40, OTHER: 1}, partial_high_waters=ahead)
    change = split_rules.split_change(facts(None, None, flush), [b"m"], 4, "s-7")
    assert flush_in(change, b"1;m").partial_high_waters == {STREAM: (PartialHighWater(RowRange(b"k", b"m"), 60),)}
    assert flush_in(change, b"1<").partial_high_waters == {
        STREAM: (PartialHighWater(RowRange(b"m", b"p"), 60),),
        OTHER: (PartialHighWater(RowRange(b"t", None), 9),),
    }


# ---- merges

LEFT = facts(None, b"m", state({STREAM: 40}, ["s1"], last_seq=20, wals=[("w1", 9)], through={"w1": 9}),
             {"s1": entry(b"a", b"f")}, ["late"])  # fmt: skip
RIGHT = facts(b"m", None, state({STREAM: 70, OTHER: 5}, ["s2"], last_time_ms=950, wals=[("w2", 4)]),
              {"s2": entry(b"p", b"z")})  # fmt: skip


def on_hosts(tablet: TabletFacts, directory: str) -> TabletFacts:
    """The tablet with its files in its own directory on two hosts."""
    segments = {f"tables/1/{directory}/{name}": known for name, known in tablet.segments.items()}
    cells = {host: ReplicaCell(f"{directory}-{host}", f"disk-{host}", VOTER) for host in ("h1", "h2")}
    return replace(tablet, segments=segments, voters=cells)


def test_a_merge_on_hosts_gives_the_tablet_a_directory_and_names_the_parts_until_their_files_are_linked() -> None:
    half = on_hosts(replace(RIGHT, dead=("tables/1/t-1/late",)), "t-1")
    shared = {"tables/1/t-1/both": entry(b"c", b"x", RowRange(b"m", None)), **half.segments}
    low = on_hosts(replace(LEFT, segments={"both": entry(b"c", b"x"), **LEFT.segments}), "t-0")
    change = split_rules.merge_on_hosts([low, replace(half, segments=shared)], 4, "m-7")
    (put,) = change.first
    assert put.key == b"1<"
    assert values.decode_dir(put.values[keys.DIR]) == "m-7"
    assert values.decode_parts(put.values[keys.PARTS]) == ("t-0", "t-1")
    assert segments_in(change, b"1<") == {
        "tables/1/m-7/both": entry(b"c", b"x"),
        "tables/1/m-7/s1": LEFT.segments["s1"],
        "tables/1/m-7/s2": RIGHT.segments["s2"],
    }
    assert {*flush_in(change, b"1<").segments} == {*segments_in(change, b"1<")}
    gone = {keys.parse_file(cell.column.qualifier) for cell in change.deletes if cell.key == b"1<"}
    assert gone == {"tables/1/t-1/both", "tables/1/t-1/s2", "tables/1/t-1/late"}
    linked = split_rules.parts_linked(b"1<", 4)
    assert (linked.deletes, linked.puts) == ((CellKey(b"1<", keys.PARTS),), ())
    assert change.rank < linked.rank < keys.first_flush_id(5)


def test_a_merge_puts_everything_into_the_last_row_and_then_takes_the_others_borders_away() -> None:
    change = split_rules.merge_change([LEFT, RIGHT], 4)
    (put,) = change.first
    assert (put.key, change.then) == (b"1<", ())
    assert put.values[keys.PREV_ROW] == values.encode_prev_row(None)
    assert segments_in(change, b"1<") == {**LEFT.segments, **RIGHT.segments}
    assert {cell.key for cell in change.deletes} == {b"1;m"}
    columns = {cell.column for cell in change.deletes}
    assert columns == {
        *(keys.PREV_ROW, keys.DIR, keys.FLUSH),
        *(keys.segment_column("s1"), keys.segment_column("late")),
    }


def test_r1_a_remnant_keeps_its_serial_its_location_and_the_files_it_needs_replicated() -> None:
    columns = {cell.column for cell in split_rules.merge_change([LEFT, RIGHT], 4).deletes}
    assert {column.family for column in columns} == {"tablet", "segment"}
    assert keys.SERIAL not in columns


def test_r24_a_merged_tablet_comes_after_the_last_records_of_all() -> None:
    found = flush_in(split_rules.merge_change([LEFT, RIGHT], 4), b"1<")
    assert found.last_wals == (("w1", 9), ("w2", 4))
    assert (found.last_seq, found.last_time_ms, found.through) == (20, 950, {"w1": 9})


def test_r24_of_two_places_in_one_log_the_later_one_counts() -> None:
    parts = [facts(None, b"m", state(wals=[("w1", 9)])), facts(b"m", None, state(wals=[("w1", 4), ("w2", 1)]))]
    assert flush_in(split_rules.merge_change(parts, 4), b"1<").last_wals == (("w1", 9), ("w2", 1))


def test_r18_a_merged_tablet_has_the_common_high_water_and_the_rows_beyond_it() -> None:
    found = flush_in(split_rules.merge_change([LEFT, RIGHT], 4), b"1<")
    assert found.high_water == {STREAM: 40, OTHER: 0}
    assert found.partial_high_waters == {
        STREAM: (PartialHighWater(RowRange(b"m", None), 70),),
        OTHER: (PartialHighWater(RowRange(b"m", None), 5),),
    }


def test_r18_nothing_is_ahead_when_all_have_the_same() -> None:
    parts = [facts(None, b"m", state({STREAM: 40})), facts(b"m", None, state({STREAM: 40}))]
    found = flush_in(split_rules.merge_change(parts, 4), b"1<")
    assert (found.high_water, found.partial_high_waters) == ({STREAM: 40}, {})


def test_one_file_of_two_tablets_counts_for_the_rows_of_both() -> None:
    halves = split_rules.split_change(WHOLE, [b"m"], 4, "s-7")
    parts = [
        facts(None, b"m", flush_in(halves, b"1;m"), segments_in(halves, b"1;m")),
        facts(b"m", None, flush_in(halves, b"1<"), segments_in(halves, b"1<")),
    ]
    assert segments_in(split_rules.merge_change(parts, 5), b"1<") == SEGMENTS


def test_records_that_one_half_compacted_away_do_not_come_back_by_the_others_reference() -> None:
    halves = split_rules.split_change(WHOLE, [b"f", b"m"], 4, "s-7")
    compacted = facts(b"f", b"m", state(segments=["new"]), {"new": entry(b"g", b"l")})
    parts = [
        facts(None, b"f", flush_in(halves, b"1;f"), segments_in(halves, b"1;f")),
        compacted,
        facts(b"m", None, flush_in(halves, b"1<"), segments_in(halves, b"1<")),
    ]
    found = segments_in(split_rules.merge_change(parts, 5), b"1<")
    assert found["both"].ranges == (RowRange(None, b"f"), RowRange(b"m", None))
    assert found["new"] == entry(b"g", b"l")


# ---- any number of both, against a tablet for each row

ALPHABET = [bytes([letter]) for letter in b"abcdefgh"]


def change_anyhow(data: st.DataObject) -> None:
    """Rows as a reader and a receiver see them: which segments count for each, how far each has the stream, and which
    records of a root it holds. Others cut their tablets otherwise, so what is taken is of any rows that a tablet has.
    """
    tablets = [facts(None, None, state({STREAM: 0}))]
    expected = {row: (set[str](), 0, set[int]()) for row in ALPHABET}
    for serial in range(1, data.draw(st.integers(1, 12))):
        act = data.draw(st.sampled_from(["split", "split", "merge", "write", "compact", "take", "take"]))
        place = data.draw(st.integers(0, len(tablets) - 1))
        rows = [row for row in ALPHABET if tablets[place].extent.contains(row)]
        if act == "split" and len(rows) > 1:
            change = split_rules.split_change(tablets[place], [data.draw(st.sampled_from(rows[:-1]))], serial, "s")
            tablets[place : place + 1] = _after(change)
        elif act == "merge" and place:
            tablets[place - 1 : place + 1] = _after(split_rules.merge_change(tablets[place - 1 : place + 1], serial))
        elif act == "write" and rows:
            tablets[place] = _written(tablets[place], f"s{serial}", rows, serial * 10)
            for row in rows:
                expected[row] = (expected[row][0] | {f"s{serial}"}, serial * 10, expected[row][2])
        elif act == "compact":
            tablets[place] = replace(tablets[place], segments={})
            for row in rows:
                expected[row] = (set(), *expected[row][1:])
        elif act == "take" and rows:
            first, last = sorted(data.draw(st.tuples(st.sampled_from(rows), st.sampled_from(rows))))
            offset = data.draw(st.integers(1, 9))
            tablets[place], common = _taken(tablets[place], RowRange(_before(first), last), offset)
            for row in filter(common.contains, rows):
                expected[row][2].add(offset)
    for before, after in pairwise(tablets):
        assert before.extent.end_row == after.extent.prev_row
    for row, (names, high_water, offsets) in expected.items():
        (home,) = (tablet for tablet in tablets if tablet.extent.contains(row))
        assert {name for name, known in home.segments.items() if _counts(known, row)} == names
        assert _known_of(home, row) == high_water
        assert _held_of(home, row) == offsets, f"{row!r} holds other records"


@given(st.data())
def test_after_any_splits_and_merges_each_row_has_its_own_segments_high_waters_and_records(
    data: st.DataObject,
) -> None:
    change_anyhow(data)


def test_r22_the_search_finds_parts_of_the_same_rows_that_stay_apart() -> None:
    search = settings(max_examples=1500, database=None, phases=[Phase.generate], report_multiple_bugs=False)
    with fault("parts-of-the-same-rows-stay-apart"), pytest.raises(AssertionError, match="holds other records"):
        seed(1)(search(given(st.data())(change_anyhow)))()  # of seeds that find it, one that soon does


def _after(change: Change) -> list[TabletFacts]:
    """The tablets that a change leaves."""
    made = []
    for put in (*change.first, *change.then):
        extent = Extent("1", keys.parse_tablet_row(put.key)[1], values.decode_prev_row(put.values[keys.PREV_ROW]))
        made.append(TabletFacts(extent, flush_in(change, put.key), segments_in(change, put.key), ()))
    return made


def _written(tablet: TabletFacts, name: str, rows: Sequence[bytes], offset: int) -> TabletFacts:
    """A flush after a range of the stream up to ``offset``."""
    assert tablet.flush is not None
    flush = replace(tablet.flush, high_water={STREAM: offset}, partial_high_waters={})
    return replace(tablet, flush=flush, segments={**tablet.segments, name: entry(rows[0], rows[-1])})


def _counts(known: SegmentEntry, row: bytes) -> bool:
    inside = known.min_row <= row <= known.max_row
    return inside and (not known.ranges or any(rows.contains(row) for rows in known.ranges))


def _known_of(tablet: TabletFacts, row: bytes) -> int:
    """Up to which offset the row has the stream."""
    assert tablet.flush is not None
    ahead = [part.offset for part in tablet.flush.partial_high_waters.get(STREAM, ()) if part.rows.contains(row)]
    return max([tablet.flush.high_water[STREAM], *ahead])


def _before(row: bytes) -> bytes | None:
    """The row in front of one of the alphabet's; None for the first."""
    place = ALPHABET.index(row)
    return ALPHABET[place - 1] if place else None


def _taken(tablet: TabletFacts, rows: RowRange, offset: int) -> tuple[TabletFacts, RowRange]:
    """A flush after one record of the root, of any of these rows, and which rows of the tablet they are."""
    assert tablet.flush is not None
    common = rows.part_in(tablet.extent.rows)
    assert common is not None
    held = tablet.flush.origin_intervals.get(ROOT, RootIntervals()).taking(
        Part(common, None, Runs.of((offset, offset))), 0
    )
    return replace(tablet, flush=replace(tablet.flush, origin_intervals={ROOT: held})), common


def _held_of(tablet: TabletFacts, row: bytes) -> set[int]:
    """The records of the root that count as brought in a row."""
    assert tablet.flush is not None
    parts = tablet.flush.origin_intervals.get(ROOT, RootIntervals()).parts
    return {offset for part in parts if part.rows.contains(row) for offset in part.runs.offsets().tolist()}


def test_the_parts_of_a_tablet_on_hosts_have_the_voters_under_new_placements_and_files_of_their_own() -> None:
    name = "tables/1/t-00000/f-1.parquet"
    voters = {host: ReplicaCell(f"p-{host}", f"disk-{host}", VOTER) for host in ("h1", "h2")}
    held = facts(None, None, state(segments=[name]), {name: entry(b"b", b"y")})
    held = replace(held, voters=voters)
    change = split_rules.split_change(held, [b"h", b"m"], 4, "s-7-0-0")
    assert [put.key for put in change.replicas] == [b"1;h", b"1;m"], "the last part keeps the row and the placements"
    for number, put in enumerate(change.replicas):
        assert {column.qualifier: ReplicaCell.decode(raw) for column, raw in put.values.items()} == {
            host.encode(): ReplicaCell(f"s-7-0-0-{number}-{host}", f"disk-{host}", VOTER) for host in ("h1", "h2")
        }
    for number, put in enumerate(change.first):
        flush = FlushState.decode(put.values[keys.FLUSH])
        assert flush.segments == (f"tables/1/s-7-0-0-{number}/f-1.parquet",)
        assert keys.segment_column(flush.segments[0]) in put.values
    (kept,) = change.then
    assert FlushState.decode(kept.values[keys.FLUSH]).segments == (name,)
    assert split_rules.decode_facts(cast("list[dict[str, values.Json]]", split_rules.encode_facts([held]))) == [held]


def test_the_parts_of_a_tablet_on_the_volume_share_its_files_and_have_no_replica() -> None:
    held = facts(None, None, state(segments=["s/1"]), {"s/1": entry(b"b", b"y")})
    change = split_rules.split_change(held, [b"m"], 4, "s-7")
    assert change.replicas == ()
    assert [FlushState.decode(put.values[keys.FLUSH]).segments for put in (*change.first, *change.then)] == [
        ("s/1",),
        ("s/1",),
    ]
