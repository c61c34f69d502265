"""Tablets are split and merged on both sides while data flows, and processes are killed meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from bookkeeper.client import Client
from bookkeeper.clock import SystemClock
from tests.support.cluster import Cluster
from tests.support.workloads import Mix
from tests.support.workloads_run import Loader, check_workload

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]

LIMIT_S = 120.0
WORKLOAD = Mix(31, table="borders", splits=(b"row-0075",))


def _row(number: int) -> bytes:
    return f"row-{number:04d}".encode()


def _change(client: Client, rng: random.Random) -> None:
    """Split or merge somewhere."""
    low, high = sorted(rng.sample(range(WORKLOAD.rows), 2))
    if rng.random() < 0.5:
        client.tables.add_splits(WORKLOAD.table, [_row(low), _row(high)])
    else:
        client.tables.merge(WORKLOAD.table, _row(low), _row(high))


def _while(cluster: Cluster, act: Callable[[], None], killed: str) -> None:
    """A process is killed while something goes on."""
    with ThreadPoolExecutor(1) as background:
        acting = background.submit(act)
        pid = cluster.kill9(killed) if killed else 0
        acting.result(LIMIT_S)
    if killed:
        cluster.wait_restarted(killed, pid)


def split_and_merge_under_load(west: Cluster, east: Cluster) -> None:
    """The law; east is defined on west."""
    for cluster in (west, east):
        cluster.client.tables.create(WORKLOAD.table, WORKLOAD.splits, WORKLOAD.groups)
    west.client.replication.enable(WORKLOAD.table, "east")
    loader, rng = Loader(west.client, WORKLOAD, SystemClock()), random.Random(31)
    loader.start()
    for cluster, killed in ((west, ""), (east, ""), (west, "master"), (east, "tserver1"), (east, "master"),
                            (west, "tserver2"), (west, ""), (east, "")):  # fmt: skip
        loader.wait_acknowledged(loader.acknowledged + 5, LIMIT_S)
        _while(cluster, lambda cluster=cluster: _change(cluster.client, rng), killed)  # type: ignore[misc]
    loader.wait_acknowledged(loader.acknowledged + 5, LIMIT_S)
    loader.stop()
    assert not west.client.replication.wait(WORKLOAD.table, "east", timeout_ms=LIMIT_S * 1_000)
    assert not check_workload(loader, west.client, east.client)
    for cluster in (west, east):
        assert cluster.client.tables.splits(WORKLOAD.table)
        cluster.client.tables.merge(WORKLOAD.table)
        assert cluster.client.tables.splits(WORKLOAD.table) == []
    assert not check_workload(loader, west.client, east.client)
    west.client.replication.disable(WORKLOAD.table, "east")
    for cluster in (west, east):
        cluster.client.tables.delete(WORKLOAD.table)


def test_tablets_are_split_and_merged_on_both_sides_while_data_flows_and_processes_die(
    west: Cluster, east: Cluster
) -> None:
    west.client.replication.define_cluster("east", east.quorum)
    split_and_merge_under_load(west, east)
