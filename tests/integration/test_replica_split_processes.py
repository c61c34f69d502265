"""A table with replicas on hosts is split and merged while rows are written: real processes, of which one is killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bookkeeper.client import Client, Mutation
from tests.support.cluster import Cluster
from tests.support.shared_cluster import lent

pytestmark = pytest.mark.integration

ROWS = [b"%03d" % row for row in range(200)]
SPLITS = [b"050", b"100", b"150"]
MOVED_S = 200.0
"""A replica that the balance replaces leaves 78 s after its vote ended (R4)."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("splits") / "own"
    with Cluster(directory, "own", tservers=1, overrides={"standalone.hosts": 3}) as made:
        yield made


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    with lent(running) as made:
        yield made


def write(client: Client, value: bytes) -> None:
    """The value in each row, acknowledged."""
    with client.writer("t") as writer:
        for row in ROWS:
            writer.add(Mutation(row).put(b"f", b"q", value))


def values(client: Client) -> dict[bytes, bytes]:
    return {cell.row: cell.value for cell in client.scan("t").cells()}


def write_until(client: Client, ended: threading.Event) -> bytes:
    """Write all rows again and again; the last value, which all of them have."""
    number = 0
    while not ended.is_set():
        number += 1
        write(client, b"%d" % number)
    return b"%d" % number


def live_hosts(client: Client) -> int:
    return sum(host.incarnation is not None for host in client.hosts.list())


@pytest.mark.parametrize(
    "killed", ["tserver1", *(pytest.param(role, marks=pytest.mark.long) for role in ("", "host2.tserver1"))]
)
def test_a_split_under_load_loses_no_cell(killed: str, cluster: Cluster) -> None:
    client, ended = cluster.client, threading.Event()
    cluster.wait_until(lambda: live_hosts(client) == 3, "the hosts that the test before killed")
    client.tables.create("t", properties={"table.replicas": "3"})
    write(client, b"0")
    client.tables.flush("t")
    with ThreadPoolExecutor(1) as load:
        last = load.submit(write_until, client, ended)
        try:
            for split in SPLITS:
                if killed and split == SPLITS[1]:
                    cluster.kill9(killed)
                client.tables.add_splits("t", [split])
        finally:
            ended.set()
        value = last.result()
    assert client.tables.splits("t") == SPLITS
    assert values(client) == dict.fromkeys(ROWS, value)
    cluster.kill9("host3.tserver1")
    assert values(client) == dict.fromkeys(ROWS, value), "a half has lost cells with a host"


@pytest.mark.parametrize(
    "killed", ["master", *(pytest.param(role, marks=pytest.mark.long) for role in ("", "tserver1", "host2.tserver1"))]
)
def test_a_merge_under_load_loses_no_cell(killed: str, cluster: Cluster) -> None:
    client, ended = cluster.client, threading.Event()
    cluster.wait_until(lambda: live_hosts(client) == 3, "the hosts that the test before killed")
    client.tables.create("t", splits=SPLITS, properties={"table.replicas": "3"})
    write(client, b"0")
    client.tables.flush("t")
    with ThreadPoolExecutor(1) as load:
        last = load.submit(write_until, client, ended)
        try:
            client.tables.merge("t", None, SPLITS[1])
            if killed:
                cluster.kill9(killed)
            client.tables.merge("t", None, None)
        finally:
            ended.set()
        value = last.result()
    assert client.tables.splits("t") == []
    assert values(client) == dict.fromkeys(ROWS, value)
    cluster.kill9("host3.tserver1")
    assert values(client) == dict.fromkeys(ROWS, value), "the merged tablet has lost cells with a host"


def places(client: Client) -> list[tuple[str, ...]]:
    """The hosts of each tablet."""
    found = client.hosts.replicas(client.tables.get("t").table_id)
    return [tuple(sorted(one.host for one in tablet.replicas)) for tablet in found]


@pytest.mark.long
def test_tablets_on_different_hosts_come_together_and_merge(cluster: Cluster) -> None:
    client = cluster.client
    client.tables.create("t", splits=SPLITS, properties={"table.replicas": "2"})
    write(client, b"v")
    client.tables.flush("t")
    cluster.wait_until(lambda: len({*places(client)}) > 1, "tablets on different hosts", MOVED_S)
    client.tables.merge("t", None, None)
    (hosts,) = places(client)
    assert len(hosts) >= 2
    cluster.wait_until(lambda: [len(hosts) for hosts in places(client)] == [2], "end of a move of the balance", MOVED_S)
    assert values(client) == dict.fromkeys(ROWS, b"v")
