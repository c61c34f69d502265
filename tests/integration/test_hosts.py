"""Several hosts of one cluster on one machine, as real processes: each is known by its identity and may be lost."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.config.file import load_settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.model import HostIdentity
from bookkeeper.standalone.cluster_process import ClusterProcess
from bookkeeper.standalone.joining import join_cluster, local_directory
from tests.support.cluster import READY_S, STOP_S, Cluster, standalone_command
from tests.support.standstill import crash_without

pytestmark = pytest.mark.integration

SPLITS = [b"d", b"h", b"l", b"p", b"t"]
ROWS = [b"%c%d" % (letter, number) for letter in b"abcdefghijklmnopqrstuvwxyz" for number in range(4)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "own", "own", tservers=1, overrides={"standalone.hosts": 3}) as made:
        yield made


def live_hosts(cluster: Cluster) -> dict[str, HostIdentity]:
    """The hosts of the live tservers, by name."""
    with closing(open_coordination(cluster.settings)) as coordination:
        sessions = [session for session in coordination.sessions("tserver") if session.alive]
    return {session.host.name: session.host for session in sessions if session.host is not None}


def write(client: Client, value: bytes) -> None:
    with client.writer("t") as writer:
        for row in ROWS:
            writer.add(Mutation(row).put(b"f", b"q", value))


def values(client: Client) -> dict[bytes, bytes]:
    return {cell.row: cell.value for cell in client.scan("t").cells()}


def test_a_host_is_killed_and_wiped_and_the_cluster_serves_on_until_it_comes_back(cluster: Cluster) -> None:
    before = live_hosts(cluster)
    assert set(before) == {"host1", "host2", "host3"}
    assert len({host.incarnation for host in before.values()}) == 3
    cluster.client.tables.create("t", splits=SPLITS)
    write(cluster.client, b"1")

    listed = cluster.client.hosts.list()
    assert {host.name: host.incarnation for host in listed} == {h.name: h.incarnation for h in before.values()}
    assert sum(host.leads for host in listed) == len(SPLITS) + 1

    lost = local_directory(cluster.settings, "host2")
    killed, elsewhere = cluster.pid("host2.tserver1"), lost.with_name("host2-lost")
    crash_without(killed, lost, elsewhere)
    shutil.rmtree(elsewhere)
    write(cluster.client, b"2")
    assert values(cluster.client) == dict.fromkeys(ROWS, b"2")
    cluster.wait_until(lambda: set(live_hosts(cluster)) == {"host1", "host3"}, "the end of host2")
    away = next(host for host in cluster.client.hosts.list() if host.name == "host2")
    assert (away.incarnation, away.address, away.leads, away.zone) == (None, None, 0, None)

    def since_ms() -> int | None:
        return next(host.away_since_ms for host in cluster.client.hosts.list() if host.name == "host2")

    cluster.wait_until(lambda: since_ms() is not None, "the time since which host2 is away")
    cluster.wait_until(lambda: "host2.tserver1 is stopped" in cluster.log_text("standalone"), "word of the loss")

    join_cluster(lost, cluster.directory, "host2", overrides={"standalone.processes": ["tserver"], "host.zone": "b"})
    cluster.wait_until(lambda: set(live_hosts(cluster)) == set(before), "the return of host2")
    shown = {host.name: (host.zone, host.away_since_ms) for host in cluster.client.hosts.list()}
    assert shown == {"host1": ("", None), "host2": ("b", None), "host3": ("", None)}
    after = live_hosts(cluster)
    assert after["host2"].incarnation != before["host2"].incarnation, "a wiped disk passes for the one before"
    assert {name: after[name] for name in ("host1", "host3")} == {name: before[name] for name in ("host1", "host3")}
    said = cluster.log_text("standalone")
    assert said.count("host2.tserver1 is stopped: the directory") == 1
    assert said.count("host2.tserver1 ended") <= 1
    assert json.loads((lost / "run" / "tserver1.json").read_text())["pid"] != killed
    assert values(cluster.client) == dict.fromkeys(ROWS, b"2")


@pytest.mark.long
def test_a_joined_host_has_a_supervisor_of_its_own_and_goes_on_without_the_first(tmp_path: Path) -> None:
    with Cluster(tmp_path / "own", "own", tservers=1) as cluster:
        cluster.client.tables.create("t", splits=SPLITS)
        write(cluster.client, b"1")
        far = join_cluster(tmp_path / "far", cluster.directory)
        process = ClusterProcess(far, standalone_command(far.directory))
        process.start()
        try:
            process.wait_until(lambda: set(live_hosts(cluster)) == {"host1", "host2"}, "host2", READY_S)
            command = [sys.executable, "-m", "shell.main", "config", "check", str(far.directory)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            cluster.stop()
            with Client.connect(far.directory, budget_ms=READY_S * 1_000) as client:
                write(client, b"2")
                assert values(client) == dict.fromkeys(ROWS, b"2")
            cluster.start()
            assert values(cluster.client) == dict.fromkeys(ROWS, b"2")
            with Client.connect(load_settings(far.directory).directory) as client:
                assert [table.name for table in client.tables.list()] == ["t"]
        finally:
            process.stop(STOP_S)
