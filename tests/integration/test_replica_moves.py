"""A tablet is split, and one half ends up on chosen hosts: the bytes of its rows alone, each record once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.client.host_admin import MovesLeft
from bookkeeper.errors import BookkeeperError, InvalidInputError, RefusedError
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.security.access import process_credentials
from bookkeeper.standalone.joining import local_directory
from tests.support.cluster import Cluster
from tests.support.replica_looks import tablets, voters, wait_for_copies

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ROWS = [b"%05d" % number for number in range(4_000)]
SPLIT = ROWS[1_999]
HOSTS = ("host1", "host2", "host3", "host4")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Four hosts; one that is away for long is not replaced during a test."""
    overrides = {"standalone.hosts": 4, "replicas.repair_after_ms": 120_000, "master.scan_interval_ms": 500}
    with Cluster(tmp_path / "own", "own", tservers=1, overrides=overrides) as made:
        yield made


def fill(client: Client) -> None:
    """A table with two replicas, each row once and flushed."""
    client.tables.create("t", properties={"table.replicas": "2"})
    with client.writer("t") as writer:
        for row in ROWS:
            writer.add(Mutation(row).put(b"f", b"q", row * 20))
    client.tables.flush("t")


def wait_moved(cluster: Cluster, onto: set[str]) -> None:
    """Wait until the chosen hosts alone vote for the lower half, and one of them leads it. The other hosts leave it
    later, when no name that counts on them can be on its way (R4).
    """

    def has_moved() -> bool:
        found = tablets(cluster)[:1]
        return bool(found) and voters(found[0]) == onto and {one.host for one in found[0].replicas if one.leads} <= onto

    cluster.wait_until(has_moved, f"the lower half on {sorted(onto)}")


def values(client: Client) -> dict[bytes, bytes]:
    """All rows."""
    return {cell.row: cell.value for cell in client.scan("t").cells()}


def size_on(cluster: Cluster, host: str) -> int:
    """The bytes of the segment files on a host's disk."""
    home = cluster.directory if host == "host1" else local_directory(cluster.settings, host)
    return sum(path.stat().st_size for path in (home / "replicas" / "tables").rglob("*.parquet"))


def bytes_received(cluster: Cluster, host: str) -> int:
    """The bytes of segments that other hosts have sent to this one."""
    own = cluster.settings.instance
    hello = Hello(PROTOCOL_VERSION, own.instance_id, own.name, "test")
    pool = RpcPool(hello, cluster.settings.rpc, None, process_credentials(cluster.settings))
    try:
        address = next(info.address for info in cluster.client.hosts.list() if info.name == host)
        assert address is not None
        return int(pool.tserver(address).status()["segment_bytes_received"])
    finally:
        pool.close()


@contextmanager
def load(client: Client) -> Iterator[dict[bytes, bytes]]:
    """Rows are written all the time; gives the acknowledged ones."""
    acked: dict[bytes, bytes] = {}
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            row = b"%05dx%06d" % (number * 37 % 4_000, number)
            with client.writer("t") as writer:
                writer.add(Mutation(row).put(b"f", b"q", b"%d" % number))
            acked[row] = b"%d" % number
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield acked
    finally:
        over.set()
        thread.join(60.0)


def test_the_half_of_a_tablet_moves_to_chosen_hosts_which_get_its_rows_only(cluster: Cluster) -> None:
    client = cluster.client
    fill(client)
    first = voters(wait_for_copies(cluster, 2))
    onto = set(HOSTS) - first
    whole = size_on(cluster, min(first))
    client.tables.add_splits("t", [SPLIT], sorted(onto))
    wait_moved(cluster, onto)
    for host in onto:
        assert bytes_received(cluster, host) < 0.7 * whole, "a chosen host got rows of the other half"
    assert values(client) == {row: row * 20 for row in ROWS}


@pytest.mark.long
def test_leader_and_hosts_die_at_each_step_of_a_move(cluster: Cluster) -> None:
    client = cluster.client
    fill(client)
    onto = set(HOSTS) - voters(wait_for_copies(cluster, 2))
    with load(client) as acked:
        client.tables.add_splits("t", [SPLIT], sorted(onto))
        for host in (*HOSTS[1:], "leader", *reversed(HOSTS[1:])):
            before = len(acked)
            for role in (leader_of(cluster) if host == "leader" else f"{host}.tserver1", "master"):
                with suppress(ProcessLookupError):  # it is dead from the round before
                    cluster.kill9(role)
            cluster.wait_until(lambda: len(acked) > before + 5, "writes go on")  # noqa: B023
        wait_moved(cluster, onto)
    assert client.hosts.wait() == MovesLeft(0, 0)
    assert voters(tablets(cluster)[0]) == onto, "a wait for moves ends with them"
    found = values(client)
    assert {row: found[row] for row in ROWS} == {row: row * 20 for row in ROWS}
    assert {row: found[row] for row in acked} == acked
    assert len(found) == len(ROWS) + len(acked), "a record is there twice, or one that nobody wrote"


def leader_of(cluster: Cluster) -> str:
    """The process that leads the lower half."""
    for tablet in tablets(cluster)[:1]:
        for one in tablet.replicas:
            if one.leads:
                return "tserver1" if one.host == "host1" else f"{one.host}.tserver1"
    return "tserver1"


def test_hosts_that_can_not_be_chosen_are_refused_before_the_split(cluster: Cluster) -> None:
    client = cluster.client
    fill(client)
    with pytest.raises(InvalidInputError, match="name 2 hosts"):
        client.tables.add_splits("t", [SPLIT], ["host1"])
    with pytest.raises(RefusedError, match="host9 can't take replicas now"):
        client.tables.add_splits("t", [SPLIT], ["host1", "host9"])
    client.tables.create("single")
    with pytest.raises(BookkeeperError, match="on the cluster's Volume"):
        client.tables.add_splits("single", [SPLIT], ["host1", "host2"])
    assert client.tables.splits("t") == []
