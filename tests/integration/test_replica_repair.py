"""Repair with real processes: a host is lost for good, another one gets its replicas, and no row is missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.standalone.joining import local_directory
from tests.support.cluster import Cluster
from tests.support.replica_looks import voters, wait_for_copies, wait_for_voters
from tests.support.shared_cluster import lent

pytestmark = pytest.mark.integration

ROWS = [b"%03d" % number for number in range(200)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four hosts; one that is away for 2 s is replaced."""
    overrides = {"standalone.hosts": 4, "replicas.repair_after_ms": 2_000, "master.scan_interval_ms": 500}
    with Cluster(tmp_path_factory.mktemp("repair") / "own", "own", tservers=1, overrides=overrides) as made:
        yield made


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    with lent(running) as made:
        yield made


def write(client: Client, value: bytes) -> None:
    """All rows, acknowledged."""
    with client.writer("t") as writer:
        for row in ROWS:
            writer.add(Mutation(row).put(b"f", b"q", value))


def values(client: Client) -> dict[bytes, bytes]:
    """All rows."""
    return {cell.row: cell.value for cell in client.scan("t").cells()}


def test_a_drained_leader_gives_its_tablet_and_its_vote_away_while_rows_are_written(cluster: Cluster) -> None:
    client = cluster.client
    client.tables.create("t", properties={"table.replicas": "3"})
    write(client, b"1")
    client.tables.flush("t")
    tablet = wait_for_copies(cluster, 3)
    before = voters(tablet)
    leader = next(one.host for one in tablet.replicas if one.leads)
    spare = ({"host1", "host2", "host3", "host4"} - before).pop()

    client.hosts.drain(leader, True)
    after = wait_for_voters(cluster, (before - {leader}) | {spare})
    write(client, b"2")
    assert values(client) == dict.fromkeys(ROWS, b"2")
    assert next(one.host for one in after.replicas if one.leads) != leader
    client.hosts.drain(leader, False)


def test_the_host_of_a_leader_is_lost_for_good_and_another_host_gets_its_replica(running: Cluster) -> None:
    """The last test of this file: the cluster has a host less afterwards."""
    cluster, client = running, running.client
    client.tables.create("t", properties={"table.replicas": "3"})
    write(client, b"1")
    client.tables.flush("t")
    tablet = wait_for_copies(cluster, 3)
    before = voters(tablet)
    leader = next(one.host for one in tablet.replicas if one.leads)
    lost = leader if leader != "host1" else next(iter(before - {"host1"}))  # host1 is the cluster's own directory
    spare = ({"host1", "host2", "host3", "host4"} - before).pop()

    cluster.kill9(f"{lost}.tserver1")
    shutil.rmtree(local_directory(cluster.settings, lost))
    write(client, b"2")
    assert values(client) == dict.fromkeys(ROWS, b"2")
    client.tables.flush("t")
    wait_for_voters(cluster, (before - {lost}) | {spare})
    assert values(client) == dict.fromkeys(ROWS, b"2")
    shown = {host.name: (host.replicas, host.incarnation is None) for host in client.hosts.list()}
    assert shown[lost][1], "the lost host does not live"
    assert shown[spare] == (1, False)
