"""The laws of the tserver's side of the books (R1, R12, R15, R24), told by what a store then shows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, Column
from bookkeeper.model import BlockTarget, TargetKey
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.blocks.block_messages import block_target_to_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader, Predecessor
from bookkeeper.storage.wal.writing.seal import Seal
from bookkeeper.tserver.books.wal_cells import BatchPut, Reach, WalBooks, log_deletes
from combiners import (
    CLOSED,
    OPEN,
    ReplicationStatus,
    StatusError,
    append,
    close,
    combine,
    is_fully_replicated,
    range_needing_replication,
)
from tests.support.metadata_model import MetadataModel

WAL = "wal/s/1.wal"
TARGET = block_target_to_pb(BlockTarget(TargetKey("east", "r1", "1", 1), None))
EMPTY = pa.py_buffer(b"")


def block(
    first: int,
    count: int = 1,
    end_row: bytes | None = None,
    stamped: bool = True,
    after: tuple[str, int] | None = None,
    table: str = "1",
) -> Block:
    header = BlockHeader(
        table_id=table,
        end_row=end_row,
        first_offset=first,
        record_count=count,
        block_targets=[TARGET] if stamped else [],
        after=[] if after is None else [Predecessor(file=after[0], offset=after[1])],
    )
    return Block(header, EMPTY)


class Store(MetadataModel):
    """Holds every put against R1."""

    def write(self, put: BatchPut | None) -> None:
        if put is None:
            return
        for row in put.rows:
            for column, value in row.values.items():
                before = self.values.get(CellKey(row.key, column), {}).get(put.rank)
                assert before in (None, value), f"R1: rank {put.rank} of {column} has two values"
        self.put(put.rows, put.rank)

    def shows(self, column: Column, end_row: bytes | None = None) -> bytes | None:
        cell = self.visible().get(CellKey(keys.tablet_row("1", end_row), column))
        return None if cell is None else cell.value

    def status(self, end_row: bytes | None = None) -> ReplicationStatus | None:
        raw = self.shows(keys.repl_column(WAL), end_row)
        return None if raw is None else values.decode_status(raw)

    def is_logged(self, end_row: bytes | None = None) -> bool:
        return self.shows(keys.log_column(WAL), end_row) is not None


class Log:
    """A WAL and its books, driven as the commit thread and the books thread do."""

    def __init__(self) -> None:
        self.store = Store()
        self.books = WalBooks(WAL, created_ms=77)

    def append(self, *blocks: Block) -> None:
        self.store.write(self.books.first_uses(blocks))
        for appended in blocks:
            end_row = appended.header.end_row if appended.header.HasField("end_row") else None
            assert self.store.is_logged(end_row), "R12: appended before its log: cell"
            status = self.store.status(end_row)
            assert not appended.header.block_targets or status is not None, "R12: a stamped block before its repl: cell"
        self.books.appended(blocks)

    def sync(self, offset: int, position: int) -> None:
        self.books.synced(Reach(offset, position))

    def update(self) -> None:
        self.store.write(self.books.needed_update())

    def needed(self, end_row: bytes | None = None) -> int:
        status = self.store.status(end_row)
        assert status is not None
        return status.replication_needed_offset


def test_r12_the_first_block_with_a_target_finds_both_cells_in_the_books() -> None:
    log = Log()
    log.append(block(1))
    status = log.store.status()
    assert status is not None
    assert (status.state, status.replication_needed_offset, status.created_time) == (OPEN, 0, 77)


def test_r12_log_and_repl_go_in_one_row_put() -> None:
    put = WalBooks(WAL, 1).first_uses([block(1)])
    assert put is not None
    (row,) = put.rows
    assert set(row.values) == {keys.log_column(WAL), keys.repl_column(WAL)}, (
        "R12: the log: and repl: cells do not go in one put"
    )
    assert put.rank == keys.first_use_rank(1)


def test_r12_a_table_that_is_not_replicated_has_no_repl_cell() -> None:
    log = Log()
    log.append(block(1, stamped=False))
    assert log.store.status() is None


def test_r12_replication_that_is_enabled_in_the_middle_of_a_log_gets_its_cell() -> None:
    log = Log()
    log.append(block(1, 5, stamped=False))
    log.append(block(6))
    assert log.store.status() is not None


def test_first_uses_are_written_once() -> None:
    log = Log()
    log.append(block(1))
    assert log.books.first_uses([block(2)]) is None


def test_tablets_that_start_in_one_group_share_one_call() -> None:
    put = WalBooks(WAL, 1).first_uses([block(1, 3, b"m"), block(4, 2)])
    assert put is not None
    assert (len(put.rows), put.rank) == (2, keys.first_use_rank(1))


def test_r15_needed_never_passes_what_is_synced() -> None:
    log = Log()
    log.append(block(1, 10))
    log.update()
    assert log.needed() == 0, "R15: the books need what is not synced"
    log.sync(10, 900)
    log.append(block(11, 10))
    log.update()
    status = log.store.status()
    assert status is not None
    assert (status.replication_needed_offset, status.needed_bytes) == (10, 900)


def test_r15_a_first_use_says_no_more_than_is_synced() -> None:
    log = Log()
    log.append(block(1, 4))
    log.sync(4, 400)
    log.append(block(5, 4))
    log.append(block(9, 1, b"m"))
    assert log.needed(b"m") == 4


def test_only_tablets_that_wrote_are_updated_and_only_blocks_with_targets_count() -> None:
    log = Log()
    log.append(block(1, 1, b"a"), block(2, 1, b"b"), block(3, 1, b"c", stamped=False))
    log.sync(3, 30)
    put = log.books.needed_update()
    assert put is not None
    assert [row.key for row in put.rows] == [keys.tablet_row("1", b"a"), keys.tablet_row("1", b"b")]
    log.append(block(4, 1, b"b"))
    log.sync(4, 40)
    put = log.books.needed_update()
    assert put is not None
    assert [row.key for row in put.rows] == [keys.tablet_row("1", b"b")]
    assert log.books.needed_update() is None


def test_a_tablet_with_unsynced_records_stays_due() -> None:
    log = Log()
    log.append(block(1))
    log.sync(1, 10)
    log.append(block(2))
    log.update()
    assert not log.books.is_due()
    log.sync(2, 20)
    assert log.books.is_due()
    log.update()
    assert log.needed() == 2


def test_an_update_that_failed_is_due_again() -> None:
    log = Log()
    log.append(block(1))
    log.sync(1, 10)
    lost = log.books.needed_update()
    assert lost is not None
    log.books.take_back(lost)
    log.update()
    assert log.needed() == 1


def test_r24_the_barrier_is_in_the_books_before_the_block_and_stays_there() -> None:
    log = Log()
    log.append(block(1, 4, b"z"))
    log.append(block(5, 2, after=("w0", 9)))
    expected = [(5, "w0", 9)]
    assert _barriers(log.store.status()) == expected, "R24: the barrier is not in the books"
    log.sync(6, 60)
    log.update()
    assert _barriers(log.store.status()) == expected
    log.store.write(log.books.closing(Seal(6, 60)))
    assert _barriers(log.store.status()) == expected
    assert _barriers(log.store.status(b"z")) == []


def test_r24_a_barrier_of_a_block_that_came_before_replication_was_enabled_is_kept() -> None:
    log = Log()
    log.append(block(1, 4, stamped=False, after=("w0", 9)))
    log.append(block(5, 1))
    assert _barriers(log.store.status()) == [(1, "w0", 9)]


def test_closed_is_above_everything_and_says_the_exact_end() -> None:
    log = Log()
    log.append(block(1, 3), block(4, 1, b"m"), block(5, 1, b"x", stamped=False))
    log.sync(4, 40)
    late = log.books.needed_update()
    log.store.write(log.books.closing(Seal(5, 50)))
    log.store.write(late)
    for end_row in (None, b"m"):
        status = log.store.status(end_row)
        assert status is not None
        assert (status.state, status.replication_needed_offset, status.needed_bytes) == (CLOSED, 5, 50)
    assert log.store.status(b"x") is None


def test_a_log_without_replicated_tablets_needs_no_closing() -> None:
    log = Log()
    log.append(block(1, stamped=False))
    assert log.books.closing(Seal(1, 10)) is None


def test_after_a_flush_the_log_cell_goes_and_a_later_record_brings_it_back() -> None:
    log = Log()
    log.append(block(1, 5))
    log.books.release(("1", None))
    _delete(log.store, {WAL: 5})
    assert not log.store.is_logged()
    log.append(block(6))
    assert log.store.is_logged()


def test_closed_by_the_first_flush_would_end_a_log_that_another_tablet_writes() -> None:
    """ACCUMULO-378 closes with the flush; a log has many tablets, and CLOSED is of the file (R10)."""
    log = Log()
    log.append(block(1, 5), block(6, 1, b"m"))
    log.sync(6, 60)
    log.update()
    log.books.release(("1", None))
    _delete(log.store, {WAL: 6})
    flushed, other = log.store.status(), log.store.status(b"m")
    assert flushed is not None
    assert other is not None
    assert flushed.state == OPEN
    all_there = ReplicationStatus(replication_finished_offset=6)
    assert is_fully_replicated(combine([close(flushed), other, all_there])), "and the file would go"
    log.append(block(7, 1, b"m"))
    log.sync(7, 70)
    log.update()
    written = log.store.status(b"m")
    assert written is not None
    assert range_needing_replication(combine([flushed, written, all_there])) == (7, 7)
    with pytest.raises(StatusError, match="after CLOSED"):
        append(close(flushed), 1)


def test_a_record_that_is_appended_while_its_tablet_is_flushed_keeps_the_log() -> None:
    log = Log()
    log.append(block(1, 5))
    log.books.release(("1", None))
    log.append(block(6, 1, b"m"), block(7))
    _delete(log.store, {WAL: 5})
    assert log.store.is_logged(), "R12: a flush lets the log of a later record go"
    log.books.release(("1", None))
    _delete(log.store, {WAL: 7})
    assert not log.store.is_logged()


def test_a_forgotten_tablet_gets_no_more_cells() -> None:
    log = Log()
    log.append(block(1), block(2, 1, b"m"))
    log.sync(2, 20)
    log.books.forget(("1", b"m"))
    put = log.books.needed_update()
    closing = log.books.closing(Seal(2, 20))
    assert put is not None
    assert closing is not None
    assert {row.key for row in (*put.rows, *closing.rows)} == {keys.tablet_row("1", None)}


def test_positions_know_the_last_record_of_each_table() -> None:
    log = Log()
    log.append(block(1, 4), block(5, 2, b"m"))
    assert log.books.tables == {"1": 6}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from([b"a", b"b", None]), st.booleans()),
        st.tuples(st.just("sync")),
        st.tuples(st.just("update")),
        st.tuples(st.just("flush"), st.sampled_from([b"a", b"b", None])),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_whatever_happens_in_whatever_order_the_books_hold_what_recovery_and_replication_need(
    steps: Sequence[tuple[object, ...]],
) -> None:
    log = Log()
    unflushed: dict[bytes | None, int] = {}
    stamped_through: dict[bytes | None, int] = {}
    written = synced = 0
    for step in steps:
        match step:
            case ("append", end_row, stamped):
                written += 1
                log.append(block(written, 1, end_row, bool(stamped)))  # type: ignore[arg-type]
                unflushed[end_row] = written  # type: ignore[index]
                if stamped:
                    stamped_through[end_row] = written  # type: ignore[index]
            case ("sync",):
                synced = written
                log.sync(synced, synced * 10)
            case ("update",):
                log.update()
            case ("flush", end_row):
                log.books.release(("1", end_row))  # type: ignore[arg-type]
                if end_row in unflushed:
                    _delete(log.store, {WAL: unflushed.pop(end_row)}, end_row)
        for end_row in unflushed:
            assert log.store.is_logged(end_row)
        for end_row in stamped_through:
            assert log.needed(end_row) <= synced
    log.sync(written, written * 10)
    log.update()
    for end_row, offset in stamped_through.items():
        assert log.needed(end_row) >= offset


def test_deletes_of_a_flush_have_the_rank_of_each_log() -> None:
    row = keys.tablet_row("1", None)
    assert log_deletes(row, {"w2": 3, "w1": 9, "w0": 0}) == [
        (CellKey(row, keys.log_column("w1")), keys.log_delete_rank(9)),
        (CellKey(row, keys.log_column("w2")), keys.log_delete_rank(3)),
    ]


def _delete(store: Store, through: dict[str, int], end_row: bytes | None = None) -> None:
    for cell, rank in log_deletes(keys.tablet_row("1", end_row), through):
        store.delete([cell], rank)


def _barriers(status: ReplicationStatus | None) -> list[tuple[int, str, int]]:
    assert status is not None
    return [(b.offset, b.file, b.until_offset) for b in status.barriers]
