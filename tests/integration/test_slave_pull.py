"""A peer that fetches: it reads the master's books and logs by itself, and nothing is pushed.

Two clusters run inside the test; west sends nothing. East has the records of west's logs afterwards, and books and logs
end as after a push. A puller that dies before it writes its progress reads the same records again, and its peer drops
them (R18). Source: ACCUMULO-378, *Background* (slave-pull).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

import combiners
from bookkeeper.client import Mutation
from bookkeeper.errors import UnavailableError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Row, RowPut
from bookkeeper.model import StreamKey, TargetKey
from bookkeeper.replay.ranges import Range
from bookkeeper.replay.stream.filters import Selection, decide
from bookkeeper.storage.wal.reading.block_reader import read_blocks
from combiners import ReplicationStatus
from tests.support.faults import fault
from tests.support.fixtures import BOOKS_IN_BOTH
from tests.support.local_pair import Books, LocalCluster, local_cluster
from tests.support.tservers import replicate_request, source_block, wait_until

pytestmark = pytest.mark.integration

KEPT = {"table.versions.max": "9"}
"""So that a record that is applied twice shows, as a version more."""


def nothing_is_sent(_ranges: Sequence[Range]) -> None:
    """The error of a replay process that can't reach the peer."""
    raise UnavailableError("west may not open connections to east")


@dataclass(slots=True)
class Puller:
    """East's side: takes what is due for it in west's books, a file at a time, and writes down how far it is."""

    west: LocalCluster
    east: LocalCluster
    target: TargetKey
    dropped: int = 0
    """Records that came again and were not applied again."""

    def pull(self, *, dies: bool = False) -> int:
        """One look at the books; returns how many records were taken. ``dies``: before anything is written down."""
        rows = self.west.metadata.scan(*keys.section(keys.REPL_PREFIX), ("repl", "done"))
        return sum(self._file(row, dies) for row in list(rows))

    def _file(self, row: Row, dies: bool) -> int:
        cells = [row.cells.get(column) for column in (keys.needed_column(self.target), keys.done_column(self.target))]
        status = combiners.combine(values.decode_status(cell.value) for cell in cells if cell is not None)
        due = combiners.range_needing_replication(status)
        if due is None:
            return 0
        file = keys.parse_repl_row(row.key)
        taken = self._take(file, *due)
        if not dies:
            done = ReplicationStatus(replication_finished_offset=due[1])
            put = RowPut(row.key, {keys.done_column(self.target): values.encode_status(done)})
            self.west.metadata.put([put], keys.done_rank(due[1]))
        return taken

    def _take(self, file: str, first: int, last: int) -> int:
        """The wanted blocks of a range, as one message to the own receiver."""
        own_id, parts = self.east.settings.instance.instance_id, self.east.tserver.parts
        found = [
            b
            for b in read_blocks(self.west.volume, file, first, last)
            if decide(b.header, self.target, own_id).selection is Selection.WHOLE
        ]
        key = self.target
        stream = StreamKey(
            self.west.settings.instance.instance_id, file, key.source_table_id, key.remote_table_id, key.incarnation
        )
        blocks = [source_block(block.first_offset, block.batch()) for block in found]
        request = replicate_request(
            parts.receiving.admission.open_stream(stream), stream, first - 1, first - 1, last, blocks
        )
        result = parts.receiving.receiver.replicate(request)
        self.dropped += result.records_dropped
        return result.records_applied


@pytest.fixture
def puller(tmp_path: Path, books: Books) -> Iterator[Puller]:
    with ExitStack() as stack:
        west, east = (
            stack.enter_context(local_cluster(tmp_path / name, metadata_url=books(name))) for name in ("west", "east")
        )
        west.replay.before = nothing_is_sent
        for cluster in (west, east):
            cluster.client.tables.create("t", [b"m"], properties=KEPT)
        west.client.replication.define_cluster("east", east.quorum)
        (target,) = west.client.replication.enable("t", "east").targets
        yield Puller(west, east, target.target)


def write(cluster: LocalCluster, prefix: str) -> None:
    with cluster.client.writer("t") as writer:
        for number in range(40):
            for row in (f"a{prefix}{number:03}", f"z{prefix}{number:03}"):
                writer.add(Mutation(row.encode()).put(b"f", b"q", prefix.encode()))


def shown(cluster: LocalCluster) -> list[tuple[bytes, bytes, int]]:
    """Every version of every cell."""
    return [(cell.row, cell.value, cell.timestamp) for cell in cluster.client.scan("t", versions=9).cells()]


def pulled(puller: Puller) -> None:
    """East has all that west has."""

    def is_there() -> bool:
        puller.pull()
        return shown(puller.east) == shown(puller.west)

    wait_until(is_there, "west's rows on east")


def _dies_and_pulls_again(puller: Puller) -> None:
    write(puller.west, "open")
    wait_until(lambda: puller.pull(dies=True) > 0, "something is due")
    puller.pull()
    rows = [row for row, _, _ in shown(puller.east)]
    assert len(set(rows)) == len(rows), "R18: a cell that was pulled arrived twice"


@BOOKS_IN_BOTH
def test_a_peer_that_pulls_gets_everything_once_and_the_masters_books_and_logs_end(puller: Puller) -> None:
    west = puller.west
    _dies_and_pulls_again(puller)
    assert puller.dropped > 0, "the records from before its death were not applied again"
    pulled(puller)
    before = list(west.settings.wal_dir.rglob("*.wal"))
    assert before
    west.tserver.parts.writing.path.roll()
    write(west, "next")
    west.put("t", b"aopen000", b"later")
    pulled(puller)
    assert len(shown(west)) == 2 * 80 + 1
    west.tserver.parts.writing.path.roll()
    west.client.tables.flush("t")
    assert not west.client.replication.wait("t")

    def is_over() -> bool:
        puller.pull()
        return not list(west.metadata.scan(*keys.section(keys.REPL_PREFIX)))

    wait_until(is_over, "no ~repl row is left")
    wait_until(lambda: not any(path.exists() for path in before), "the collector has deleted the logs")
    assert not any(row.cells for row in west.metadata.scan(*keys.table_section("1"), ("repl",)))
    assert west.replay.results == [], "nothing was pushed"


def test_r18_if_the_high_water_did_not_count_it_would_come_twice(puller: Puller) -> None:
    with (
        fault("high-water-does-not-count and paths-are-not-compared"),
        pytest.raises(AssertionError, match="a cell that was pulled arrived twice"),
    ):
        _dies_and_pulls_again(puller)
