"""A peer with a right handshake answers with lies: only its own copy waits or is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.clock import SystemClock
from tests.soak.lies_round import DEFINED, IMPORTS, run_lies
from tests.soak.trace import Trace
from tests.support.cluster import Cluster
from tests.support.workloads import LinkedList
from tests.support.workloads_run import Loader, cells_in, differences

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SEED = 20_261


@pytest.mark.parametrize(
    ("lies", "imports", "defined"), [(5, 2, 6), pytest.param(15, IMPORTS, DEFINED, marks=pytest.mark.long)]
)
def test_a_peer_that_lies_delays_itself_only(
    lies: int, imports: int, defined: int, west: Cluster, east: Cluster, tmp_path: Path
) -> None:
    workload = LinkedList(SEED, table=f"lied-links-{lies}")
    for cluster in (west, east):
        cluster.client.tables.create(workload.table, workload.splits, workload.groups)
    west.client.replication.define_cluster("east", east.quorum)
    west.client.replication.enable(workload.table, "east")
    loader = Loader(west.client, workload, SystemClock())
    loader.start()
    try:
        trace = Trace(SystemClock())
        run_lies(west, workload.table, tmp_path, SEED, lies, trace, imports=imports, defined=defined)
    finally:
        loader.stop()
    assert not west.client.replication.wait(workload.table, timeout_ms=60_000)
    expected = loader.expectation.after(loader.acknowledged)
    for cluster in (west, east):
        found = cells_in(cluster.client.scan(workload.table).table(), workload.table)
        assert not differences(expected, found, "links")
    west.client.replication.disable(workload.table, "east")
