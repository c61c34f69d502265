"""What the idle processes of a cluster ask ZooKeeper, by its own count of packets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from bookkeeper.client import Mutation
from bookkeeper.coordination.connect import open_zookeeper
from bookkeeper.standalone.ports import free_ports
from tests.support.cluster import Cluster
from tests.support.masters import MasterNode
from tests.support.tservers import wait_until
from tests.support.zookeeper import ZooKeeperServer, own_server

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(300)]

PACKETS_MAX = 20
"""Of one idle process, with the answers, for each renewal of a lease."""

RENEWALS = 20
"""A lease is renewed once a second."""

TSERVERS = 8
"""More than a cluster of three machines has in a small installation: the leading master watches each of them."""

ROLES = ("master", "replay", *(f"tserver{number + 1}" for number in range(TSERVERS)))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper of the test's own: it counts."""
    with own_server(tmp_path / "zookeeper", "its load was not counted") as made:
        yield made


def packets(server: ZooKeeperServer) -> dict[int, int]:
    """What each process has sent and received so far, by its pid."""
    owners = {own[1]: pid for own, other, pid in connections() if other[1] == server.port}
    found: dict[int, int] = {}
    for port, *counts in re.findall(r":(\d+)\[1\]\(.*recved=(\d+),sent=(\d+)", server.ask("cons")):
        if (pid := owners.get(int(port))) is not None:
            found[pid] = found.get(pid, 0) + sum(map(int, counts))
    return found


def connections() -> Iterator[tuple[tuple[str, int], tuple[str, int], int]]:
    """Both ends of each connection here, and the pid of its process."""
    for one in psutil.net_connections("tcp4"):
        if one.laddr and one.raddr and one.pid is not None:
            yield one.laddr, one.raddr, one.pid


@contextmanager
def second_master(cluster: Cluster, log: Path) -> Iterator[int]:
    """The pid of a master that stands by."""
    node = MasterNode(cluster.settings, log, free_ports(1)[0])
    try:
        yield node.process.pid
    finally:
        node.end()


def test_an_idle_process_of_each_kind_exchanges_few_packets_with_zookeeper(
    tmp_path: Path, server: ZooKeeperServer
) -> None:
    east = Cluster(tmp_path / "east", "east", tservers=1)
    url = f"zk://{server.quorum}/west"
    west = Cluster(tmp_path / "west", "west", tservers=TSERVERS, overrides={"coordination.url": url})
    with east, west, second_master(west, tmp_path / "standby.log") as standby:
        for cluster in (west, east):
            cluster.client.tables.create("t")
        west.client.replication.define_cluster("east", east.quorum)
        west.client.replication.enable("t", "east")
        with west.client.writer("t") as writer:
            writer.add(Mutation(b"row").put(b"f", b"q", b"1"))
        assert not west.client.replication.wait("t", timeout_ms=60_000)
        supervisor = psutil.Process(west.pid("master")).ppid()
        kinds = {west.pid(role): role for role in ROLES} | {standby: "standby", supervisor: "supervisor"}

        def counted() -> dict[str, int]:
            while not (found := packets(server)).keys() >= kinds.keys():
                wait_for(1)  # a connection is made again
            return {kind: found[pid] for pid, kind in kinds.items()}

        with closing(open_zookeeper(west.settings)) as observer:
            (info,) = (one for one in observer.sessions("master") if one.address == west.quorum)
            lease = observer._zk.at("alive", info.session_id)

            def renewals() -> int:
                (written,) = observer._zk.written(lease)
                assert written is not None
                return written.version

            def wait_for(count: int) -> None:
                last = renewals() + count
                wait_until(lambda: renewals() >= last, f"{count} renewals")

            wait_for(RENEWALS // 2)
            before = counted()
            wait_for(RENEWALS)
            after = counted()
        exchanged = {kind: (after[kind] - before[kind]) / RENEWALS for kind in before}
        assert max(exchanged.values()) <= PACKETS_MAX, f"packets for each renewal of a lease: {exchanged}"
