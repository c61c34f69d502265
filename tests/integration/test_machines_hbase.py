"""Hosts that share no directory, as processes: real ZooKeeper, books in a real HBase, a host killed and one wiped."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.config.file import load_settings
from bookkeeper.errors import RefusedError
from bookkeeper.rpc.contract.messages import HostInfo
from bookkeeper.security.secret_store import SecretStore
from bookkeeper.standalone.cluster_process import ClusterProcess
from bookkeeper.standalone.machine_joining import join_by_zookeeper
from bookkeeper.standalone.ports import free_ports
from tests.support.cluster import READY_S, STOP_S, Cluster, standalone_command
from tests.support.hbase import HBaseInstance
from tests.support.machines_settings import NO_VOLUME, exported
from tests.support.must_raise import must_raise
from tests.support.tcp_proxy import TcpProxy
from tests.support.workloads_clusters import SETTINGS
from tests.support.zookeeper import ZooKeeperServer

pytestmark = [
    pytest.mark.integration,
    pytest.mark.hbase,
    pytest.mark.long,
    pytest.mark.machines,
    pytest.mark.spark,
    pytest.mark.timeout(400),
]

SPLITS = [b"h", b"p"]
LETTERS = b"abcdefghijklmnopqrstuvwxyz"
PROPERTIES = {
    "table.replicas": "3",
    "table.versions.max": "50",
    "table.flush.interval_ms": "1000",
    "table.failover": "1000",
}
"""A cell keeps more versions than it gets, so a record that is applied twice shows. The table goes on without the log
of a host that is away.
"""

Cells = Counter[tuple[bytes, bytes]]


def write(client: Client, number: int) -> None:
    with client.writer("t") as writer:
        for letter in LETTERS:
            writer.add(Mutation(b"%c" % letter).put(b"f", b"q", b"%d" % number))


def wanted(numbers: range) -> Cells:
    return Counter((b"%c" % letter, b"%d" % number) for letter in LETTERS for number in numbers)


def found(client: Client) -> Cells:
    return Counter((cell.row, cell.value) for cell in client.scan("t").cells())


@pytest.fixture
def places(tmp_path: Path) -> Iterator[list[Path]]:
    """Directories that have nothing in common."""
    made = [tmp_path / name / "west" for name in ("one", "two", "three")]
    yield made
    assert not list(tmp_path.glob("*/west/wal/*/*.wal")), "a log lies where no other host looks"
    assert not list(tmp_path.glob("*/west/tables/**/*.parquet")), "a segment lies where no other host looks"


def alive(cluster: Cluster) -> set[str]:
    return {host.name for host in cluster.client.hosts.list() if host.incarnation is not None}


def of_host2(cluster: Cluster) -> HostInfo:
    return next(host for host in cluster.client.hosts.list() if host.name == "host2")


def is_full(host: HostInfo) -> bool:
    return (host.replicas, host.joining, host.lacking_segments) == (3, 0, 0)


def replicas(cluster: Cluster) -> Sequence[int]:
    return [host.replicas for host in cluster.client.hosts.list()]


def test_hosts_without_a_common_directory_serve_a_table_with_three_replicas_and_lose_nothing_to_a_kill(
    zookeeper: ZooKeeperServer, hbase: HBaseInstance, tmp_path: Path, places: list[Path]
) -> None:
    url = f"zk://{zookeeper.quorum}/{tmp_path.name}"
    books = f"hbase://{hbase.host}:{hbase.thrift_port}/{tmp_path.name}"
    overrides = {**SETTINGS, **NO_VOLUME, "coordination.url": url, "coordination.session_lease_ms": 6_000}
    with ExitStack() as stack:
        east = stack.enter_context(Cluster(tmp_path / "east", "east", tservers=1, overrides=SETTINGS))
        west = stack.enter_context(Cluster(places[0], "west", tservers=1, metadata_url=books, overrides=overrides))
        with must_raise(RefusedError, "a table lies on one machine", match="one replica needs a place that all hosts"):
            west.client.tables.create("alone")
        file = exported(west.settings, tmp_path / "join")
        own = {**SETTINGS, "standalone.processes": ["master", "tserver"]}
        (port,) = free_ports(1)
        outside = stack.enter_context(TcpProxy("127.0.0.1", port))
        behind = {"tserver.port": port, "tserver.announced_port": outside.port, "rpc.announced_host": "localhost"}
        others = []
        for place, further in ((places[1], {}), (places[2], behind)):
            settings = join_by_zookeeper(place, url, file, overrides={**own, **further})
            process = ClusterProcess(settings, standalone_command(place))
            process.start()
            stack.callback(process.stop, STOP_S)
            others.append(process)
        west.wait_until(lambda: alive(west) == {"host1", "host2", "host3"}, "three hosts")
        addresses = {host.name: host.address for host in west.client.hosts.list()}
        assert addresses["host3"] == f"localhost:{outside.port}"
        for cluster, properties in ((west, PROPERTIES), (east, {"table.versions.max": "50"})):
            cluster.client.tables.create("t", splits=SPLITS, properties=properties)
        own_id, theirs = west.settings.instance.instance_id, east.settings.instance
        made = SecretStore(east.directory).make_for_peer("west", theirs.name, theirs.instance_id, own_id, ["t"])
        with must_raise(RefusedError, "one host alone reaches the peer", match="host2, host3 lack the secret"):
            west.client.replication.define_cluster("east", east.quorum, made.path)
        for place in places[1:]:
            SecretStore(place).keep_for_peer("east", made.secret)
        west.client.replication.define_cluster("east", east.quorum, made.path)
        assert [host.problem for host in west.client.hosts.list()] == ["", "", ""]
        east.client.replication.define_cluster("west", west.quorum)
        west.client.replication.enable("t", "east")
        write(west.client, 0)
        assert not west.client.replication.wait("t", timeout_ms=120_000)

        second = others[0]
        second.crash()
        write(west.client, 1)
        second.start()
        west.wait_until(lambda: alive(west) == {"host1", "host2", "host3"}, "the return of host2")
        write(west.client, 2)

        west.crash()
        with Client.connect(places[2], budget_ms=READY_S * 1_000) as client:
            write(client, 3)
            assert wanted(range(3, 4)) <= found(client)
        west.launch()
        west.wait_ready()
        west.wait_until(lambda: found(west.client) == wanted(range(4)), "the rows of the log of host1, each once")
        assert not west.client.replication.wait("t", timeout_ms=120_000)
        assert found(west.client) == wanted(range(4))
        assert found(east.client) == wanted(range(4))
        assert replicas(west) == [3, 3, 3]
        assert outside.accepted, "nobody calls the announced address"

        second.stop(STOP_S)
        incarnation = of_host2(west).incarnation
        shutil.rmtree(places[1])
        replaced = join_by_zookeeper(places[1], url, file, "host2", overrides=own, in_place=True)
        second = ClusterProcess(replaced, standalone_command(places[1]))
        second.start()
        stack.callback(second.stop, STOP_S)
        west.wait_until(lambda: of_host2(west).incarnation not in (None, incarnation), "host2 with another disk")
        west.wait_until(lambda: is_full(of_host2(west)), "the replicas of host2")

        copy = places[1].parent / "copy"
        shutil.copytree(places[1], copy)
        twin = ClusterProcess(load_settings(copy), standalone_command(copy))
        twin.start()
        stack.callback(twin.stop, STOP_S)
        words = "host host2 is held by another machine, or by a copy of its directory"
        log = copy / "logs" / "tserver1.log"
        twin.wait_until(lambda: log.exists() and words in log.read_text(), "the refusal of a copy", READY_S)
        assert found(west.client) == wanted(range(4))
