"""The receiving side of one or two tservers: everything once, in order, and nothing of our own (R18-R21)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.errors import (
    GapError,
    InvalidInputError,
    NotFoundError,
    NotServingError,
    OverloadedError,
    RefusedError,
    StreamExpiredError,
    UnavailableError,
)
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.model import Extent, StreamKey
from bookkeeper.rpc.contract.messages import WriteBatch
from bookkeeper.storage.wal.blocks.block import encode_batch
from bookkeeper.storage.wal.blocks.block_messages import stream_from_pb
from bookkeeper.tserver.books.received_index import indexed_streams
from bookkeeper.tserver.receive import slice_retry
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.replacement import Binding, replaced
from tests.support.tservers import (
    Ground,
    LocalNode,
    flush_of,
    ground,
    own_blocks,
    records,
    replicate_request,
    source_block,
    wait_until,
)

pytestmark = pytest.mark.integration

STREAM = StreamKey("east-instance", "their/1.wal", "7", "1", 1)


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20, "rpc.threads_max": 16}) as made:
        yield made


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


def check_halves_go_together(west: Ground) -> None:
    """A block of which one tablet's part is too long for that tablet's server, and for no other."""
    extents = west.create_table("1", [b"h"])
    usual = west.settings
    west.settings = replace(usual, tserver=replace(usual.tserver, value_bytes_max=10))
    far = west.local()
    west.settings = usual
    near = west.local()
    west.assign(near, extents[0])
    west.assign(far, extents[1])
    token = west.tserver(near).open_stream(STREAM)
    block = source_block(1, records([(b"a", b"v"), (b"z", b"v" * 11)], timestamp=5))
    try:
        west.tserver(near).replicate(replicate_request(token, STREAM, 0, 0, 2, [block]))
    except InvalidInputError:
        assert not applied_offsets(west, near), "the peer refused what one of its tablets has"
    with pytest.raises(InvalidInputError, match="11 bytes"):
        west.tserver(far).replicate(replicate_request(west.tserver(far).open_stream(STREAM), STREAM, 0, 0, 2, [block]))
    assert applied_offsets(west, near, far) == {b"a": 1, b"z": 1}


def test_r18_tablets_of_servers_with_different_limits_take_a_block_together_or_not_at_all(west: Ground) -> None:
    check_halves_go_together(west)


def test_r18_law_with_limits_for_parts(west: Ground) -> None:
    with fault("each-part-has-its-limits"), pytest.raises(AssertionError, match="one of its tablets has"):
        check_halves_go_together(west)


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


def test_a_message_that_comes_before_the_one_in_front_of_it_waits_for_it(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    token = west.tserver(node).open_stream(STREAM)
    blocks = [source_block(n, records([(b"%d" % n, b"v")], timestamp=5)) for n in range(1, 10)]
    requests = [replicate_request(token, STREAM, max(0, n - 2), n - 1, n, [blocks[n - 1]]) for n in range(1, 10)]
    with ThreadPoolExecutor(4) as pool:
        for second in range(2, 10, 2):
            ahead = pool.submit(west.tserver(node).replicate, requests[second - 1])
            assert west.tserver(node).replicate(requests[second - 2]).acked_offset == second - 1
            assert ahead.result().acked_offset == second
    assert applied_offsets(west, node) == {b"%d" % n: 1 for n in range(1, 9)}
    node.stop()


def test_a_message_behind_one_for_other_tablets_is_taken_once_that_is_proven(west: Ground) -> None:
    extents = west.create_table("1", [b"h", b"p"])
    near, far = west.local(), west.local()
    west.assign(near, extents[0], extents[2])
    west.assign(far, extents[1])
    token = west.tserver(near).open_stream(STREAM)
    with ThreadPoolExecutor(9) as pool:
        answers = []
        for n in range(1, 10):
            block = source_block(n, records([(b"%c" % b"kaz"[n % 3], b"%d" % n)], timestamp=n))
            request = replicate_request(token, STREAM, max(0, n - 2), n - 1, n, [block])
            answers.append(pool.submit(west.tserver(near).replicate, request))
            if n > 1:
                assert answers[n - 2].result().acked_offset == n - 1
    assert sum(applied_offsets(west, near, far).values()) == 9
    near.stop()
    far.stop()


def split(west: Ground, extent: Extent, at: bytes) -> tuple[Extent, Extent]:
    """The rows of a tablet that was split, as a master leaves them."""
    front, rest = Extent(extent.table_id, at, extent.prev_row), Extent(extent.table_id, extent.end_row, at)
    made = {keys.PREV_ROW: values.encode_prev_row(front.prev_row), keys.DIR: values.encode_dir("t-split")}
    west.metadata.put([RowPut(keys.tablet_row(front.table_id, front.end_row), made)], keys.ONCE_RANK)
    moved = {keys.PREV_ROW: values.encode_prev_row(at)}
    west.metadata.put([RowPut(keys.tablet_row(rest.table_id, rest.end_row), moved)], (1 << 32) + 1)
    return front, rest


def check_message_waits_for_a_tablet(west: Ground) -> None:
    """One call brings a message to a tablet whose tserver is gone and that another one takes over meanwhile."""
    here, away = west.create_table("1", [b"h"])
    near, far = west.local(), west.local()
    west.assign(near, here)
    west.assign(far, away)
    token = west.tserver(near).open_stream(STREAM)
    far.stop()
    block = source_block(1, records([(b"a", b"v"), (b"z", b"v")], timestamp=5))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(west.tserver(near).replicate, replicate_request(token, STREAM, 0, 0, 2, [block]))
        wait_until(lambda: answer.done() or applied_offsets(west, near) == {b"a": 1}, "the share of the tablet here")
        other = west.local()
        west.assign(other, away)
        try:
            result = answer.result()
        except (UnavailableError, NotServingError) as error:
            raise AssertionError("a message does not wait for a tablet that is away") from error
    assert (result.acked_offset, result.records_applied, result.records_dropped) == (2, 2, 0)
    assert applied_offsets(west, near, other) == {b"a": 1, b"z": 1}
    near.stop()
    other.stop()


def test_a_message_waits_for_a_tablet_that_is_away_for_a_moment(west: Ground) -> None:
    with replaced(Binding(slice_retry, "WAIT_MS"), 60_000):  # a busy machine takes a part of it
        check_message_waits_for_a_tablet(west)


def test_without_waiting_the_peer_has_to_send_the_message_again(west: Ground) -> None:
    with (
        fault("tablets-are-not-waited-for"),
        pytest.raises(AssertionError, match="a message does not wait for a tablet that is away"),
    ):
        check_message_waits_for_a_tablet(west)


def test_a_message_for_a_tablet_that_was_split_meanwhile_is_parted_anew_by_its_sender(west: Ground) -> None:
    here, away = west.create_table("1", [b"h"])
    near, far = west.local(), west.local()
    west.assign(near, here)
    west.assign(far, away)
    token = west.tserver(near).open_stream(STREAM)
    block = source_block(1, records([(b"a", b"v"), (b"z", b"v")], timestamp=5))
    request = replicate_request(token, STREAM, 0, 0, 2, [block])
    far.stop()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(west.tserver(near).replicate, request)
        wait_until(lambda: answer.done() or applied_offsets(west, near) == {b"a": 1}, "the share of the tablet here")
        halves = split(west, away, b"p")
        with pytest.raises((UnavailableError, NotServingError)):
            answer.result()
    other = west.local()
    west.assign(other, *halves)
    result = west.tserver(near).replicate(request)
    assert (result.acked_offset, result.records_applied, result.records_dropped) == (2, 1, 1)
    near.stop()
    other.stop()


def check_memory_is_bounded(directory: Path) -> None:
    """Flushes are held up while a peer goes on sending; then they go on, and so does the peer."""
    limit = 64 * 1024
    with ground(directory / "west", {"tserver.memtable_flush_bytes": limit}) as west:
        (extent,) = west.create_table("1")
        node = west.local()
        west.assign(node, extent)
        served = node.process.parts.tablets.registry.serving(extent)
        token = west.tserver(node).open_stream(STREAM)

        def send(number: int) -> None:
            block = source_block(number, records([(b"%d" % number, b"v" * 10_000)], timestamp=5))
            west.tserver(node).replicate(replicate_request(token, STREAM, number - 1, number - 1, number, [block]))

        def send_all() -> None:
            for number in range(1, 41):
                send(number)

        lock = served.flushes.lock
        with lock, must_raise(OverloadedError, "a peer fills the memory of a tablet", match="not flushed"):
            send_all()
        taken = len(applied_offsets(west, node))
        assert 2 * limit < taken * 10_000 < 4 * limit
        send(taken + 1)
        assert applied_offsets(west, node) == {b"%d" % n: 1 for n in range(1, taken + 2)}
        node.stop()


def test_what_comes_from_peers_waits_for_flushes_that_fell_behind(tmp_path: Path) -> None:
    check_memory_is_bounded(tmp_path)


def test_without_its_bound_a_peer_fills_the_memory_of_a_tablet(tmp_path: Path) -> None:
    with fault("memory-takes-all"), pytest.raises(AssertionError, match="a peer fills the memory of a tablet"):
        check_memory_is_bounded(tmp_path)


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
    assert (result.records_applied, result.records_dropped) == (0, 1), (
        "R18: a flush or a move forgets what is known of a stream"
    )
    other.stop()


def test_r21_data_that_passed_this_cluster_is_refused_under_any_cluster_name(west: Ground) -> None:
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
        west.tserver(node).open_stream(StreamKey(own, "w", "1", "1", 1))
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


def test_received_data_carries_its_provenance_origin_and_this_clusters_own_block_targets(west: Ground) -> None:
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
    assert [block_target.incarnation for block_target in header.block_targets] == [target.key.incarnation]
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
    goes_on = StreamKey("east-instance", "their/2.wal", "7", "1", 1)
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
    assert flush_of(west, extent).high_water == {goes_on: 1}, "R20: a stream that is over leaves its mark"
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


def open_beyond_the_bound(west: Ground) -> set[str]:
    """Which streams the books know when a peer has opened more than it may."""
    west.create_table("1")
    usual = west.settings
    west.settings = replace(usual, tserver=replace(usual.tserver, peer_streams_max=2))
    node = west.local()
    for number in range(2):
        west.tserver(node).open_stream(replace(STREAM, file=f"{number}"))
    for number in range(2, 5):
        with pytest.raises(OverloadedError, match=r"tserver\.peer_streams_max"):
            west.tserver(node).open_stream(replace(STREAM, file=f"{number}"))
    return {stream.file for stream in indexed_streams(west.metadata, ["east-instance"])}


def test_a_stream_with_a_longer_name_than_any_file_is_refused(west: Ground) -> None:
    west.create_table("1")
    with pytest.raises(InvalidInputError, match="the name of a stream has"):
        west.tserver(west.local()).open_stream(replace(STREAM, file="x" * 20_000))


def test_a_peer_without_places_writes_nothing_into_the_books(west: Ground) -> None:
    assert open_beyond_the_bound(west) == {"0", "1"}


def test_without_its_rule_streams_without_a_place_are_written_down(west: Ground) -> None:
    with fault("slots-are-acquired-last"):
        assert len(open_beyond_the_bound(west)) > 2


def test_a_write_of_many_bombs_is_refused_and_the_server_goes_on(west: Ground) -> None:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    raw = encode_batch(records([(b"a", bytes(7 << 20))]), "zstd").to_pybytes()
    with pytest.raises(InvalidInputError, match="the records of a message take"):
        west.tserver(node).write([WriteBatch(extent, raw)] * 300, "sync", "w", 1)
    assert west.write(node, extent, records([(b"a", b"v")])) == ()
    assert len(west.scan(node, extent)) == 1
