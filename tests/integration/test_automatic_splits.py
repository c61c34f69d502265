"""Tablets split by themselves while data flows to a peer, and processes die meanwhile."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from bookkeeper.client import Mutation
from bookkeeper.clock import SystemClock
from bookkeeper.errors import TransientError
from bookkeeper.master.operations.split_merge import SPLIT_KIND
from bookkeeper.model import LocalityGroup
from bookkeeper.rpc.contract.messages import OperationInfo
from tests.support.cluster import Cluster
from tests.support.workloads import RowChange
from tests.support.workloads_run import Loader, check_workload

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]

LIMIT_S = 120.0
SPLITS = 4

SMALL_TABLETS = {
    "table.split.bytes": "400000",
    "table.flush.memtable_bytes": "50000",
    "table.compaction.ratio": "1000",
    "table.compaction.segments_max": "1000",
}
"""Each flush makes a segment of one row group; without compactions, an index shows where these lie."""


@dataclass(frozen=True, slots=True)
class Growing:
    """New rows one behind the other, and changes of some earlier ones."""

    seed: int
    table: str = "growing"
    splits: Sequence[bytes] = ()
    groups: Sequence[LocalityGroup] = ()
    width: int = 30

    def batch(self, number: int) -> list[RowChange]:
        """``width`` new rows, a changed one and a deleted one."""
        rng = random.Random(f"{self.seed}:{number}")
        first = number * self.width
        new = [
            RowChange(b"%08d" % row, ((b"f", b"q", rng.randbytes(1_000)),)) for row in range(first, first + self.width)
        ]
        changed, deleted = (b"%08d" % rng.randrange(first + self.width) for _ in range(2))
        return [*new, RowChange(changed, ((b"f", b"r", b"%d" % number),)), RowChange(deleted, ((b"f", b"q", None),))]


WORKLOAD = Growing(71)
BATCHES_BEFORE = 60
"""Of 30 kB each: many flushes have made a segment."""


def splits_of(cluster: Cluster) -> int:
    """The splits of the table; 0 while they change, or no master leads."""
    try:
        return len(cluster.client.tables.splits(WORKLOAD.table))
    except TransientError:
        return 0


def splits_begun(cluster: Cluster) -> list[OperationInfo]:
    """The splits of the table that are known: those under way, and failed ones."""
    known = [found for found in cluster.client.operations() if found.kind == SPLIT_KIND]
    return [found for found in known if json.loads(found.arguments)["name"] == WORKLOAD.table]


def is_splitting(cluster: Cluster) -> bool:
    """Whether an automatic split is under way."""
    return any(found.step != "failed" for found in splits_begun(cluster))


def test_a_tablet_of_one_large_row_shows_that_it_is_not_split(west: Cluster) -> None:
    tables, name = west.client.tables, "one-row"
    table_id = tables.create(name, properties=SMALL_TABLETS).table_id
    with west.client.writer(name) as writer:
        for number in range(40):
            writer.add(Mutation(b"giant").put(b"f", b"%02d" % number, random.Random(number).randbytes(20_000)))
    tables.flush(name)
    west.wait_until(lambda: tables.locate(table_id)[0].warning is not None, "reason that it is not split", LIMIT_S)
    (tablet,) = tables.locate(table_id)
    assert "row b'giant' has " in (tablet.warning or "")
    assert "set table.split.bytes above" in (tablet.warning or "")
    tables.change_properties(name, {"table.split.bytes": "0"})
    west.wait_until(lambda: tables.locate(table_id)[0].warning is None, "end of the warning", LIMIT_S)
    tables.delete(name)


@pytest.mark.long
def test_tablets_split_by_themselves_under_load_while_the_master_dies(west: Cluster, east: Cluster) -> None:
    west.client.replication.define_cluster("east", east.quorum)
    east.client.tables.create(WORKLOAD.table, properties=SMALL_TABLETS)
    west.client.tables.create(WORKLOAD.table, properties={**SMALL_TABLETS, "table.split.bytes": "0"})
    west.client.replication.enable(WORKLOAD.table, "east")
    loader = Loader(west.client, WORKLOAD, SystemClock())
    loader.start()
    try:
        # A tablet that is looked at when it has one large segment rests for ten minutes.
        loader.wait_acknowledged(BATCHES_BEFORE, LIMIT_S)
        west.client.tables.change_properties(WORKLOAD.table, {"table.split.bytes": SMALL_TABLETS["table.split.bytes"]})
        for role in ("master", "tserver1"):
            west.wait_until(lambda: is_splitting(west), "automatic split", LIMIT_S)
            pid = west.kill9(role)
            west.wait_restarted(role, pid)
        west.wait_until(lambda: splits_of(west) >= SPLITS, f"{SPLITS} splits", LIMIT_S)
    finally:
        loader.stop()
    assert not west.client.replication.wait(WORKLOAD.table, "east", timeout_ms=LIMIT_S * 1_000)
    assert not check_workload(loader, west.client, east.client)
    for cluster in (west, east):
        assert not [found for found in splits_begun(cluster) if found.step == "failed"]

    west.client.tables.change_properties(WORKLOAD.table, {"table.split.bytes": "0"})
    west.client.tables.merge(WORKLOAD.table)
    assert west.client.tables.splits(WORKLOAD.table) == []
    assert not check_workload(loader, west.client, east.client)
    west.client.replication.disable(WORKLOAD.table, "east")
    for cluster in (west, east):
        cluster.client.tables.delete(WORKLOAD.table)
