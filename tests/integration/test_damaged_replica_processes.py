"""Bytes of segment files are flipped on the disks of real hosts, and the cluster mends itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.errors import TransientError
from bookkeeper.rpc.contract.messages import ReplicaStanding
from bookkeeper.standalone.joining import local_directory
from tests.support.cluster import Cluster

pytestmark = pytest.mark.integration

ROWS = [b"%05d" % number for number in range(2_000)]
HOSTS = ("host1", "host2", "host3")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three hosts that look for damage all the time."""
    overrides = {"standalone.hosts": 3, "replicas.check_interval_ms": 500, "master.scan_interval_ms": 500}
    with Cluster(tmp_path / "own", "own", tservers=1, overrides=overrides) as made:
        yield made


def replicas(cluster: Cluster) -> list[ReplicaStanding]:
    """The replicas of the only tablet; none while the master changes."""
    try:
        table_id = cluster.client.tables.get("t").table_id
        return [*cluster.client.hosts.replicas(table_id)[0].replicas]
    except TransientError:
        return []


def files(cluster: Cluster, host: str) -> dict[str, bytes]:
    """The segment files on a host's disk."""
    home = cluster.directory if host == "host1" else local_directory(cluster.settings, host)
    return {
        path.relative_to(home / "replicas").as_posix(): path.read_bytes()
        for path in (home / "replicas" / "tables").rglob("*.parquet")
    }


def damage(cluster: Cluster, host: str) -> None:
    """Flip one byte in the middle of each segment file of a host."""
    home = cluster.directory if host == "host1" else local_directory(cluster.settings, host)
    for name, content in files(cluster, host).items():
        with (home / "replicas" / name).open("r+b") as file:
            file.seek(len(content) // 2)
            file.write(bytes([content[len(content) // 2] ^ 0xFF]))


def write(client: Client, value: bytes) -> None:
    """All rows, acknowledged and flushed."""
    with client.writer("t") as writer:
        for row in ROWS:
            writer.add(Mutation(row).put(b"f", b"q", value))
    client.tables.flush("t")


def values(client: Client) -> dict[bytes, bytes]:
    """All rows."""
    return {cell.row: cell.value for cell in client.scan("t").cells()}


def test_the_files_of_the_leader_and_then_of_a_follower_are_damaged(cluster: Cluster) -> None:
    client = cluster.client
    client.tables.create("t", properties={"table.replicas": "3"})
    write(client, b"1")
    write(client, b"2")
    cluster.wait_until(lambda: len({frozenset(files(cluster, host)) for host in HOSTS}) == 1, "three equal copies")
    sound = files(cluster, "host1")
    leader = next(one.host for one in replicas(cluster) if one.leads)
    for host in (leader, next(one for one in HOSTS if one != leader)):
        damage(cluster, host)
        assert values(client) == dict.fromkeys(ROWS, b"2")
        cluster.wait_until(lambda: files(cluster, host) == sound, f"the files of {host} are sound again")  # noqa: B023
        cluster.wait_until(
            lambda: all(one.held is not None and not one.held.damaged for one in replicas(cluster)), "no damaged file"
        )
    write(client, b"3")
    assert values(client) == dict.fromkeys(ROWS, b"3")
