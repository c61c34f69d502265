"""Three hosts with their logs on their own disks, as processes: killed under load, away, and back with nothing lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.rpc.contract.messages import TabletLocation
from bookkeeper.standalone.cluster_process import ClusterProcess
from bookkeeper.standalone.joining import join_cluster, local_directory
from tests.support.asked_why import cause_of, command_words, execute, running, until_drained
from tests.support.cluster import STOP_S, Cluster, standalone_command
from tests.support.log_files import logs_below
from tests.support.standstill import crash_without
from tests.support.workloads_clusters import SETTINGS

pytestmark = pytest.mark.integration

HOSTS: dict[str, object] = {**SETTINGS, "standalone.hosts": 3, "storage.logs": "host"}
SPLITS = [b"h", b"p"]
LETTERS = b"abcdefghijklmnopqrstuvwxyz"
BATCHES = 3
VERSIONS = {"table.versions.max": "50"}
"""More than any cell gets: so that a record that is applied twice shows, as a version more."""

Cells = Counter[tuple[bytes, bytes]]


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "west", "west", tservers=1, overrides=HOSTS) as made:
        yield made


def write(client: Client, number: int) -> None:
    """One acknowledged batch over all tablets."""
    with client.writer("t") as writer:
        for letter in LETTERS:
            writer.add(Mutation(b"%c" % letter).put(b"f", b"q", b"%d" % number))


def wanted(numbers: range) -> Cells:
    """Each row, and each value once."""
    return Counter((b"%c" % letter, b"%d" % number) for letter in LETTERS for number in numbers)


def found(client: Client) -> Cells:
    """How many versions there are of each row and value."""
    return Counter((cell.row, cell.value) for cell in client.scan("t").cells())


def logs_on(cluster: Cluster, host: str) -> list[Path]:
    """The logs on a host's own disk."""
    directory = cluster.directory if host == "host1" else local_directory(cluster.settings, host)
    return sorted(logs_below(directory / "replicas" / "wal"))


def tablets(client: Client) -> Sequence[TabletLocation]:
    """The tablets of the table."""
    return client.tables.locate(client.tables.get("t").table_id)


def waits(client: Client) -> list[str]:
    """Why tablets are not served, in words."""
    return [tablet.warning for tablet in tablets(client) if tablet.warning]


@pytest.mark.spark
@pytest.mark.long
def test_hosts_are_killed_under_load_and_each_cell_is_there_once_on_both_sides(west: Cluster, tmp_path: Path) -> None:
    with ExitStack() as stack:
        east = stack.enter_context(Cluster(tmp_path / "east", "east", tservers=1, overrides=SETTINGS))
        for cluster in (west, east):
            cluster.client.tables.create("t", splits=SPLITS, properties=VERSIONS)
        west.client.replication.define_cluster("east", east.quorum)
        east.client.replication.define_cluster("west", west.quorum)
        west.client.replication.enable("t", "east")
        for number in range(BATCHES):
            write(west.client, number)
            host = f"host{number % 3 + 1}"
            assert logs_on(west, host), f"{host} has no log on its disk"
            role = "tserver1" if host == "host1" else f"{host}.tserver1"
            west.wait_restarted(role, west.kill9(role))
        assert found(west.client) == wanted(range(BATCHES))
        assert not west.client.replication.wait("t", timeout_ms=120_000)
        assert found(east.client) == wanted(range(BATCHES))
        assert not logs_below(west.directory / "wal"), "a log lies on the cluster's Volume"


@pytest.mark.long
@pytest.mark.spark
def test_r15_a_peer_gets_a_record_after_other_hosts_have_it(west: Cluster, tmp_path: Path) -> None:
    with ExitStack() as stack:
        east = stack.enter_context(Cluster(tmp_path / "east", "east", tservers=1, overrides=SETTINGS))
        west.client.tables.create("t", properties={"table.replicas": "3", "table.flush.interval_ms": "0"})
        east.client.tables.create("t")
        west.client.replication.define_cluster("east", east.quorum)
        east.client.replication.define_cluster("west", west.quorum)
        west.client.replication.enable("t", "east")
        write(west.client, 0)

        def phases() -> set[str]:
            return {status.phase for status in west.client.replication.status("t")}

        west.wait_until(lambda: phases() == {"uncopied"}, "the log waits for copies")
        cause = cause_of(west.directory, "t", "uncopied")
        assert [answer.code for answer in execute(cause["steps"], {None: west.directory})] == [0]
        assert west.client.replication.wait("t", timeout_ms=2_000), "the peer has everything"
        assert not found(east.client), "the peer has records that one disk of the cluster has alone"
        west.client.tables.change_properties("t", {"table.flush.interval_ms": "500"})
        assert not west.client.replication.wait("t", timeout_ms=120_000)
        assert found(east.client) == wanted(range(1))


@pytest.mark.long
@pytest.mark.spark
def test_a_log_on_a_host_that_is_away_gets_the_command_for_that_hosts_directory(tmp_path: Path) -> None:
    """The host has a supervisor of its own. It dies, and the printed step starts it again."""
    quorum = f"parquet://{tmp_path / 'lake'}"
    with (
        Cluster(tmp_path / "own", "own", 1, overrides={**SETTINGS, "storage.logs": "host"}) as own,
        ExitStack() as stack,
    ):
        far = join_cluster(tmp_path / "far", own.directory)
        process = ClusterProcess(far, standalone_command(far.directory))
        process.start()
        stack.callback(process.stop, STOP_S)
        hosts = own.client.hosts
        own.wait_until(lambda: sum(one.incarnation is not None for one in hosts.list()) == 2, "two hosts")
        own.client.tables.create("t", splits=SPLITS)
        own.client.replication.define_cluster("lake", quorum)
        own.client.replication.enable("t", "lake")
        write(own.client, 0)
        own.wait_until(lambda: len({one.address for one in tablets(own.client)}) == 2, "both hosts serve")
        write(own.client, 1)
        process.crash()
        cause = cause_of(own.directory, "t", "log_away")
        (step,) = cause["steps"]
        assert step["command"] == f"bookkeeper standalone {far.directory}"
        with running(command_words(step["command"]), tmp_path):
            until_drained(own.directory, "t")
            assert found(own.client) == Counter((b"%c" % letter, b"1") for letter in LETTERS)


def test_tablets_wait_for_a_host_that_is_away_and_go_on_when_it_is_back(west: Cluster, tmp_path: Path) -> None:
    client = west.client
    client.tables.create("t", splits=SPLITS, properties=VERSIONS)
    write(client, 0)
    served = {tablet.address: tablet for tablet in tablets(client)}
    assert len(served) == 3, "each host serves a tablet"
    host = local_directory(west.settings, "host2")
    pid = west.pid("host2.tserver1")
    crash_without(pid, host, tmp_path / "away")
    west.wait_until(lambda: len(waits(client)) == 1, "a tablet that waits")
    (reason,) = waits(client)
    assert "lie on host host2, which is away: start it (since " in reason
    rows = {tablet.extent.end_row for tablet in tablets(client) if not tablet.warning}
    assert len(rows) == 2, "tablets of other hosts wait, too"
    (away,) = [one.problem for one in client.hosts.list() if one.name == "host2"]
    assert away == "the host is away, and the logs of 1 sessions wait for it: start it"

    (tmp_path / "away").rename(host)
    west.wait_until(lambda: not waits(client), "the tablet is served again")
    assert found(client) == wanted(range(1))
    write(client, 1)
    assert found(client) == wanted(range(2))
