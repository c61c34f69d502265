"""One or two tservers inside the test: the edges of the commit path, with stores that fail and threads that race."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bookkeeper.errors import (
    ConflictError,
    CorruptionError,
    InvalidInputError,
    NotFoundError,
    NotLeaderError,
    NotServingError,
    RefusedError,
    TransientError,
)
from bookkeeper.master.books import wal_closer
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Cell, RowPut
from bookkeeper.model import Extent, HostIdentity, StreamKey
from bookkeeper.rpc.contract.messages import TabletAssignment, WriteBatch
from bookkeeper.storage.volume.file_ops import FileOps
from bookkeeper.storage.wal.blocks.block import Block, encode_batch
from bookkeeper.storage.wal.reading.wal_recovery import file_summary, recover
from bookkeeper.storage.wal.writing.seal import read_seal
from bookkeeper.tserver.commit.submission import Submission
from bookkeeper.tserver.write.commit_path import CommitPath
from combiners import CLOSED
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.tservers import (
    Ground,
    ground,
    logs_in_row,
    needed_of,
    own_blocks,
    records,
    state_of,
    status_of,
    wait_until,
)

pytestmark = pytest.mark.integration

STREAM = StreamKey("east-instance", "their/1.wal", "7", "1", 1)
PATIENCE_S = 30.0


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20, "rpc.threads_max": 16}) as made:
        yield made


# ---- the disk of the host


def test_p10_an_older_copy_of_a_hosts_disk_counts_as_wiped(west: Ground, tmp_path: Path) -> None:
    replicas, copied = west.settings.replicas_dir, tmp_path / "copied"

    def started() -> HostIdentity:
        node = west.local()
        (info,) = (one for one in west.coordination.sessions("tserver") if one.session_id == node.session_id)
        node.stop()
        assert info.host is not None
        return info.host

    original = started()
    shutil.copytree(replicas, copied)
    assert started() == original
    assert west.coordination.number(f"starts/{original.name}") == 2
    shutil.rmtree(replicas)
    copied.rename(replicas)
    assert started().incarnation != original.incarnation, "an older copy passes for the original"
    assert west.coordination.number(f"starts/{original.name}") == 3


# ---- writing and flushing


def test_what_was_written_is_read_before_and_after_a_flush(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    assert west.write(node, extent, records([(b"a", b"1"), (b"b", b"2")])) == ()
    west.tserver(node).flush_tablet(extent)
    west.write(node, extent, records([(b"a", b"3")]))
    west.write(node, extent, records([(b"b", b"")], delete=True))
    assert west.scan(node, extent) == {(b"a", b"f", b"q"): b"3"}
    west.tserver(node).flush_tablet(extent)
    assert west.scan(node, extent) == {(b"a", b"f", b"q"): b"3"}
    node.stop()


def test_a_clean_end_leaves_nothing_to_recover(west: Ground) -> None:
    (extent,) = west.create_table("1")
    west.enable("1")
    node = west.local()
    west.assign(node, extent)
    west.write(node, extent, records([(b"a", b"1")]))
    (wal,) = west.logs_of(node)
    assert logs_in_row(west, extent) == {wal}
    node.stop()
    assert logs_in_row(west, extent) == set()
    status = status_of(west, extent, wal)
    assert status is not None
    assert (status.state, status.replication_needed_offset) == (CLOSED, 1)
    other = west.local()
    west.assign(other, extent)
    assert west.scan(other, extent) == {(b"a", b"f", b"q"): b"1"}
    other.stop()


@pytest.mark.parametrize("durability", ["none", "log", "flush", "sync"])
def test_every_durability_is_visible_when_it_is_acknowledged(west: Ground, durability: str) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    west.write(node, extent, records([(b"a", b"1")]), durability)
    assert west.scan(node, extent) == {(b"a", b"f", b"q"): b"1"}
    west.write(node, extent, records([(b"b", b"2")]))
    logged = [row for block in own_blocks(west, node) for row in block.batch().column("row").to_pylist()]
    assert logged == ([b"b"] if durability == "none" else [b"a", b"b"])
    node.stop()


def test_properties_of_a_table_are_obeyed_as_soon_as_they_are_confirmed(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    west.write(node, extent, records([(b"a", b"1")]), "default")
    west.set_properties("1", {"table.durability": "none", "table.compression": "zstd"})
    west.tserver(node).confirm_config(west.coordination.generation())
    west.write(node, extent, records([(b"b", b"2")]), "default")
    logged = [row for block in own_blocks(west, node) for row in block.batch().column("row").to_pylist()]
    assert logged == [b"a"]
    west.tserver(node).flush_tablet(extent)
    (segment,) = node.process.parts.tablets.registry.serving(extent).data.segments
    footer = pq.read_metadata(west.path(segment.name))
    assert footer.row_group(0).column(0).compression == "ZSTD"
    node.stop()


def test_durability_none_is_logged_where_a_peer_wants_it(west: Ground) -> None:
    (extent,) = west.create_table("1")
    west.enable("1")
    node = west.local()
    west.assign(node, extent)
    west.write(node, extent, records([(b"a", b"1")]), "none")
    (wal,) = west.logs_of(node)
    wait_until(lambda: needed_of(west, extent, wal) == 1, "a synced and needed record")
    node.stop()


def test_flushes_under_load_lose_nothing_and_let_logs_go(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    written: dict[bytes, bytes] = {}
    stop, grown = threading.Event(), threading.Condition()

    def write() -> None:
        while not stop.is_set():
            row = b"%06d" % len(written)
            assert west.write(node, extent, records([(row, row)])) == ()
            with grown:
                written[row] = row
                grown.notify_all()

    def is_grown(count: int) -> bool:
        with grown:
            return grown.wait_for(lambda: len(written) >= count or writing.done(), 60.0)

    def tell(_writing: Future[None]) -> None:
        with grown:
            grown.notify_all()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        writing.add_done_callback(tell)
        try:
            for flush in range(5):
                assert is_grown(20 * (flush + 1))
                west.tserver(node).flush_tablet(extent)
        finally:
            stop.set()
        writing.result(60.0)
    node.stop()
    assert logs_in_row(west, extent) == set()
    other = west.local()
    west.assign(other, extent)
    assert west.scan(other, extent) == {(row, b"f", b"q"): value for row, value in written.items()}
    other.stop()


def test_bad_requests_are_refused_whole(west: Ground) -> None:
    left, right = west.create_table("1", [b"m"])
    node = west.local()
    west.assign(node, left)
    with pytest.raises(InvalidInputError):
        west.write(node, left, records([(b"a", b"1"), (b"z", b"1")]))
    with pytest.raises(InvalidInputError):
        west.write(node, left, records([(b"", b"1")]))
    with pytest.raises(InvalidInputError):
        west.write(node, left, records([(b"a", b"1")]), "maybe")
    assert west.write(node, right, records([(b"z", b"1")])) == (right,)
    with pytest.raises(NotServingError):
        west.scan(node, right)
    assert west.scan(node, left) == {}
    node.stop()


def test_an_attempt_that_was_given_up_does_not_land_after_a_later_one(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    tserver = west.tserver(node)
    batches = [
        [WriteBatch(extent, encode_batch(records([(b"a", value)])).to_pybytes())]
        for value in (b"old", b"again", b"new")
    ]
    tserver.write(batches[1], "sync", "w", 2)
    tserver.write(batches[2], "sync", "w", 3)
    with contextlib.suppress(ConflictError):
        tserver.write(batches[0], "sync", "w", 1)
    assert west.scan(node, extent) == {(b"a", b"f", b"q"): b"new"}, "a write that was given up lands after a later one"
    tserver.write(batches[0], "sync", "another", 1)
    assert west.scan(node, extent) == {(b"a", b"f", b"q"): b"old"}
    node.stop()


EPOCH = 7


def _leads(west: Ground) -> None:
    """A master leads, with this epoch."""
    session = west.coordination.open_session("master", "127.0.0.1:1")
    assert west.coordination.try_lead(session) is not None
    assert west.coordination.raise_epoch(session, EPOCH - 1).epoch == EPOCH


def _orders_go_on(west: Ground) -> None:
    """A process with the cluster's secret names an epoch that no master has."""
    _leads(west)
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    with contextlib.suppress(NotLeaderError):
        west.tserver(node).unload_tablet(Extent("1", b"none", None), 2**62, False)
    try:
        west.tserver(node).unload_tablet(extent, EPOCH, False)
    except NotLeaderError as error:
        raise AssertionError("R7: a tserver refuses the leading master, because of an epoch that nobody has") from error
    assert west.tserver(node).tablets().extents == ()


