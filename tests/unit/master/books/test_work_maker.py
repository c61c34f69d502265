"""The merge-join and its writes: only changes, no purge, and complete keys decide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import combiners
from bookkeeper.master.books.finished import is_complete
from bookkeeper.master.books.work_maker import RankWatch, RowChange, changed_value, is_unconfigured, join, make_work
from bookkeeper.master.index.file_entry import FileEntry
from bookkeeper.master.index.target_progress import NO_PROGRESS, Progress
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Cell, Column, Row
from bookkeeper.model import TargetKey
from combiners import ReplicationStatus
from tests.support.master_values import EAST, NORTH, books_row, by_name, entry, name, scopes, status_value
from tests.support.status_strategies import statuses

W1, W2, W3 = name("s1"), name("s2"), name("s3")
BOTH = scopes(EAST, NORTH)
OLD = TargetKey("east", "r0", "1", 9)


def _make(
    made: FileEntry, row: Row | None, configured: frozenset[TargetKey] = frozenset({EAST, NORTH})
) -> RowChange | None:
    return make_work(made, row, configured, RankWatch(), [])


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_the_join_meets_every_file_and_every_row_once_and_in_order(files: set[int], rows: set[int]) -> None:
    named = {number: name("s", number) for number in files | rows}
    held = by_name(*(entry(named[number], 1) for number in files))
    joined = list(join(held, [books_row(named[number]) for number in sorted(rows)]))
    assert [file for file, _, _ in joined] == sorted(named.values())
    for file, found, row in joined:
        assert (found is not None) == (file in held)
        assert (row is not None) == (file in {named[number] for number in rows})


def test_a_file_gets_a_needed_cell_for_each_configured_target() -> None:
    change = _make(entry(W1, 5, known=BOTH), None)
    assert change is not None
    assert change.puts == dict.fromkeys(map(keys.needed_column, (EAST, NORTH)), status_value(5))
    assert change.key == keys.repl_row(W1.decode())


def test_a_file_without_targets_gets_no_row() -> None:
    assert _make(entry(W1, 5, known=scopes(TargetKey("east", "r", "9", 1))), None) is None


def test_only_what_changed_is_written() -> None:
    row = books_row(W1, {EAST: status_value(5), NORTH: status_value(3)})
    change = _make(entry(W1, 5, known=BOTH), row)
    assert change is not None
    assert change.puts == {keys.needed_column(NORTH): status_value(5)}
    unchanged = books_row(W1, {EAST: status_value(5), NORTH: status_value(5)})
    assert _make(entry(W1, 5, known=BOTH), unchanged) is None


def test_equal_messages_in_other_bytes_are_no_change() -> None:
    padded = status_value(5) + b"\x18\x00"
    assert ReplicationStatus.FromString(padded).replication_finished_offset == 0
    assert changed_value(padded, status_value(5)) is None


@given(statuses(), statuses())
def test_a_written_value_folds_the_cell_and_the_snapshot(written: ReplicationStatus, known: ReplicationStatus) -> None:
    value = changed_value(values.encode_status(written), values.encode_status(known))
    result = written if value is None else values.decode_status(value)
    assert combiners.combine([result]) == combiners.combine([written, known])


def test_a_target_that_is_configured_no_more_loses_its_column_and_keeps_its_finished_side() -> None:
    row = books_row(W1, {EAST: status_value(5), OLD: status_value(4)}, {OLD: 3})
    change = _make(entry(W1, 5), row)
    assert change is not None
    assert [cell.column for cell in change.deletes] == [keys.needed_column(OLD)]


def test_a_target_of_a_table_that_does_not_refer_to_the_file_keeps_its_column() -> None:
    assert not is_unconfigured(keys.needed_column(NORTH), {EAST, NORTH})
    assert is_unconfigured(keys.needed_column(OLD), {EAST, NORTH})
    assert is_unconfigured(Column("repl", b"garbage"), {EAST, NORTH})


def test_progress_is_read_from_done_cells_and_only_of_targets_that_count() -> None:
    made = entry(W1, 5, known=BOTH)
    _make(made, books_row(W1, {}, {EAST: 5, OLD: 3}))
    assert made.progress_of(EAST) == Progress(5, 500)
    assert made.progress_of(NORTH) == NO_PROGRESS


def test_garbage_in_a_done_cell_counts_as_nothing_and_is_named() -> None:
    made, problems = entry(W1, 5), list[str]()
    row = Row(keys.REPL_PREFIX + W1, {keys.done_column(EAST): Cell(4, b"\xff")})
    make_work(made, row, {EAST}, RankWatch(), problems)
    assert made.progress_of(EAST).offset == 0
    assert "no replication status" in problems[0]


def test_the_highest_rank_of_needed_cells_is_noted_and_done_ranks_are_not() -> None:
    watch = RankWatch()
    make_work(
        entry(W1, 5),
        books_row(W1, {EAST: status_value(5), OLD: status_value(1)}, {EAST: 999}, rank=17),
        {EAST},
        watch,
        [],
    )
    assert watch.highest == 17
    watch.observe(books_row(W2, {EAST: status_value(5)}, rank=99))
    assert watch.highest == 99


@pytest.mark.parametrize(
    ("closed", "done", "complete"),
    [
        (True, {EAST: 5, NORTH: 5}, True),
        (True, {EAST: 5, NORTH: 4}, False),
        (True, {EAST: 5}, False),
        (False, {EAST: 5, NORTH: 5}, False),
    ],
)
def test_a_file_is_complete_when_it_is_closed_and_every_target_has_all_of_it(
    closed: bool, done: dict[TargetKey, int], complete: bool
) -> None:
    assert is_complete(entry(W1, 5, closed=closed, done=done, known=BOTH)) == complete


def test_a_closed_file_without_targets_is_complete() -> None:
    assert is_complete(entry(W3, 5, closed=True, known=scopes(TargetKey("east", "r", "9", 1))))
