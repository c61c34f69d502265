"""Machines of a cluster fail under load: each acknowledged row is there once on both sides, and no operator is asked.

Three hosts and three servers of ZooKeeper live through all tests of this file, so later tests stand on what earlier
ones left.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from bookkeeper.config.file import SETTINGS_FILE
from bookkeeper.config.host_id import read_host_id
from bookkeeper.coordination.config_tree import read_config
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.standalone.hbase.java import why_not_runnable
from tests.support.machine_cluster import NAMES, READY_S, Host, MachineCluster
from tests.support.machines import NETWORK, why_no_machines
from tests.support.tservers import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.hbase,
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.timeout(900),
]

BETWEEN = 5
"""Batches that are written before a fault, and after it."""
AWAY_S = 60.0
FIVE_MINUTES_MS = 300_000
SLACK_MS = 5_000
"""A call of a busy machine may take so long."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineCluster]:
    for reason in (why_no_machines(), why_not_runnable()):
        if reason is not None:
            pytest.skip(reason)
    with MachineCluster(tmp_path_factory.mktemp("matrix") / "machines") as made:
        yield made


def for_s(seconds: float) -> None:
    """The fault lasts so long."""
    threading.Event().wait(seconds)


def test_the_same_path_on_three_machines_is_three_hosts(cluster: MachineCluster) -> None:
    (home,) = {host.home for host in cluster.hosts}
    first = cluster.hosts[0]
    with first.machine.network(), closing(open_coordination(first.settings)) as store:
        config = read_config(store)
    assert config.hosts == dict.fromkeys(NAMES, str(home))
    assert config.host_ids == {host.settings.host.name: read_host_id(host.directory) for host in cluster.hosts}
    assert len(set(config.host_ids.values())) == len(NAMES)


def test_all_masters_are_away_for_a_minute(cluster: MachineCluster) -> None:
    """Writes and reads go on. With logs on hosts only a master knows which records a peer may have (R15), so the peer
    gets those of this minute afterwards.
    """
    with cluster.load():
        cluster.wait_written(BETWEEN)
        with cluster.masters_away():
            before = cluster.loader.acknowledged
            for_s(AWAY_S)
            written = cluster.loader.acknowledged - before
            assert written > BETWEEN, "writes wait for a master"
        cluster.wait_written(BETWEEN)
    print(f"{written} batches were acknowledged in {AWAY_S:.0f} s without a master")
    cluster.check()
    cluster.wait_tidy()


def leaders(cluster: MachineCluster, table: str) -> list[str | None]:
    """The host that leads each tablet of a table."""
    tablets = cluster.west.hosts.replicas(cluster.west.tables.get(table).table_id)
    return [next((one.host for one in tablet.replicas if one.leads), None) for tablet in tablets]


def test_the_wall_clock_of_a_machine_is_off_by_five_minutes(cluster: MachineCluster) -> None:
    second = cluster.hosts[1]
    wait_until(lambda: None not in leaders(cluster, "links"), "leaders", READY_S)
    before = [host.starts() for host in cluster.hosts], leaders(cluster, "links")
    for ahead_ms in (FIVE_MINUTES_MS, -FIVE_MINUTES_MS):
        second.set_clock(ahead_ms)
        with cluster.load():
            cluster.wait_written(4 * BETWEEN)

        def is_said(ahead_ms: int = ahead_ms) -> bool:
            ahead = off_by_ms(cluster)
            return ahead is not None and abs(ahead - ahead_ms) < SLACK_MS

        wait_until(is_said, "the difference of the clocks", READY_S)
        assert any("clock" in one.problem for one in cluster.west.hosts.list()), "no warning"
        assert ([host.starts() for host in cluster.hosts], leaders(cluster, "links")) == before, "a decision changed"
    second.set_clock(0)
    wait_until(lambda: abs(off_by_ms(cluster) or SLACK_MS) < SLACK_MS, "the end of the difference", READY_S)
    cluster.check()


def off_by_ms(cluster: MachineCluster) -> int | None:
    """By how much the clock of host2 is ahead of that of host1; None while one of them does not answer."""
    ahead = {one.name: one.clock_ahead_ms for one in cluster.west.hosts.list()}
    second, first = ahead["host2"], ahead["host1"]
    return None if first is None or second is None else second - first


def test_a_host_whose_address_changes_stays_the_host(cluster: MachineCluster) -> None:
    cluster.check()
    host, new = cluster.hosts[1], f"{NETWORK}.12"
    (before,) = (one for one in cluster.west.hosts.list() if one.name == "host2")
    host.stop()
    host.machine.run("ip", "addr", "add", f"{new}/24", "dev", "eth0")
    file = host.directory / SETTINGS_FILE
    text = file.read_text()
    assert text.count(f'"{host.machine.address}"') == 2, text
    file.write_text(text.replace(f'"{host.machine.address}"', f'"{new}"'))
    host.start()
    cluster.check()
    (after,) = (one for one in cluster.west.hosts.list() if one.name == "host2")
    assert str(after.address).startswith(f"{new}:")
    assert (after.incarnation, after.replicas) == (before.incarnation, before.replicas), "it counts as another host"


def wait_started_again(host: Host, role: str, before: int) -> None:
    """Return when a role has begun more often."""
    wait_until(lambda: host.role(role).starts > before, f"another {role}", READY_S)


def test_the_gateways_of_two_hosts_are_killed_and_stopped(cluster: MachineCluster) -> None:
    first, _, third = cluster.hosts
    with cluster.load():
        for host, number in ((third, signal.SIGKILL), (first, signal.SIGSTOP)):
            cluster.wait_written(BETWEEN)
            before = host.role("gateway").starts
            host.send("gateway", number)
            wait_started_again(host, "gateway", before)
            cluster.wait_written(BETWEEN)
    assert "Thrift gateway was silent for" in first.log.read_text()
    cluster.check()


def test_a_machine_loses_its_power_and_comes_back(cluster: MachineCluster) -> None:
    """The one with the leading server of ZooKeeper."""
    lost = cluster.leading_server()
    with cluster.load():
        cluster.wait_written(BETWEEN)
        cluster.machines.pull(lost.machine)
        cluster.wait_written(BETWEEN)
        wait_until(lambda: len(cluster.alive()) == len(NAMES) - 1, "the end of a host", READY_S)
        cluster.power_on(lost)
        cluster.wait_written(BETWEEN)
    cluster.check()


def test_a_host_is_cut_from_its_stores(cluster: MachineCluster) -> None:
    first = cluster.hosts[0]
    others = [machine for machine in cluster.machines.all if machine is not first.machine]
    before = first.starts()
    with cluster.load():
        for other in others:
            cluster.machines.cut(first.machine, other)
        wait_until(lambda: all(first.starts()[role] > before[role] for role in before), "its processes end", READY_S)
        cluster.wait_written(BETWEEN)
        cluster.machines.join_all()
    cluster.check()