def test_r7_an_epoch_that_no_master_has_is_not_believed(west: Ground) -> None:
    _orders_go_on(west)


def test_r7_without_the_check_one_call_stops_all_orders(west: Ground) -> None:
    with (
        fault("epochs-are-believed"),
        pytest.raises(AssertionError, match="a tserver refuses the leading master"),
    ):
        _orders_go_on(west)


def test_orders_of_an_older_master_and_for_another_session_are_refused(west: Ground) -> None:
    _leads(west)
    (extent,) = west.create_table("1")
    node, other = west.local(), west.local()
    west.assign(node, extent)
    with pytest.raises(RefusedError):
        west.tserver(other).load_tablet(TabletAssignment(extent, "", 7))
    west.tserver(node).load_tablet(TabletAssignment(extent, "", 7))
    with must_raise(NotLeaderError, "R7: an order of an older master is carried out"):
        west.tserver(node).unload_tablet(extent, 6, False)
    assert west.tserver(node).tablets().extents == (extent,)
    node.stop()
    other.stop()


def test_r15_a_tablet_is_not_served_while_a_log_it_needs_has_no_seal(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node, other = west.local(), west.local()
    west.assign(node, extent)
    west.write(node, extent, records([(b"a", b"1")]))
    node.lose_session()
    try:
        west.assign(other, extent)
    except TransientError:
        for name in west.logs_of(node):
            recover(west.volume, name)
        west.tserver(other).load_tablet(TabletAssignment(extent, "", 1))
    assert west.scan(other, extent) == {(b"a", b"f", b"q"): b"1"}
    assert all(read_seal(west.volume, name) for name in west.logs_of(node)), "served from a log that may still grow"
    other.stop()


def test_a_tablet_whose_log_is_gone_is_not_served_without_it(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.metadata.put([RowPut(keys.tablet_row("1", None), {keys.log_column("gone/1.wal"): values.LOG})], 1)
    with pytest.raises(CorruptionError, match="restore"):
        west.assign(node, extent)
    assert west.tserver(node).tablets().extents == ()


def test_r4_a_use_that_came_after_its_log_was_collected_is_passed_over(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    late = "gone/1.wal"
    west.metadata.put([RowPut(keys.tablet_row("1", None), {keys.log_column(late): values.LOG})], 1)
    west.metadata.put([RowPut(keys.del_row(late), {keys.DEL: values.EMPTY})], keys.ONCE_RANK)
    try:
        west.assign(node, extent)
    except CorruptionError as error:
        raise AssertionError(f"the tablet is not served for a log that nobody needs: {error}") from error
    assert west.tserver(node).tablets().extents == (extent,)
    node.stop()


def test_orders_for_tablets_that_nobody_has_take_no_memory(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    for number in range(5):
        strange = Extent(f"{number}", None, b"row of nobody")
        west.tserver(node).unload_tablet(strange, 1, False)
        with pytest.raises((NotFoundError, RefusedError)):
            west.tserver(node).load_tablet(TabletAssignment(strange, "", 1))
    loader = node.process.parts.tablets.loader
    assert not loader._busy, "a tserver remembers each tablet that it was ever asked about"
    with loader.only_one(extent):
        assert loader._busy
    node.stop()


def test_a_discarded_tablet_is_gone_without_a_flush(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    west.write(node, extent, records([(b"a", b"1")]))
    west.tserver(node).unload_tablet(extent, 1, True)
    assert west.tserver(node).tablets().extents == ()
    assert west.metadata.get(keys.tablet_row("1", None), ("segment",)) is None
    west.tserver(node).unload_tablet(extent, 1, True)
    node.stop()


# ---- order across logs (R24)


def test_r24_a_tablet_that_moves_says_after_what_and_one_that_returns_comes_to_a_new_log(west: Ground) -> None:
    (extent,) = west.create_table("1")
    west.enable("1")
    first, second = west.local(), west.local()
    west.assign(first, extent)
    west.write(first, extent, records([(b"a", b"1")]))
    (w1,) = west.logs_of(first)
    west.tserver(first).unload_tablet(extent, 1, False)
    west.assign(second, extent)
    west.write(second, extent, records([(b"a", b"2"), (b"b", b"2")]))
    (w2,) = west.logs_of(second)
    west.tserver(second).unload_tablet(extent, 1, False)
    west.assign(first, extent)
    west.write(first, extent, records([(b"a", b"3")]))
    w1_again = west.logs_of(first)[-1]
    assert w1_again != w1
    assert _after(west.blocks_of(w2)[0]) == (w1, 1)
    assert _after(west.blocks_of(w1_again)[0]) == (w2, 2)
    status = status_of(west, extent, w1_again)
    assert status is not None
    assert [(b.offset, b.file, b.until_offset) for b in status.barriers] == [(1, w2, 2)]
    first.stop()
    second.stop()


def _after(block: Block) -> tuple[str, int]:
    assert len(block.header.after) == 1, "R24: a tablet that moved does not say after what it comes"
    return block.header.after[0].file, block.header.after[0].offset


def test_r1_closed_says_what_a_master_would_write_from_the_file(west: Ground) -> None:
    left, right = west.create_table("1", [b"m"])
    before, node = west.local(), west.local()
    west.assign(before, left)
    west.write(before, left, records([(b"a", b"1")]))
    west.tserver(before).unload_tablet(left, 1, False)
    west.assign(node, left, right)
    west.write(node, right, records([(b"x", b"1")]))
    west.write(node, left, records([(b"a", b"2")]))
    west.enable("1")
    west.tserver(node).confirm_config(west.coordination.generation())
    west.write(node, left, records([(b"a", b"3")]))
    west.write(node, right, records([(b"x", b"2")]))
    (wal,) = west.logs_of(node)
    node.process.parts.writing.committer.roll()
    wait_until(lambda: state_of(west, left, wal) == state_of(west, right, wal) == CLOSED, "CLOSED")
    rows = {keys.tablet_row("1", extent.end_row): extent for extent in (left, right)}
    cells = wal_closer.close_cells(wal, dict.fromkeys(rows, b""), file_summary(west.volume, wal), set(rows))
    for put in cells.rows:
        row = west.metadata.get(put.key, ("repl",))
        assert row is not None
        ((column, value),) = put.values.items()
        assert row.cells[column] == Cell(cells.rank, value)
    before.stop()
    node.stop()


# ---- configuration (R13, R14)


def test_r14_blocks_written_after_the_confirmation_name_the_new_targets(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    started: list[bytes] = []
    stop = threading.Event()

    def write(worker: int) -> None:
        for number in range(5_000):
            if stop.is_set():
                return
            row = b"%d-%05d" % (worker, number)
            started.append(row)
            west.write(node, extent, records([(row, b"")]))

    with ThreadPoolExecutor(4) as pool:
        for worker in range(4):
            pool.submit(write, worker)
        wait_until(lambda: len(started) > 40, "writes under way")
        before = set(started)
        west.enable("1")
        generation = west.coordination.generation()
        assert west.tserver(node).confirm_config(generation) >= generation
        under_way = set(started)
        wait_until(lambda: len(started) > len(under_way) + 40, "writes after the confirmation")
        stop.set()
    stamped = {
        row: bool(block.header.block_targets)
        for block in own_blocks(west, node)
        for row in block.batch().column("row").to_pylist()
    }
    assert all(stamped[row] for row in stamped.keys() - under_way), (
        "R14: a write after the confirmation has the old stamps"
    )
    assert not all(stamped[row] for row in before)
    stamps_in_order = [bool(block.header.block_targets) for block in own_blocks(west, node)]
    assert stamps_in_order == sorted(stamps_in_order)
    (wal,) = west.logs_of(node)
    wait_until(lambda: needed_of(west, extent, wal) == len(stamped), "needed at the last record")
    node.stop()


def test_a_generation_that_is_not_there_yet_is_not_confirmed(west: Ground) -> None:
    node = west.local()
    with pytest.raises(TransientError):
        west.tserver(node).confirm_config(west.coordination.generation() + 5)
    node.stop()


def test_wal_positions_are_those_of_synced_records(west: Ground) -> None:
    """A drain waits for these positions: a crash of the machine must not take away the records that they name.

    The disk syncs nothing until a barrier is asked for, so an answer without a barrier names a record that may be lost.
    """
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    asked, sync, commit = threading.Event(), FileOps.fdatasync, CommitPath.commit
    synced: list[int] = []

    def late_sync(ops: FileOps, fd: int) -> None:
        assert asked.wait(PATIENCE_S), "no request for a barrier came"
        sync(ops, fd)
        synced.append(fd)

    def told_commit(path: CommitPath, submission: Submission) -> object:
        asked.set()
        return commit(path, submission)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileOps, "fdatasync", late_sync)
        patch.setattr(CommitPath, "commit", told_commit)
        west.write(node, extent, records([(b"a", b"")]), "log")
        marks = west.tserver(node).wal_positions("1")
        synced_before = len(synced)
        asked.set()
    assert [mark.offset for mark in marks] == [1]
    assert synced_before > 0
    node.stop()


def test_wal_positions_count_everything_acknowledged(west: Ground) -> None:
    (extent,) = west.create_table("1")
    (other,) = west.create_table("2")
    node = west.local()
    west.assign(node, extent, other)
    west.write(node, extent, records([(b"a", b""), (b"b", b"")]), "log")
    west.write(node, other, records([(b"a", b"")]), "log")
    (mark,) = west.tserver(node).wal_positions("1")
    assert mark.offset == 2
    node.process.parts.writing.committer.roll()
    west.write(node, extent, records([(b"c", b"")]))
    assert [found.offset for found in west.tserver(node).wal_positions("1")] == [2, 1]
    node.stop()
