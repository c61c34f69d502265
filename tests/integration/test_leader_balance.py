"""Leaders with real processes: a host that was away leads its share again, and no row is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.errors import TransientError
from tests.support.cluster import Cluster
from tests.support.hosted_cluster import HostedCluster

pytestmark = pytest.mark.integration

ROWS = [b"%03d" % number for number in range(90)]
SPLITS = [b"%03d" % number for number in range(10, 90, 10)]
"""They make nine tablets."""


@pytest.fixture(params=[pytest.param("master", marks=pytest.mark.long), "coordination"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three hosts."""
    overrides = {"standalone.hosts": 3, "master.scan_interval_ms": 500, "replicas.election": request.param}
    with Cluster(tmp_path / "own", "own", tservers=1, overrides=overrides) as made:
        yield made


def write(client: Client, value: bytes) -> None:
    """All rows, acknowledged."""
    with client.writer("t") as writer:
        for row in ROWS:
            writer.add(Mutation(row).put(b"f", b"q", value))


def leads(cluster: Cluster) -> Counter[str]:
    """The tablets that each host serves as their leader; empty while the master changes."""
    try:
        found = cluster.client.hosts.replicas(cluster.client.tables.get("t").table_id)
    except TransientError:
        return Counter()
    return Counter(
        one.host
        for tablet in found
        for one in tablet.replicas
        if one.leads and one.held is not None and one.held.is_leader
    )


@pytest.mark.long
def test_a_host_that_was_away_leads_its_share_again(cluster: Cluster) -> None:
    client = cluster.client
    client.tables.create("t", splits=SPLITS, properties={"table.replicas": "3"})
    write(client, b"1")
    client.tables.flush("t")
    even = {"host1": 3, "host2": 3, "host3": 3}
    cluster.wait_until(lambda: leads(cluster) == even, "three leaders on each host")
    with HostedCluster(cluster, ["t"], None).away():  # a killed process alone is back before others lead
        cluster.wait_until(lambda: leads(cluster)["host2"] == 0 and leads(cluster).total() == 9, "the others lead")
        write(client, b"2")
    cluster.wait_until(lambda: leads(cluster) == even, "the host that is back leads its share")
    write(client, b"3")
    assert {cell.row: cell.value for cell in client.scan("t").cells()} == dict.fromkeys(ROWS, b"3")
