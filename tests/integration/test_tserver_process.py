"""Real tserver processes that are killed and stopped at any moment: acknowledged records are there, and only once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bookkeeper.errors import BookkeeperError, GapError, TransientError
from bookkeeper.metadata import keys, values
from bookkeeper.model import Extent, StreamKey
from bookkeeper.rpc.contract.messages import SourceBlock
from bookkeeper.storage.wal.blocks.block_messages import stream_from_pb
from bookkeeper.storage.wal.writing.seal import read_seal
from tests.support.standstill import stand_still
from tests.support.tservers import (
    SHORT_LEASES,
    Ground,
    ProcessNode,
    ground,
    records,
    replicate_request,
    source_block,
    wait_until,
)

pytestmark = pytest.mark.integration

STREAM = StreamKey("east-instance", "their/1.wal", "7", "1", 1)
EXIT_MUST_NOT_GO_ON = 70


SMALL_FILES: dict[str, object] = {"tserver.memtable_flush_bytes": 1 << 16, "tserver.wal_roll_bytes": 1 << 18}


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", SMALL_FILES) as made:
        yield made


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Ground]:
    """A process that is stopped soon counts as dead."""
    with ground(tmp_path / "west", {**SMALL_FILES, **SHORT_LEASES}) as made:
        yield made


class Load:
    """Writers that go on until they meet an error, and their acknowledged rows."""

    def __init__(self, west: Ground, node: ProcessNode, extents: list[Extent], writers: int = 4) -> None:
        self.acknowledged: dict[bytes, bytes] = {}
        self._west = west
        self._node = node
        self._extents = extents
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(writers)]
        for thread in self._threads:
            thread.start()

    def _run(self, writer: int) -> None:
        for number in range(100_000):
            if self._stop.is_set():
                return
            extent = self._extents[number % len(self._extents)]
            first = b"a" if extent.prev_row is None else b"z"
            rows = [(b"%c%d-%06d-%d" % (first, writer, number, part), b"%d" % number) for part in range(5)]
            try:
                refused = self._west.write(self._node, extent, records(rows))
            except BookkeeperError:
                return
            assert refused == ()
            self.acknowledged.update(rows)

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.acknowledged) >= count, f"{count} acknowledged records")

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def scan_all(west: Ground, node: ProcessNode, extents: list[Extent]) -> dict[bytes, bytes]:
    return {
        row: value for extent in extents for (row, _, _), value in west.scan(node, extent, page_bytes=1 << 18).items()
    }


def records_by_log(west: Ground, node: ProcessNode) -> dict[bytes, int]:
    """How often each row of STREAM lies in the sealed logs of a node."""
    counts: dict[bytes, int] = {}
    for name in west.logs_of(node):
        for block in west.blocks_of(name):
            if block.header.HasField("origin") and stream_from_pb(block.header.origin.stream) == STREAM:
                for row in block.batch().column("row").to_pylist():
                    counts[row] = counts.get(row, 0) + 1
    return counts


def test_a_table_survives_a_clean_restart(west: Ground) -> None:
    extents = west.create_table("1", [b"m"])
    node = west.process()
    west.assign(node, *extents)
    west.write(node, extents[0], records([(b"a", b"1")]))
    west.write(node, extents[1], records([(b"z", b"2")]))
    assert node.terminate() == 0, node.log_text()
    other = west.process()
    west.assign(other, *extents)
    assert scan_all(west, other, extents) == {b"a": b"1", b"z": b"2"}


@pytest.mark.long
def test_every_acknowledged_mutation_survives_kill_9_under_load_with_flushes_and_rolls(west: Ground) -> None:
    extents = west.create_table("1", [b"m"])
    west.enable("1")
    node = west.process()
    west.assign(node, *extents)
    acknowledged: dict[bytes, bytes] = {}
    for _ in range(3):
        load = Load(west, node, extents)
        load.wait_for(3_000)
        node.kill9()
        load.end()
        acknowledged |= load.acknowledged
        west.recover_logs(node)
        node = west.process()
        west.assign(node, *extents)
        found = scan_all(west, node, extents)
        assert {row: found.get(row) for row in acknowledged} == acknowledged


def test_the_books_of_a_killed_tserver_name_every_log_with_records_for_targets(west: Ground) -> None:
    """R12 and R15: each record for a peer lies in a file with a repl: cell; no cell promises more than its file has."""
    extents = west.create_table("1", [b"m"])
    west.enable("1")
    node = west.process()
    west.assign(node, *extents)
    load = Load(west, node, extents)
    load.wait_for(4_000)
    node.kill9()
    load.end()
    for name in west.recover_logs(node):
        seal = read_seal(west.volume, name)
        assert seal is not None
        stamped = {block.header.end_row for block in west.blocks_of(name) if block.header.block_targets}
        for extent in extents:
            row = west.metadata.get(keys.tablet_row("1", extent.end_row), ("repl",))
            cell = None if row is None else row.cells.get(keys.repl_column(name))
            assert cell is not None or (extent.end_row or b"") not in stamped
            if cell is not None:
                assert values.decode_status(cell.value).replication_needed_offset <= seal.offset


def test_a_tserver_that_was_stopped_beyond_its_lease_acknowledges_nothing_and_ends(impatient: Ground) -> None:
    west = impatient
    extents = west.create_table("1", [b"m"])
    node = west.process()
    west.assign(node, *extents)
    load = Load(west, node, extents)
    load.wait_for(500)
    stand_still(node.process.pid, west.settings)
    wait_until(lambda: not west.is_alive(node), "the end of the session")
    west.recover_logs(node)
    other = west.process()
    west.assign(other, *extents)
    before = scan_all(west, other, extents)
    with ThreadPoolExecutor(4) as pool:
        late = [
            pool.submit(west.write, node, extents[0], records([(b"late%d" % n, b"x")]), durability)
            for n, durability in enumerate(("sync", "flush", "log", "none"))
        ]
        node.signal(signal.SIGCONT)
        assert node.process.wait(30) == EXIT_MUST_NOT_GO_ON, node.log_text()
        for write in late:
            with pytest.raises(BookkeeperError):
                write.result()
    load.end()
    assert scan_all(west, other, extents) == before
    assert {row: before.get(row) for row in load.acknowledged} == load.acknowledged


def test_r18_a_range_that_was_applied_and_not_acknowledged_is_not_applied_again(west: Ground) -> None:
    """The receiver dies at any moment between taking a range and answering; the sender starts over elsewhere."""
    extents = west.create_table("1", [b"m"])
    blocks = [
        source_block(1 + 2 * n, records([(b"a%04d" % n, b"v"), (b"z%04d" % n, b"v")], timestamp=5)) for n in range(200)
    ]
    node = west.process()
    west.assign(node, *extents)
    nodes, acked = [node], 0
    for kills in range(1, 4):
        acked = _send(west, node, blocks, acked, kill_beyond=120 * kills)
        west.recover_logs(node)
        node = west.process()
        nodes.append(node)
        west.assign(node, *extents)
        acked = max(0, acked - 40)  # the books may lag behind the acknowledgements
    assert _send(west, node, blocks, acked) == 400
    node.terminate()
    counts: dict[bytes, int] = {}
    for each in nodes:
        for row, count in records_by_log(west, each).items():
            counts[row] = counts.get(row, 0) + count
    assert len(counts) == 400
    assert set(counts.values()) == {1}


def _send(
    west: Ground, node: ProcessNode, blocks: list[SourceBlock], acked: int, kill_beyond: int | None = None
) -> int:
    """Send from ``acked`` on; beyond ``kill_beyond`` the node is killed meanwhile. Returns what was acknowledged."""
    token = west.tserver(node).open_stream(STREAM)
    killer: threading.Thread | None = None
    first = next((n for n, block in enumerate(blocks) if block.first_offset > acked), len(blocks))
    while first < len(blocks):
        part = blocks[first : first + 4]
        if killer is None and kill_beyond is not None and acked >= kill_beyond:
            killer = threading.Thread(target=node.kill9)
            killer.start()
        request = replicate_request(token, STREAM, acked, acked, part[-1].last_offset, part)
        try:
            acked = west.tserver(node).replicate(request).acked_offset
        except TransientError:
            assert killer is not None
            break
        first += len(part)
    if killer is not None:
        killer.join()
    return acked


@pytest.mark.long
def test_r18_r19_two_receivers_and_senders_that_repeat_and_reorder_leave_everything_once(west: Ground) -> None:
    extents = west.create_table("1", [b"h", b"p"])
    one, two = west.process(), west.process()
    west.assign(one, extents[0], extents[2])
    west.assign(two, extents[1])
    blocks = [
        source_block(1 + 3 * n, records([(b"%c%04d" % (c, n), b"v") for c in b"akz"], timestamp=5)) for n in range(60)
    ]
    gaps: list[int] = []

    def send(sender: int) -> None:
        node = (one, two)[sender % 2]
        token = west.tserver(node).open_stream(STREAM)
        position, skipped = 0, sender == 3
        while position < len(blocks):
            if skipped and position == 30:  # this one believes that more was acknowledged than it knows of
                part = blocks[45:46]
                request = replicate_request(token, STREAM, 0, part[0].first_offset - 1, part[-1].last_offset, part)
                try:
                    west.tserver(node).replicate(request)
                except GapError as gap:
                    gaps.append(gap.high_water)
                skipped = False
            part = blocks[position : position + 1 + sender]
            request = replicate_request(token, STREAM, 3 * position, 3 * position, part[-1].last_offset, part)
            west.tserver(node).replicate(request)
            position += len(part)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, range(4)))
    assert scan_all(west, one, [extents[0], extents[2]]).keys() | scan_all(west, two, [extents[1]]).keys() == {
        b"%c%04d" % (letter, n) for letter in b"akz" for n in range(60)
    }
    one.terminate()
    two.terminate()
    counts = records_by_log(west, one)
    for row, count in records_by_log(west, two).items():
        counts[row] = counts.get(row, 0) + count
    assert len(counts) == 180
    assert set(counts.values()) == {1}
