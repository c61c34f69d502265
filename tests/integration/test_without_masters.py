"""No byte passes a master: a range that is under way arrives, and is written down, though no master lives; and records
that come later arrive, too.

Two clusters run inside the test; their masters end in the middle of a range. Then the peer has the whole range, and the
books have its finished offset. Source: ACCUMULO-378, *Goals* (no active master).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

import combiners
from bookkeeper.client import Mutation
from bookkeeper.errors import UnavailableError
from bookkeeper.metadata import keys, values
from bookkeeper.replay.ranges import Range
from bookkeeper.rpc.contract.messages import ReplicateRequest, ReplicateResult
from bookkeeper.tserver.receive.receiver import Receiver
from tests.support.local_pair import LocalCluster, local_cluster
from tests.support.tservers import wait_until

pytestmark = pytest.mark.integration

ROWS = 2_000
SMALL: dict[str, object] = {"replay.message_bytes": 65_536}


@dataclass(slots=True)
class Watch:
    """Ends all masters when the second message of the range has come, and counts what comes before and behind that."""

    clusters: Sequence[LocalCluster]
    messages: int = 0
    before: int = 0
    behind: int = 0

    def hold(self, ranges: Sequence[Range]) -> None:
        """Refuse ranges until one has all rows: no master is there to hand out another."""
        if max(r.last for r in ranges) < ROWS:
            raise UnavailableError("not everything is written yet")

    def replicate(
        self, receiver: Receiver, request: ReplicateRequest, origins: Collection[str] | None
    ) -> ReplicateResult:
        """In place of the receiver's own."""
        result = really_replicate(receiver, request, origins)
        self.messages += 1
        if self.messages <= 2:
            self.before += result.records_applied
        else:
            self.behind += result.records_applied
        if self.messages == 2:
            for cluster in self.clusters:
                cluster.master.stop()
        return result


really_replicate = Receiver.replicate


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    with ExitStack() as stack:
        west, east = (stack.enter_context(local_cluster(tmp_path / name, SMALL)) for name in ("west", "east"))
        watch = Watch((west, east))
        west.replay.before = watch.hold
        for cluster in (west, east):
            cluster.client.tables.create("t")
        west.client.replication.define_cluster("east", east.quorum)
        west.client.replication.enable("t", "east")
        stack.enter_context(patch.object(Receiver, "replicate", lambda *given: watch.replicate(*given)))
        yield watch


def test_a_range_under_way_needs_no_master_on_either_side(watch: Watch) -> None:
    west, _ = watch.clusters
    with west.client.writer("t") as writer:
        for number in range(ROWS):
            writer.add(Mutation(b"%06d" % number).put(b"f", b"q", b"v" * 1_000))
            if number % 50 == 0:
                writer.flush()
    wait_until(lambda: watch.before + watch.behind == ROWS, "everything has arrived")
    assert watch.behind > watch.before > 0, "most of it came without any master"
    for cluster in watch.clusters:
        with pytest.raises(UnavailableError):
            cluster.master.calls.leader()

    def is_written_down() -> bool:
        rows = west.metadata.scan(*keys.section(keys.REPL_PREFIX), ("repl", "done"))
        found = [values.decode_status(cell.value) for row in rows for cell in row.cells.values()]
        status = combiners.combine(found)
        return status.replication_finished_offset == status.replication_needed_offset == ROWS

    wait_until(is_written_down, "the finished offset")


def test_later_rows_arrive_while_no_master_lives_on_either_side(tmp_path: Path) -> None:
    with local_cluster(tmp_path / "west") as west, local_cluster(tmp_path / "east") as east:
        for cluster in (west, east):
            cluster.client.tables.create("t")
        west.client.replication.define_cluster("east", east.quorum)
        west.client.replication.enable("t", "east")
        with west.client.writer("t") as writer:

            def must_arrive(row: bytes) -> None:
                writer.add(Mutation(row).put(b"f", b"q", b"v"))
                writer.flush()
                wait_until(lambda: row in east.rows("t"), f"{row!r} arrives")

            must_arrive(b"opens the stream")
            for cluster in (west, east):
                cluster.master.stop()
            must_arrive(b"in the same log")
            west.tserver.parts.writing.path.roll()
            must_arrive(b"in the next log")
