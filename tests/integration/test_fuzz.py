"""A client and a peer with valid secrets send any bytes to a cluster at work: no other user notices."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.clock import SystemClock
from tests.soak.fuzz_round import run_fuzz
from tests.soak.trace import Trace
from tests.support.cluster import Cluster
from tests.support.workloads import LinkedList
from tests.support.workloads_run import Loader, cells_in, differences

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SEED = 20_261
ATTACKS = 600


def test_others_tables_hold_what_was_written_whatever_holders_of_secrets_send(tmp_path: Path) -> None:
    with Cluster(tmp_path / "west", "west") as cluster:
        workload = LinkedList(SEED)
        cluster.client.tables.create(workload.table, workload.splits, workload.groups)
        loader = Loader(cluster.client, workload, SystemClock())
        loader.start()
        try:
            loader.wait_acknowledged(20, 60)
            run_fuzz(cluster, SEED, ATTACKS, Trace(SystemClock()))
            loader.wait_acknowledged(loader.acknowledged + 5, 60)
        finally:
            loader.stop()
        expected = loader.expectation.after(loader.acknowledged)
        found = cells_in(cluster.client.scan(workload.table).table(), workload.table)
        assert not differences(expected, found, "west links")
