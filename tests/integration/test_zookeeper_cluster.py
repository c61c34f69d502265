"""A cluster whose coordination store is in a real ZooKeeper, from its start to a root that was restored.

It replicates to a peer, its processes are killed, and ZooKeeper stands still for less than the lease and for longer.
Another one has a lease that no test waits for: the supervisor ends the sessions of what was killed.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.client import Mutation
from bookkeeper.errors import RefusedError, TransientError
from bookkeeper.standalone.directory import complete_cluster
from tests.support.cluster import Cluster
from tests.support.workloads_clusters import SETTINGS
from tests.support.zookeeper import ZooKeeperServer, own_server

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(300)]

LEASE_S = 16
ROLES = ("master", "tserver1", "tserver2", "replay")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper of the test's own: it is stopped."""
    with own_server(tmp_path / "zookeeper", "no cluster in it was tested") as made:
        yield made


LONG_LEASE = {**SETTINGS, "coordination.session_lease_ms": 600_000, "metadata.region_session_ms": 900_000}
"""Beyond the limits of all waits."""


def put(cluster: Cluster, row: str) -> None:
    with cluster.client.writer("t") as writer:
        writer.add(Mutation(row.encode()).put(b"f", b"q", b"1"))


def rows(cluster: Cluster) -> list[str]:
    return [cell.row.decode() for cell in cluster.client.scan("t").cells()]


def pids(cluster: Cluster) -> dict[str, int]:
    return {role: cluster.pid(role) for role in ROLES}


def test_a_cluster_in_zookeeper_loses_nothing_to_kills_and_standstills_and_refuses_a_restored_root(
    tmp_path: Path, server: ZooKeeperServer
) -> None:
    lease: dict[str, object] = {"coordination.session_lease_ms": 1_000 * LEASE_S}
    overrides = {**SETTINGS, **lease, "coordination.url": f"zk://{server.quorum}/west"}
    east = Cluster(tmp_path / "east", "east", tservers=1, overrides=SETTINGS)
    west = Cluster(tmp_path / "west", "west", tservers=2, overrides=overrides)
    server.kill9()
    shutil.copytree(tmp_path / "zookeeper" / "data", tmp_path / "backup")
    server.start()
    with east, west:
        for cluster in (west, east):
            cluster.client.tables.create("t")
        west.client.replication.define_cluster("east", east.quorum)
        west.client.replication.enable("t", "east")
        put(west, "started")
        assert not west.client.replication.wait("t", timeout_ms=60_000)

        for role in ("tserver1", "tserver2", "master"):
            west.wait_restarted(role, west.kill9(role))
            put(west, f"killed {role}")
        west.wait_ready()
        assert not west.client.replication.wait("t", timeout_ms=60_000)

        before = pids(west)
        with west.client.writer("t") as writer:
            writer.add(Mutation(b"zookeeper answers").put(b"f", b"q", b"1"))
            writer.flush()
            with server.stopped():
                writer.add(Mutation(b"zookeeper stands still").put(b"f", b"q", b"1"))
                writer.flush()
                threading.Event().wait(LEASE_S / 4)
        put(west, "zookeeper goes on")
        west.wait_ready()
        assert pids(west) == before, "a process ended although ZooKeeper stood still for less than the lease"

        with server.stopped():
            west.wait_until(lambda: not set(pids(west).values()) & set(before.values()), "the end of all processes")
            with pytest.raises(TransientError):
                west.client.tables.list()
        west.wait_ready()
        put(west, "after the lease")
        assert not west.client.replication.wait("t", timeout_ms=60_000)
        kills = [f"killed {role}" for role in ("tserver1", "tserver2", "master")]
        expected = sorted(
            ["started", *kills, "zookeeper answers", "zookeeper stands still", "zookeeper goes on", "after the lease"]
        )
        assert rows(west) == expected
        assert rows(east) == expected
        assert "standalone ended" not in west.log_text("standalone")

    complete_cluster(west.settings)
    server.kill9()
    shutil.rmtree(tmp_path / "zookeeper" / "data")
    shutil.copytree(tmp_path / "backup", tmp_path / "zookeeper" / "data")
    server.start()
    with pytest.raises(RefusedError, match="is an older copy: its generation is"):
        complete_cluster(west.settings)


def test_the_supervisor_and_the_next_one_end_the_sessions_of_killed_processes(
    tmp_path: Path, server: ZooKeeperServer
) -> None:
    """A master leads, and a tserver takes tablets, only when the session of the one before is over."""
    overrides = {**LONG_LEASE, "coordination.url": f"zk://{server.quorum}/west"}
    with Cluster(tmp_path / "west", "west", tservers=1, overrides=overrides) as west:
        west.client.tables.create("t")
        for role in ("tserver1", "master"):
            west.wait_restarted(role, west.kill9(role))
            west.wait_ready()
            put(west, f"killed {role}")
        west.crash()
        west.launch()
        west.wait_ready()
        put(west, "killed supervisor")
        assert rows(west) == ["killed master", "killed supervisor", "killed tserver1"]
        assert "is not ended" not in west.log_text("standalone")
