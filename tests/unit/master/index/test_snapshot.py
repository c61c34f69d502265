"""One scan of all tablet rows: its folds, its carried state, and its restarts (R16, R24)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from bookkeeper.errors import CorruptionError
from bookkeeper.master.index.barriers import FileBarrier
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.snapshot import BrokenChainError, Snapshot, take_snapshot
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Cell, Row
from bookkeeper.model import Barrier, TargetKey
from tests.support.faults import fault
from tests.support.master_values import EAST, name, scopes, status_value, tablet_row

W1, W2 = name("s1"), name("s2")
KNOWN = scopes(EAST, TargetKey("east", "r2", "2", 2))


def _take(
    rows: Sequence[Row], cycle: int = 1, online: Sequence[str] = ("1",), before: Outstanding | None = None
) -> Snapshot:
    return take_snapshot(rows, cycle, KNOWN, online, before or Outstanding())


def test_cells_of_one_file_are_folded_with_its_tables() -> None:
    rows = [
        tablet_row(None, None, {W1: status_value(3), W2: status_value(9, True)}),
        tablet_row(b"m", None, {W1: status_value(5)}, table_id="2"),
        tablet_row(None, b"m", {W1: status_value(4)}, table_id="2"),
    ]
    seen = _take(rows, online=("1", "2"))
    assert (seen.files[W1].needed, seen.files[W1].scope.table_ids) == (5, ("1", "2"))
    assert (seen.files[W2].needed, seen.files[W2].closed_in, seen.files[W2].scope.table_ids) == (9, 1, ("1",))
    assert {cell.row for cell in seen.open_cells[W1]} == {b"1<", b"2;m", b"2<"}
    assert W2 not in seen.open_cells


def test_a_row_in_parts_gives_the_same_snapshot() -> None:
    cells = {W1: status_value(3), W2: status_value(9, True)}
    rows = [tablet_row(b"m", None, cells, session="s1"), _remnant(b"p", cells), tablet_row(None, b"m", cells)]
    parts = [Row(row.key, dict([item])) for row in rows for item in sorted(row.cells.items())]
    assert len(parts) > 2 * len(rows)
    whole, folded = _take(rows), _take(parts)
    assert (folded.tablets, folded.open_cells) == (whole.tablets, whole.open_cells)
    assert folded.highest_rank == whole.highest_rank > 0
    facts = [
        {entry.file: (entry.status, entry.closed_in, entry.barriers, entry.scope) for entry in seen.files.values()}
        for seen in (whole, folded)
    ]
    assert facts[0] == facts[1]
    with pytest.raises(BrokenChainError):
        _take([part for part in parts if part.key != b"1;m"])


def test_one_closed_cell_closes_the_file_whatever_the_others_say() -> None:
    rows = [tablet_row(b"m", None, {W1: status_value(3)}), tablet_row(None, b"m", {W1: status_value(7, True)})]
    for order in (rows, [tablet_row(b"m", None, {W1: status_value(7, True)}), rows[1]]):
        seen = _take(order)
        assert seen.files[W1].is_closed()
        assert not seen.open_cells


def _remnant(end: bytes, repl: Mapping[bytes, bytes]) -> Row:
    """The remnant of a tablet that was merged into a later one."""
    row = tablet_row(end, None, repl, session="s1")
    gone = {keys.PREV_ROW, keys.DIR}
    return Row(row.key, {c: cell for c, cell in row.cells.items() if c not in gone})


def test_the_repl_cells_of_a_remnant_count_and_it_is_no_link_of_the_chain() -> None:
    rows = [
        _remnant(b"g", {W1: status_value(3), W2: status_value(2)}),
        tablet_row(b"m"),
        _remnant(b"p", {W1: status_value(5)}),
        tablet_row(None, b"m", {W1: status_value(4)}),
    ]
    seen = _take(rows)
    assert (seen.files[W1].needed, seen.files[W2].needed) == (5, 2)
    assert set(seen.tablets) == {b"1;m", b"1<"}
    assert {cell.row for cell in seen.open_cells[W1]} == {b"1;g", b"1;p", b"1<"}
    with (
        pytest.raises(BrokenChainError, match="after row b'g' comes a tablet from None"),
        fault("remnants-are-tablets"),
    ):
        _take(rows)


def test_a_parked_tablet_has_no_session_and_its_last_one_reads_it() -> None:
    parked = values.Location("s1", "").encode()
    row = tablet_row(None, None, {W1: status_value(3)})
    seen = _take([Row(row.key, {**row.cells, keys.LOCATION: Cell(5, parked)})])
    (view,) = seen.tablets.values()
    assert (view.session, view.address, view.parked_at) == (None, None, "s1")
    assert seen.tablets_of_session() == {"s1": {b"1<": None}}, "it may have begun to use a log a moment ago"


def test_offsets_of_the_scan_before_are_safe() -> None:
    first = _take([tablet_row(None, None, {W1: status_value(3)})])
    assert first.files[W1].safe == 0
    second = _take([tablet_row(None, None, {W1: status_value(8)})], 2, before=first.files)
    assert second.files[W1].safe == 3
    third = _take([tablet_row(None, None, {W1: status_value(8)})], 3, before=second.files)
    assert third.files[W1].safe == 8


def test_a_barrier_that_the_scan_has_passed_already_keeps_nothing_unsafe_from_waiting() -> None:
    """Tablet 1;m is read, then begins to use the file at offset 4, behind a barrier, then tablet 1< shows needed 9."""
    before = _take([tablet_row(b"m"), tablet_row(None, b"m", {W1: status_value(3)})])
    torn = _take([tablet_row(b"m"), tablet_row(None, b"m", {W1: status_value(9)})], 2, before=before.files)
    assert torn.files[W1].barriers == ()
    assert torn.files[W1].safe == 3, "what lies behind the barrier that was missed is not shipped"
    with fault("unsafe-offsets-travel"):
        torn = _take([tablet_row(b"m"), tablet_row(None, b"m", {W1: status_value(9)})], 2, before=before.files)
    assert torn.files[W1].safe == 9, "without it records overtake the barrier"


def test_the_cycle_that_first_saw_a_file_closed_is_remembered() -> None:
    first = _take([tablet_row(None, None, {W1: status_value(3, True)})], 5)
    second = _take([tablet_row(None, None, {W1: status_value(3, True)})], 6, before=first.files)
    third = _take([tablet_row(None, None, {W1: status_value(3, True)})], 7, before=second.files)
    assert [seen.files[W1].closed_in for seen in (first, second, third)] == [5, 5, 5]


def test_a_settled_file_is_carried_over_without_reading_its_cells() -> None:
    rows = [tablet_row(None, None, {W1: status_value(3, True)})]
    second = _take(rows, 2, before=_take(rows).files)
    assert second.files[W1].is_settled()
    garbled = _take([tablet_row(None, None, {W1: b"\xff"})], 3, before=second.files)
    assert garbled.files[W1] is second.files[W1]
    assert (garbled.problems, garbled.fresh) == ([], [])


def test_a_settled_file_gets_the_tables_that_refer_to_it_now() -> None:
    one = [tablet_row(None, None, {W1: status_value(3, True)}), tablet_row(None, None, table_id="2")]
    two = [one[0], tablet_row(None, None, {W1: status_value(3, True)}, table_id="2")]
    settled = _take(one, 2, ("1", "2"), _take(one, 1, ("1", "2")).files)
    both = _take(two, 3, ("1", "2"), settled.files)
    assert both.files[W1].scope.table_ids == ("1", "2")
    assert settled.files[W1].scope.table_ids == ("1",), "the snapshot before stays as it is"
    assert both.files[W1].closed_in == 1
    less = _take(one, 4, ("1", "2"), _take(two, 3, ("1", "2"), both.files).files)
    assert less.files[W1].scope.table_ids == ("1",)


def test_barriers_of_finished_files_are_dropped() -> None:
    value = status_value(9, False, [Barrier(4, W1.decode(), 3)])
    both = _take([tablet_row(None, None, {W1: status_value(3, True), W2: value})])
    assert both.files[W2].barriers == (FileBarrier(4, W1, 3),)
    assert _take([tablet_row(None, None, {W2: value})], 2, before=both.files).files[W2].barriers == ()


def test_garbage_in_a_cell_is_named_and_keeps_the_file() -> None:
    seen = _take([tablet_row(None, None, {W1: b"\xff", W2: status_value(1)})])
    assert "s1/000001.wal" in seen.problems[0]
    assert not seen.files[W1].is_closed()
    assert seen.files[W2].needed == 1


def test_a_row_that_is_no_tablet_row_is_corruption() -> None:
    with pytest.raises(CorruptionError):
        _take([Row(b"nonsense", tablet_row(None).cells)])


MERGE_HALF_WAY = [tablet_row(b"m"), tablet_row(None, b"p", {W1: status_value(3)})]


@pytest.mark.parametrize(
    "rows",
    [
        MERGE_HALF_WAY,
        [tablet_row(b"m")],
        [tablet_row(None, b"m")],
        [tablet_row(b"m"), tablet_row(b"p", None), tablet_row(None, b"p")],
        [],
        [tablet_row(b"m"), tablet_row(None, None, table_id="2")],
    ],
    ids=["gap", "no last", "no first", "overlap", "nothing", "cut by the next table"],
)
def test_tablets_that_do_not_join_up_make_the_scan_start_over(rows: Sequence[Row]) -> None:
    with pytest.raises(BrokenChainError):
        _take(rows)


def test_tables_that_are_not_online_may_be_incomplete() -> None:
    assert set(_take(MERGE_HALF_WAY, online=()).files) == {W1}


def test_without_the_chain_a_reference_that_a_merge_moved_is_missed() -> None:
    """The scan has read the later row before a merge moved the reference there, and finds the earlier one gone."""
    with fault("broken-chains-pass"):
        seen = _take([tablet_row(None, b"m")])
    assert not seen.files, "the file looks as if nobody needed it"


def test_the_highest_rank_of_a_location_is_noted() -> None:
    seen = _take([tablet_row(b"m", None, session="s1", rank=77), tablet_row(None, b"m", session="s2", rank=5)])
    assert seen.highest_rank == 77
    assert seen.tablets_of_session() == {"s1": {b"1;m": None}, "s2": {b"1<": None}}
