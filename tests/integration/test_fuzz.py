"""Holders of valid secrets send any bytes to a cluster at work: no other user notices. The cluster with hosts has all
attacks of the other one, and those of a process of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
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
HOSTS: Mapping[str, object] = {"standalone.hosts": 3, "storage.logs": "host", "replicas.repair_after_ms": 60_000}


def attacked(cluster: Cluster, attacks: int, properties: Mapping[str, str]) -> None:
    """A table of others, which is written meanwhile, holds exactly that after so many attacks."""
    workload = LinkedList(SEED)
    cluster.client.tables.create(workload.table, workload.splits, workload.groups, properties)
    loader = Loader(cluster.client, workload, SystemClock())
    loader.start()
    try:
        loader.wait_acknowledged(20, 60)
        run_fuzz(cluster, SEED, attacks, Trace(SystemClock()))
        loader.wait_acknowledged(loader.acknowledged + 5, 60)
    finally:
        loader.stop()
    expected = loader.expectation.after(loader.acknowledged)
    found = cells_in(cluster.client.scan(workload.table).table(), workload.table)
    assert not differences(expected, found, "west links")


@pytest.mark.long
def test_others_tables_hold_what_was_written_whatever_holders_of_secrets_send(tmp_path: Path) -> None:
    with Cluster(tmp_path / "west", "west") as cluster:
        attacked(cluster, 600, {})


@pytest.mark.long
def test_tables_on_hosts_hold_what_was_written_whatever_a_process_of_the_cluster_sends(tmp_path: Path) -> None:
    with Cluster(tmp_path / "west", "west", tservers=1, overrides=HOSTS) as cluster:
        attacked(cluster, 600, {"table.replicas": "3"})
