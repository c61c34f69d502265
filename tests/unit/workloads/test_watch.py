"""The watch sees what must never be, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import combiners
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Cell, CellKey, Row, RowPut
from bookkeeper.metadata.sqlite.sqlite_store import SqliteMetadataTable
from bookkeeper.model import PartialHighWater, RowRange, StreamKey, TargetKey
from combiners import ReplicationStatus
from tests.soak.high_waters import fell_back, high_waters
from tests.soak.watch import Watch
from tests.support.books import sqlite_books

FILE = "wal/tserver-1-a/000001.wal"
EAST = TargetKey("east", "2", "1", 1)
ROW = keys.repl_row(FILE)


@pytest.fixture
def books(tmp_path: Path) -> Iterator[SqliteMetadataTable]:
    with closing(sqlite_books(tmp_path / "metadata.db")) as table:
        yield table


def needed(books: SqliteMetadataTable, offset: int) -> None:
    status = combiners.close(combiners.append(ReplicationStatus(), offset))
    books.put([RowPut(ROW, {keys.needed_column(EAST): values.encode_status(status)})], keys.master_rank(1, 1))


def finished(books: SqliteMetadataTable, offset: int, rank: int) -> None:
    status = ReplicationStatus(replication_finished_offset=offset)
    books.put([RowPut(ROW, {keys.done_column(EAST): values.encode_status(status)})], rank)


def test_a_target_that_goes_forward_to_the_end_is_as_it_should_be(books: SqliteMetadataTable) -> None:
    watch = Watch("west", books, lambda _: True)
    needed(books, 9)
    watch.look()
    for offset in (3, 9):
        finished(books, offset, offset)
        watch.look()
    gone = Watch("west", books, lambda _: False)
    gone.look()
    assert watch.lines == gone.lines == []


def test_a_target_that_goes_back_is_seen(books: SqliteMetadataTable) -> None:
    watch = Watch("west", books, lambda _: True)
    needed(books, 9)
    finished(books, 5, 1)
    watch.look()
    finished(books, 4, 2)
    watch.look()
    (line,) = watch.lines
    assert line.startswith("west: finished")
    assert line.endswith("went back from 5 to 4")


def test_a_log_that_is_gone_too_early_is_seen(books: SqliteMetadataTable) -> None:
    watch = Watch("west", books, lambda _: False)
    needed(books, 9)
    finished(books, 8, 1)
    watch.look()
    assert watch.lines == [f"west: {FILE} is gone, and a target lacks a part of it"]
    books.delete([CellKey(ROW, keys.needed_column(EAST))], keys.master_rank(1, 2))
    watch.look()
    assert len(watch.lines) == 1


def test_a_target_with_more_than_there_is_is_seen(books: SqliteMetadataTable) -> None:
    watch = Watch("west", books, lambda _: True)
    needed(books, 9)
    finished(books, 10, 1)
    watch.look()
    assert watch.lines == [f"west: {FILE} is finished up to 10, and ends at 9"]


def test_a_tablet_that_is_in_an_older_state_is_seen(books: SqliteMetadataTable) -> None:
    watch = Watch("west", books, lambda _: True)
    for rank, flush_id in ((1, 8), (2, 9), (3, 7)):
        state = values.FlushState(flush_id, {}, 1, 1, {}, ())
        cells = {keys.DIR: values.encode_dir("t-00001"), keys.FLUSH: state.encode()}
        cells[keys.PREV_ROW] = values.encode_prev_row(None)
        books.put([RowPut(keys.tablet_row("1", None), cells)], rank)
        watch.look()
    (line,) = watch.lines
    assert line.endswith("went back from 9 to 7")


STREAM = StreamKey("west-1", FILE, "1", "1", 1)


def tablet(prev_row: bytes | None, end_row: bytes | None, offset: int, *ahead: PartialHighWater) -> Row:
    state = values.FlushState(1, {}, 1, 1, {STREAM: offset}, (), partial_high_waters={STREAM: ahead} if ahead else {})
    cells = {keys.PREV_ROW: values.encode_prev_row(prev_row), keys.FLUSH: state.encode()}
    return Row(keys.tablet_row("1", end_row), {column: Cell(1, value) for column, value in cells.items()})


def test_a_merged_tablet_with_rows_that_are_further_has_not_fallen_back() -> None:
    before = high_waters([tablet(None, b"m", 3), tablet(b"m", None, 9)])
    merged = high_waters([tablet(None, None, 3, PartialHighWater(RowRange(b"m", None), 9))])
    assert fell_back(before, merged) == fell_back(merged, before) == []


def test_rows_that_fall_back_in_a_merge_or_a_split_are_seen() -> None:
    before = high_waters([tablet(None, b"m", 3), tablet(b"m", None, 9)])
    (line,) = fell_back(before, high_waters([tablet(None, None, 3)]))
    assert line == f"table 1, rows up to None: {STREAM} went back from 9 to 3"
    (line,) = fell_back(before, high_waters([tablet(None, b"c", 3), tablet(b"c", b"m", 2), tablet(b"m", None, 9)]))
    assert line == f"table 1, rows up to b'm': {STREAM} went back from 3 to 2"


def test_a_stream_that_was_forgotten_has_not_fallen_back() -> None:
    assert fell_back(high_waters([tablet(None, None, 9)]), {}) == []


def test_another_law_is_broken_when_two_looks_say_the_same(books: SqliteMetadataTable) -> None:
    said = iter([["a", "b"], ["b", "c"]])
    watch = Watch("west", books, lambda _: True, lambda _name, _rows: next(said))
    watch.look()
    assert watch.lines == ["west: b"]
