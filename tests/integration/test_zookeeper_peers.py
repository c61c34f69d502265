"""Two clusters, one of which is known by its root in ZooKeeper alone: its masters get other ports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.config.file import SETTINGS_FILE
from bookkeeper.standalone.ports import free_ports
from tests.support.cluster import Cluster
from tests.support.hbase import HBaseUnavailableError
from tests.support.workloads_clusters import SETTINGS
from tests.support.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    try:
        with ZooKeeperServer(tmp_path / "zookeeper") as made:
            yield made
    except HBaseUnavailableError as error:
        pytest.skip(f"NO ZOOKEEPER, so no peer in it was tested: {error}")


def put(cluster: Cluster, row: str) -> None:
    with cluster.client.writer("t") as writer:
        writer.add(Mutation(row.encode()).put(b"f", b"q", b"1"))


def rows(client: Client) -> list[str]:
    return [cell.row.decode() for cell in client.scan("t").cells()]


def with_another_port(cluster: Cluster) -> Cluster:
    """The stopped cluster, which will answer at another port of its master."""
    file = cluster.directory / SETTINGS_FILE
    (port,) = free_ports(1)
    text = file.read_text()
    before = f"\nport = {cluster.settings.master.port}\n"
    assert text.count(before) == 1
    file.write_text(text.replace(before, f"\nport = {port}\n"))
    return Cluster.opened(cluster.directory)


def test_a_peer_that_moves_its_masters_gets_the_records_without_a_command(
    tmp_path: Path, server: ZooKeeperServer
) -> None:
    url = f"zk://{server.quorum}/east"
    west = Cluster(tmp_path / "west", "west", tservers=1, overrides=SETTINGS)
    east = Cluster(tmp_path / "east", "east", tservers=1, overrides={**SETTINGS, "coordination.url": url})
    with west:
        with east, Client.connect(url) as client:
            for cluster in (west, east):
                cluster.client.tables.create("t")
            west.client.replication.define_cluster("east", url.removeprefix("zk://"))
            west.client.replication.enable("t", "east")
            put(west, "before")
            assert not west.client.replication.wait("t", timeout_ms=60_000)
            assert rows(client) == ["before"]
            east.stop()
            put(west, "away")
            with with_another_port(east) as moved:
                assert moved.settings.master.port != east.settings.master.port
                put(west, "moved")
                assert not west.client.replication.wait("t", timeout_ms=120_000)
                expected = ["away", "before", "moved"]
                assert rows(client) == expected, "a client of the root is lost"
                assert rows(moved.client) == expected
        (peer,) = west.client.replication.clusters()
        assert peer.quorum == url
