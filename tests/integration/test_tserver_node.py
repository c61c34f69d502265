"""One or two tservers inside the test: the edges of the commit path, with stores that fail and threads that race."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bookkeeper.errors import (
    BookkeeperError,
    CorruptionError,
    GapError,
    InvalidInputError,
    NotFoundError,
    NotLeaderError,
    NotServingError,
    RefusedError,
    StreamExpiredError,
    TransientError,
)
from bookkeeper.master import closer
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.table import Cell, RowPut
from bookkeeper.metadata.values import FlushState
from bookkeeper.model import Extent, StreamKey
from bookkeeper.rpc.messages import TabletAssignment
from bookkeeper.storage.wal import Block, file_summary, read_seal, recover, stream_from_pb
from combiners import CLOSED, OPEN, ReplicationStatus
from tests.support.failing_metadata import FailingMetadata, touching
from tests.support.tservers import (
    Ground,
    LocalNode,
    blocks_of,
    ground,
    records,
    replicate_request,
    source_block,
    wait_until,
)

pytestmark = pytest.mark.integration

STREAM = StreamKey("east-instance", "file:///their/1.wal", "7", "1", 1)


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20, "rpc.threads_max": 16}) as made:
        yield made


def status_of(west: Ground, extent: Extent, wal: str) -> ReplicationStatus | None:
    row = west.metadata.get(keys.tablet_row(extent.table_id, extent.end_row), ("repl",))
    cell = None if row is None else row.cells.get(keys.repl_column(wal))
    return None if cell is None else values.decode_status(cell.value)


def logs_in_row(west: Ground, extent: Extent) -> set[str]:
    row = west.metadata.get(keys.tablet_row(extent.table_id, extent.end_row), ("log",))
    return set() if row is None else {keys.parse_file(wal) for wal in row.family("log")}


def flush_of(west: Ground, extent: Extent) -> FlushState:
    row = west.metadata.get(keys.tablet_row(extent.table_id, extent.end_row), ("tablet",))
    assert row is not None
    return FlushState.decode(row.cells[keys.FLUSH].value)


def own_blocks(west: Ground, node: LocalNode) -> list[Block]:
    return [block for uri in west.logs_of(node) for block in blocks_of(uri)]


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


def test_durability_none_is_logged_where_a_peer_wants_it(west: Ground) -> None:
    (extent,) = west.create_table("1")
    west.enable("1")
    node = west.local()
    west.assign(node, extent)
    west.write(node, extent, records([(b"a", b"1")]), "none")
    (wal,) = west.logs_of(node)
    wait_until(lambda: _needed(west, extent, wal) == 1, "a synced and needed record")
    node.stop()


def _needed(west: Ground, extent: Extent, wal: str) -> int:
    status = status_of(west, extent, wal)
    return -1 if status is None else status.replication_needed_offset


def test_flushes_under_load_lose_nothing_and_let_logs_go(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    written: dict[bytes, bytes] = {}
    stop = threading.Event()

    def write() -> None:
        for number in range(10_000):
            if stop.is_set():
                return
            row = b"%06d" % number
            west.write(node, extent, records([(row, row)]))
            written[row] = row

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(5):
        west.tserver(node).flush_tablet(extent)
    stop.set()
    writer.join()
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


def test_orders_of_an_older_master_and_for_another_session_are_refused(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node, other = west.local(), west.local()
    west.assign(node, extent)
    with pytest.raises(RefusedError):
        west.tserver(other).load_tablet(TabletAssignment(extent, "", 7))
    west.tserver(node).load_tablet(TabletAssignment(extent, "", 7))
    with pytest.raises(NotLeaderError):
        west.tserver(node).unload_tablet(extent, 6, False)
    assert west.tserver(node).tablets() == (extent,)
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
        for uri in west.logs_of(node):
            recover(uri)
        west.tserver(other).load_tablet(TabletAssignment(extent, "", 1))
    assert west.scan(other, extent) == {(b"a", b"f", b"q"): b"1"}
    assert all(read_seal(uri) for uri in west.logs_of(node)), "served from a log that may still grow"
    other.stop()


def test_a_tablet_whose_log_is_gone_is_not_served_without_it(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.metadata.put([RowPut(keys.tablet_row("1", None), {keys.log_column("file:///gone/1.wal"): values.LOG})], 1)
    with pytest.raises(CorruptionError, match="restore"):
        west.assign(node, extent)
    assert west.tserver(node).tablets() == ()


def test_a_discarded_tablet_is_gone_without_a_flush(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    west.write(node, extent, records([(b"a", b"1")]))
    west.tserver(node).unload_tablet(extent, 1, True)
    assert west.tserver(node).tablets() == ()
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
    assert _after(blocks_of(w2)[0]) == (w1, 1)
    assert _after(blocks_of(w1_again)[0]) == (w2, 2)
    status = status_of(west, extent, w1_again)
    assert status is not None
    assert [(b.offset, b.file, b.until_offset) for b in status.barriers] == [(1, w2, 2)]
    first.stop()
    second.stop()


def _after(block: Block) -> tuple[str, int]:
    return block.header.after.file, block.header.after.offset


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
    node.process.parts.committer.roll()
    wait_until(lambda: _state(west, left, wal) == _state(west, right, wal) == CLOSED, "CLOSED")
    rows = {keys.tablet_row("1", extent.end_row): extent for extent in (left, right)}
    cells = closer.close_cells(wal, dict.fromkeys(rows, b""), file_summary(wal), set(rows))
    for put in cells.rows:
        row = west.metadata.get(put.key, ("repl",))
        assert row is not None
        ((column, value),) = put.values.items()
        assert row.cells[column] == Cell(cells.rank, value)
    before.stop()
    node.stop()


# ---- configuration (R13, R14)


def test_r14_whatever_is_written_after_the_confirmation_carries_the_new_stamps(west: Ground) -> None:
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
        row: bool(block.header.stamps)
        for block in own_blocks(west, node)
        for row in block.batch().column("row").to_pylist()
    }
    assert all(stamped[row] for row in stamped.keys() - under_way)
    assert not all(stamped[row] for row in before)
    stamps_in_order = [bool(block.header.stamps) for block in own_blocks(west, node)]
    assert stamps_in_order == sorted(stamps_in_order)
    (wal,) = west.logs_of(node)
    wait_until(lambda: _needed(west, extent, wal) == len(stamped), "needed at the last record")
    node.stop()


def test_a_generation_that_is_not_there_yet_is_not_confirmed(west: Ground) -> None:
    node = west.local()
    with pytest.raises(TransientError):
        west.tserver(node).confirm_config(west.coordination.generation() + 5)
    node.stop()


# ---- a store that fails (R12)


def test_r12_nothing_is_acknowledged_while_the_first_use_is_not_in_the_books(west: Ground) -> None:
    (extent,) = west.create_table("1")
    west.enable("1")
    metadata = FailingMetadata(west.metadata)
    node = west.local(metadata)
    west.assign(node, extent)
    with ThreadPoolExecutor(4) as pool:
        with metadata.failing(touching(b"log:")):
            writes = [pool.submit(west.write, node, extent, records([(b"%d" % n, b"")])) for n in range(4)]
            wait_until(lambda: metadata.failures >= 3, "a few failures")
            assert not any(write.done() for write in writes)
            assert west.scan(node, extent) == {}
            assert own_blocks(west, node) == []
        assert [write.result() for write in writes] == [()] * 4
    (wal,) = west.logs_of(node)
    assert logs_in_row(west, extent) == {wal}
    wait_until(lambda: _needed(west, extent, wal) == 4, "needed at the last record")
    assert len(west.scan(node, extent)) == 4
    node.stop()


def test_needed_offsets_and_closed_survive_lost_answers(west: Ground) -> None:
    (extent,) = west.create_table("1")
    west.enable("1")
    metadata = FailingMetadata(west.metadata)
    node = west.local(metadata)
    west.assign(node, extent)
    west.write(node, extent, records([(b"a", b"")]))
    (wal,) = west.logs_of(node)
    wait_until(lambda: _needed(west, extent, wal) == 1, "the first update")
    with metadata.failing(touching(b"repl:"), applied=True):
        west.write(node, extent, records([(b"b", b"")]))
        wait_until(lambda: metadata.failures >= 2, "a few lost answers")
        node.process.parts.committer.roll()
    wait_until(lambda: _state(west, extent, wal) == CLOSED, "CLOSED")
    assert _needed(west, extent, wal) == 2
    node.stop()


def _state(west: Ground, extent: Extent, wal: str) -> int:
    status = status_of(west, extent, wal)
    return OPEN if status is None else status.state


def test_a_flush_whose_answers_are_lost_is_completed_under_its_own_rank(west: Ground) -> None:
    (extent,) = west.create_table("1")
    metadata = FailingMetadata(west.metadata)
    node = west.local(metadata)
    west.assign(node, extent)
    west.write(node, extent, records([(b"a", b"1")]))
    with metadata.failing(touching(b"tablet:flush"), applied=True), pytest.raises(TransientError):
        west.tserver(node).flush_tablet(extent)
    flush_id = flush_of(west, extent).flush_id
    west.write(node, extent, records([(b"b", b"2")]))
    with metadata.failing(touching(b"log:", "delete")), pytest.raises(TransientError):
        west.tserver(node).flush_tablet(extent)
    assert flush_of(west, extent).flush_id == flush_id
    west.tserver(node).flush_tablet(extent)
    assert flush_of(west, extent).flush_id == flush_id + 1
    row = west.metadata.get(keys.tablet_row("1", None), ("segment", "log"))
    assert row is not None
    assert len(row.family("segment")) == 2
    assert row.family("log") == {}
    assert west.scan(node, extent) == {(b"a", b"f", b"q"): b"1", (b"b", b"f", b"q"): b"2"}
    node.stop()


def test_r1_a_flush_that_arrives_after_the_next_holder_flushed_changes_nothing(west: Ground) -> None:
    (extent,) = west.create_table("1")
    metadata = FailingMetadata(west.metadata)
    old = west.local(metadata)
    west.assign(old, extent)
    west.write(old, extent, records([(b"a", b"1")]))
    with ThreadPoolExecutor(1) as pool, metadata.holding(touching(b"tablet:flush")) as reached:
        late = pool.submit(west.tserver(old).flush_tablet, extent)
        assert reached.wait(30)
        old.lose_session()
        for uri in west.logs_of(old):
            recover(uri)
        new = west.local()
        west.assign(new, extent)
        west.write(new, extent, records([(b"b", b"2")]))
        west.tserver(new).flush_tablet(extent)
        state = flush_of(west, extent)
    with pytest.raises(BookkeeperError):
        late.result()
    assert flush_of(west, extent) == state
    new.stop()
    last = west.local()
    west.assign(last, extent)
    assert west.scan(last, extent) == {(b"a", b"f", b"q"): b"1", (b"b", b"f", b"q"): b"2"}
    assert len(last.process.parts.registry.serving(extent).data.segments) == 1
    last.stop()


# ---- receiving (R18-R21)


def applied_offsets(west: Ground, *nodes: LocalNode) -> dict[bytes, int]:
    """How often each row was logged by these nodes as part of STREAM."""
    counts: dict[bytes, int] = {}
    for node in nodes:
        for block in own_blocks(west, node):
            assert stream_from_pb(block.header.origin.stream) == STREAM
            for row in block.batch().column("row").to_pylist():
                counts[row] = counts.get(row, 0) + 1
    return counts


def test_r18_a_range_that_is_sent_by_many_at_once_is_applied_once_at_each_tablet(west: Ground) -> None:
    extents = west.create_table("1", [b"h", b"p"])
    near, far = west.local(), west.local()
    west.assign(near, extents[0], extents[2])
    west.assign(far, extents[1])
    batches = [records([(b"%c%04d" % (letter, n), b"v") for letter in b"akz"], timestamp=5) for n in range(20)]
    blocks = [source_block(1 + 3 * n, batch) for n, batch in enumerate(batches)]

    def send(sender: int) -> int:
        node = near if sender % 2 else far
        token = west.tserver(node).open_stream(STREAM)
        done = 0
        while done < len(blocks):
            count = 1 + (sender + done) % 3
            part = blocks[done : done + count]
            request = replicate_request(token, STREAM, 3 * done, 3 * done, part[-1].last_offset, part)
            result = west.tserver(node).replicate(request)
            assert result.acked_offset == part[-1].last_offset
            done += count
        return done

    with ThreadPoolExecutor(4) as pool:
        assert min(pool.map(send, range(4))) == len(blocks)
    counts = applied_offsets(west, near, far)
    assert len(counts) == 60
    assert set(counts.values()) == {1}
    near.stop()
    far.stop()


def test_r19_a_gap_is_declined_and_out_of_order_ranges_lose_nothing(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    token = west.tserver(node).open_stream(STREAM)
    one, two = (source_block(n, records([(b"%d" % n, b"v")], timestamp=5)) for n in (1, 2))
    with pytest.raises(GapError) as gap:
        west.tserver(node).replicate(replicate_request(token, STREAM, 0, 1, 2, [two]))
    assert gap.value.high_water == 0
    west.tserver(node).replicate(replicate_request(token, STREAM, 0, 0, 1, [one]))
    result = west.tserver(node).replicate(replicate_request(token, STREAM, 0, 0, 2, [one, two]))
    assert (result.acked_offset, result.records_applied, result.records_dropped) == (2, 1, 1)
    assert west.scan(node, extent) == {(b"1", b"f", b"q"): b"v", (b"2", b"f", b"q"): b"v"}
    node.stop()


def test_r18_the_high_water_survives_a_flush_and_a_move(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    message = [source_block(1, records([(b"a", b"v")], timestamp=5))]
    token = west.tserver(node).open_stream(STREAM)
    west.tserver(node).replicate(replicate_request(token, STREAM, 0, 0, 1, message))
    west.tserver(node).flush_tablet(extent)
    node.stop()
    other = west.local()
    west.assign(other, extent)
    token = west.tserver(other).open_stream(STREAM)
    result = west.tserver(other).replicate(replicate_request(token, STREAM, 0, 0, 1, message))
    assert (result.records_applied, result.records_dropped) == (0, 1)
    other.stop()


def test_r21_data_that_passed_this_cluster_is_refused_whatever_its_name(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    own = west.settings.instance.instance_id
    token = west.tserver(node).open_stream(STREAM)
    block = source_block(1, records([(b"a", b"v")], timestamp=5))
    request = replicate_request(token, STREAM, 0, 0, 1, [block])
    looped = type(request)(token, STREAM, (own, "east-instance"), 0, 0, 1, (block,))
    with pytest.raises(RefusedError):
        west.tserver(node).replicate(looped)
    with pytest.raises(RefusedError):
        west.tserver(node).open_stream(StreamKey(own, "file:///w", "1", "1", 1))
    named_alike = type(request)(token, STREAM, (west.settings.instance.name, "east-instance"), 0, 0, 1, (block,))
    assert west.tserver(node).replicate(named_alike).records_applied == 1
    node.stop()


def test_unknown_tokens_and_tables_are_refused(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    block = source_block(1, records([(b"a", b"v")], timestamp=5))
    with pytest.raises(StreamExpiredError):
        west.tserver(node).replicate(replicate_request("guess", STREAM, 0, 0, 1, [block]))
    with pytest.raises(NotFoundError):
        west.tserver(node).open_stream(StreamKey("east-instance", "f", "7", "99", 1))
    node.stop()


def test_received_data_carries_its_provenance_origin_and_this_clusters_own_stamps(west: Ground) -> None:
    (extent,) = west.create_table("1")
    target = west.enable("1")
    node = west.local()
    west.assign(node, extent)
    token = west.tserver(node).open_stream(STREAM)
    blocks = [source_block(n, records([(b"%d" % n, b"v")], timestamp=5)) for n in (3, 4)]
    west.tserver(node).replicate(replicate_request(token, STREAM, 2, 2, 9, blocks))
    (block,) = own_blocks(west, node)
    header = block.header
    assert list(header.provenance) == ["east-instance"]
    assert (header.origin.after_offset, header.origin.to_offset, header.record_count) == (2, 9, 2)
    assert [stamp.incarnation for stamp in header.stamps] == [target.key.incarnation]
    node.stop()


def test_r20_forgotten_streams_are_gone_and_their_tokens_dead(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    token = west.tserver(node).open_stream(STREAM)
    request = replicate_request(token, STREAM, 0, 0, 1, [source_block(1, records([(b"a", b"v")], timestamp=5))])
    west.tserver(node).replicate(request)
    west.tserver(node).flush_tablet(extent)
    assert flush_of(west, extent).high_water == {STREAM: 1}
    west.tserver(node).forget_streams([STREAM])
    with pytest.raises(StreamExpiredError):
        west.tserver(node).replicate(request)
    west.tserver(node).flush_tablet(extent)
    assert flush_of(west, extent).high_water == {}
    node.stop()


def test_r20_a_stream_that_ended_while_nobody_served_the_tablet_leaves_no_mark(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    goes_on = StreamKey("east-instance", "file:///their/2.wal", "7", "1", 1)
    for stream in (STREAM, goes_on):
        token = west.tserver(node).open_stream(stream)
        block = source_block(1, records([(b"a", b"v")], timestamp=5))
        west.tserver(node).replicate(replicate_request(token, stream, 0, 0, 1, [block]))
    node.stop()
    assert flush_of(west, extent).high_water == {STREAM: 1, goes_on: 1}
    west.metadata.purge([keys.recv_cell(STREAM)])
    other = west.local()
    west.assign(other, extent)
    west.tserver(other).flush_tablet(extent)
    assert flush_of(west, extent).high_water == {goes_on: 1}
    other.stop()


def test_r20_a_stream_is_known_before_anything_of_it_is_taken(west: Ground) -> None:
    west.create_table("1")
    node = west.local()
    west.tserver(node).open_stream(STREAM)
    cell = keys.recv_cell(STREAM)
    row = west.metadata.get(cell.key)
    assert row is not None
    assert values.Received.decode(row.cells[cell.column].value) == values.Received(0)
    node.stop()


def test_the_index_of_received_files_follows_as_a_hint(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    token = west.tserver(node).open_stream(STREAM)
    request = replicate_request(token, STREAM, 0, 0, 4, [source_block(1, records([(b"a", b"v")], timestamp=5))])
    west.tserver(node).replicate(request)
    node.stop()
    cell = keys.recv_cell(STREAM)
    row = west.metadata.get(cell.key)
    assert row is not None
    assert values.Received.decode(row.cells[cell.column].value) == values.Received(4)


def test_wal_positions_count_everything_acknowledged(west: Ground) -> None:
    (extent,) = west.create_table("1")
    (other,) = west.create_table("2")
    node = west.local()
    west.assign(node, extent, other)
    west.write(node, extent, records([(b"a", b""), (b"b", b"")]), "log")
    west.write(node, other, records([(b"a", b"")]), "log")
    (mark,) = west.tserver(node).wal_positions("1")
    assert mark.offset == 2
    node.process.parts.committer.roll()
    west.write(node, extent, records([(b"c", b"")]))
    assert [found.offset for found in west.tserver(node).wal_positions("1")] == [2, 1]
    node.stop()
