"""Logs on hosts' disks, with real processes: a leader's host goes away with acknowledged rows that nobody else has."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.errors import NotFoundError, TransientError
from bookkeeper.standalone.joining import join_cluster, local_directory
from tests.support.asked_why import cause_of
from tests.support.cluster import Cluster
from tests.support.monitor_scene import Scene
from tests.support.standstill import crash_without
from tests.support.workloads_clusters import SETTINGS as PAIR

pytestmark = pytest.mark.integration

FIRST = "host1"
OLD = [b"old-%03d" % number for number in range(50)]
TAIL = [b"tail-%03d" % number for number in range(50)]
NEW = [b"new-%03d" % number for number in range(50)]
PROPERTIES = {"table.replicas": "3", "table.failover": "2000"}
VERSIONS = {"table.versions.max": "50"}
"""More than any cell gets: so that a record that is applied twice shows, as a version more."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three hosts with their own logs."""
    overrides = {**PAIR, "standalone.hosts": 3, "storage.logs": "host", "master.scan_interval_ms": 500}
    with Cluster(tmp_path / "own", "own", tservers=1, overrides=overrides) as made:
        yield made


def write(client: Client, rows: list[bytes], value: bytes) -> None:
    """The rows, acknowledged."""
    with client.writer("t") as writer:
        for row in rows:
            writer.add(Mutation(row).put(b"f", b"q", value))


def values(client: Client) -> dict[bytes, bytes]:
    return {cell.row: cell.value for cell in client.scan("t").cells()}


def leader(cluster: Cluster) -> str:
    """The host that leads the only tablet; "" for none."""
    try:
        (tablet,) = cluster.client.hosts.replicas(cluster.client.tables.get("t").table_id)
    except TransientError:
        return ""
    return next((one.host for one in tablet.replicas if one.leads), "")


def is_named(cluster: Cluster) -> bool:
    """Whether the books name the leader's newest state."""
    try:
        (tablet,) = cluster.client.hosts.replicas(cluster.client.tables.get("t").table_id)
    except TransientError:
        return False
    return any(one.leads and one.held is not None and one.held.root == tablet.named for one in tablet.replicas)


def role(host: str) -> str:
    return "tserver1" if host == FIRST else f"{host}.tserver1"


def further_leader(cluster: Cluster) -> str:
    """A leader that is not the first host, whose directory is that of the cluster."""
    found = ""

    def is_another() -> bool:
        nonlocal found
        found = leader(cluster)
        if found == FIRST:
            cluster.wait_restarted(role(FIRST), cluster.kill9(role(FIRST)))
        return found not in ("", FIRST)

    cluster.wait_until(is_another, "leader on a further host")
    return found


def is_alive(cluster: Cluster, host: str) -> bool:
    try:
        return any(one.name == host and one.incarnation is not None for one in cluster.client.hosts.list())
    except TransientError:
        return False


@contextmanager
def away(cluster: Cluster, host: str) -> Iterator[None]:
    """A further host crashes, and its directory is away while the block runs."""
    home = local_directory(cluster.settings, host)
    elsewhere = home.with_name(f"{host}-away")
    crash_without(cluster.pid(role(host)), home, elsewhere)
    try:
        yield
    finally:
        elsewhere.rename(home)


@contextmanager
def destroyed(cluster: Cluster, host: str) -> Iterator[None]:
    """A further host crashes and loses its disk; after the block it is back with an empty one."""
    home = local_directory(cluster.settings, host)
    lost = home.with_name(f"{host}-lost")
    crash_without(cluster.pid(role(host)), home, lost)
    shutil.rmtree(lost)
    yield
    join_cluster(home, cluster.directory, host, overrides={"standalone.processes": ["tserver"]})


def lost_logs(cluster: Cluster) -> tuple[str, ...]:
    """The logs that the only tablet is served without."""
    (tablet,) = cluster.client.hosts.replicas(cluster.client.tables.get("t").table_id)
    return tablet.lost_logs


def warnings(cluster: Cluster) -> list[str]:
    return [found.warning or "" for found in cluster.client.tables.locate(cluster.client.tables.get("t").table_id)]


def test_a_disk_is_destroyed_and_an_operator_accepts_the_loss(cluster: Cluster) -> None:
    client = cluster.client
    client.tables.create("t", properties=PROPERTIES)
    host = further_leader(cluster)
    write(client, OLD, b"1")
    client.tables.flush("t")
    cluster.wait_until(lambda: is_named(cluster), "a named state with the rows")
    write(client, TAIL, b"2")
    with destroyed(cluster, host):
        cluster.wait_until(lambda: leader(cluster) not in ("", host), "another leader")
        write(client, NEW, b"3")
        (log,) = lost_logs(cluster)
        cluster.wait_until(lambda: f"of {log} are missing" in warnings(cluster)[0], "the loss is named")
        Scene(cluster, "t", "").until(
            "api/tablets?table=t", lambda body: f"of {log} are missing" in body["tablets"][0]["problem"]
        )
    cluster.wait_until(lambda: is_alive(cluster, host), f"{host} is back")
    cluster.wait_until(lambda: "was replaced" in warnings(cluster)[0], "the loss is known to be for ever")
    client.hosts.forget(host)
    everything = dict.fromkeys(OLD, b"1") | dict.fromkeys(NEW, b"3")
    assert values(client) == everything
    cluster.wait_until(lambda: lost_logs(cluster) == () and warnings(cluster) == [""], "no lost log is shown")
    with pytest.raises(NotFoundError, match="the books know no log on host"):
        client.hosts.forget("host9")
    client.tables.flush("t")
    write(client, [TAIL[0]], b"4")
    assert values(client) == everything | {TAIL[0]: b"4"}


def found(client: Client) -> Counter[tuple[bytes, bytes]]:
    """How many versions there are of each row and value."""
    return Counter((cell.row, cell.value) for cell in client.scan("t").cells())


@pytest.mark.spark
@pytest.mark.long
def test_a_leaders_host_goes_away_and_its_rows_come_back_once(cluster: Cluster, tmp_path: Path) -> None:
    client = cluster.client
    with Cluster(tmp_path / "east", "east", tservers=1, overrides=PAIR) as east:
        client.tables.create("t", properties=PROPERTIES | VERSIONS)
        east.client.tables.create("t", properties=VERSIONS)
        client.replication.define_cluster("east", east.quorum)
        east.client.replication.define_cluster("own", cluster.quorum)
        client.replication.enable("t", "east")
        host = further_leader(cluster)
        write(client, OLD, b"1")
        client.tables.flush("t")
        cluster.wait_until(lambda: is_named(cluster), "a named state with the rows")
        write(client, TAIL, b"2")
        with away(cluster, host):
            cluster.wait_until(lambda: leader(cluster) not in ("", host), "another leader")
            assert values(client) == dict.fromkeys(OLD, b"1")
            assert host in cause_of(cluster.directory, "t", "log_away")["text"]
            write(client, [*NEW, TAIL[0]], b"3")
        cluster.wait_until(lambda: is_alive(cluster, host), f"{host} is back")
        written = {b"1": OLD, b"2": TAIL, b"3": [*NEW, TAIL[0]]}
        once = Counter((row, value) for value, rows in written.items() for row in rows)
        cluster.wait_until(lambda: found(client) == once, "each row of the tail once")
        client.tables.flush("t")
        cluster.wait_until(lambda: lost_logs(cluster) == () and warnings(cluster) == [""], "the books have no lost log")
        assert not client.replication.wait("t", timeout_ms=120_000)
        assert found(east.client) == once
        assert found(client) == once
