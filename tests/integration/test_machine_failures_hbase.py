"""Machines of a cluster fail under load: each acknowledged row is there once on both sides, and no operator is asked.

Three hosts and three servers of ZooKeeper live through all tests of this file, so later tests stand on what earlier
ones left.
"""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import happybase
import pytest
from kazoo.client import KazooClient

from bookkeeper.client import Client, Mutation
from bookkeeper.config.file import SETTINGS_FILE
from bookkeeper.config.host_id import read_host_id
from bookkeeper.coordination.config_tree import read_config
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.metadata.flight import books_flight_ms
from bookkeeper.standalone.hbase.java import why_not_runnable
from tests.support.machine_cluster import NAMES, PROPERTIES, READY_S, MachineCluster
from tests.support.machine_hosts import Host
from tests.support.machines import NETWORK, why_no_machines
from tests.support.tservers import wait_until
from tests.support.without_masters import TRIES
from tests.support.zookeeper import ZooKeeperServer

pytestmark = [
    pytest.mark.integration,
    pytest.mark.hbase,
    pytest.mark.long,
    pytest.mark.machines,
    pytest.mark.spark,
    pytest.mark.timeout(900),
]

BETWEEN = 5
"""Batches that are written before a fault, and after it."""
AWAY_S = 60.0
FIVE_MINUTES_MS = 300_000
SLACK_MS = 5_000
"""A call of a busy machine may take so long."""
CALL_MS = 1_500
LATE, LATE_COLUMN = b"~late", b"fate:q"
"""A row of the books in which nobody looks for this family."""


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
    """Writes and reads go on, and the peer gets the rows: tservers know which records their named states have."""
    with cluster.load():
        cluster.wait_written(BETWEEN)
        assert any(without_masters(cluster) for _ in range(TRIES)), "a master led each time"
        cluster.wait_written(BETWEEN)
    cluster.check()
    cluster.wait_tidy()


def without_masters(cluster: MachineCluster) -> bool:
    """All masters are away for a minute. Returns whether they were: then all has been judged."""
    with cluster.masters_away() as absence:
        before = cluster.loader.acknowledged
        for_s(AWAY_S)
        written = cluster.loader.acknowledged - before
        assert written > BETWEEN, "writes wait for a master"
        newest = cluster.loader.acknowledged - 1
        wait_until(lambda: cluster.is_at_peer(newest), "the newest rows are at the peer, without a master", READY_S)
    print(f"{written} batches were acknowledged in {AWAY_S:.0f} s without a master")
    return not absence.failed


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
            host.signal("gateway", number)
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


@contextmanager
def books(host: Host, timeout_ms: int = 30_000) -> Iterator[happybase.Table]:
    """The books, through the gateway of a host."""
    with host.machine.network():
        port = host.settings.standalone.gateway_port
        with closing(happybase.Connection("127.0.0.1", port, timeout=timeout_ms)) as connection:
            yield connection.table("west_metadata")


def put_into_standstill(host: Host) -> None:
    """A client writes while the gateway stands still, and gives up."""
    with pytest.raises(TimeoutError), books(host, CALL_MS) as table:
        table.put(LATE, {LATE_COLUMN: b"v"})


def has_late_row(host: Host) -> bool:
    """Whether that write has arrived."""
    with books(host) as table:
        return bool(table.row(LATE))


def put(client: Client, table: str, row: bytes) -> None:
    """One row that is acknowledged."""
    with client.writer(table) as writer:
        writer.add(Mutation(row).put(b"f", b"q", b"1"))


def test_zookeeper_has_no_quorum_for_longer_than_the_lease_and_a_restored_one_is_refused(
    cluster: MachineCluster,
) -> None:
    before = [host.starts() for host in cluster.hosts]
    with cluster.load():
        cluster.wait_written(BETWEEN)
        for server in cluster.servers:
            server.kill9()
        for host, starts in zip(cluster.hosts, before, strict=True):
            for role, count in starts.items():
                wait_started_again(host, role, count)
        backups = [shutil.copytree(data, data.with_name("backup")) for data in datas(cluster)]
        began_ns = cluster.clock.boot_ns()
        start_all(cluster.servers)
        cluster.wait_written(BETWEEN)
        print(f"rows are written {(cluster.clock.boot_ns() - began_ns) / 1e9:.1f} s after ZooKeeper begins again")
    cluster.check()
    for host in cluster.hosts:
        host.stop()
    put_back(cluster, backups)
    kept = [files_of(host) for host in cluster.hosts]
    tree = tree_of(cluster)
    for host in cluster.hosts:
        host.start()
        assert host.wait() == 1
        assert "is an older copy: its generation is" in host.log.read_text()
        print(host.log.read_text().splitlines()[-1])
    assert ([files_of(host) for host in cluster.hosts], tree_of(cluster)) == (kept, tree), "a refused start changed it"
    put_back(cluster, [data.with_name("newest") for data in datas(cluster)])
    for host in cluster.hosts:
        host.start()
    cluster.check()


def datas(cluster: MachineCluster) -> list[Path]:
    """The directories of the servers of ZooKeeper."""
    return [server.data for server in cluster.servers]


def start_all(servers: Sequence[ZooKeeperServer]) -> None:
    """They begin, and form a quorum."""
    for server in servers:
        server.launch()
    for server in servers:
        server.wait()


def put_back(cluster: MachineCluster, backups: Sequence[Path]) -> None:
    """ZooKeeper goes on with other data; that of before is named ``newest``."""
    for server, backup in zip(cluster.servers, backups, strict=True):
        server.kill9()
        server.data.rename(server.data.with_name("newest" if backup.name != "newest" else "older"))
        backup.rename(server.data)
    start_all(cluster.servers)


def files_of(host: Host) -> dict[str, bytes]:
    """The files of a host, besides those of processes and their logs."""
    paths = (path.relative_to(host.directory) for path in host.directory.rglob("*") if path.is_file())
    return {str(path): (host.directory / path).read_bytes() for path in paths if path.parts[0] not in ("run", "logs")}


def tree_of(cluster: MachineCluster) -> dict[str, tuple[bytes, int]]:
    """All nodes of ZooKeeper, with their versions."""
    client, found, paths = KazooClient(",".join(server.quorum for server in cluster.servers)), {}, ["/west"]
    client.start()
    while paths:
        path = paths.pop()
        content, stat = client.get(path)
        found[path] = (content, stat.version)
        paths += [f"{path}/{child}" for child in client.get_children(path)]
    client.stop()
    client.close()
    return found


def moved(cluster: MachineCluster, table: str) -> tuple[int, str] | None:
    """The first tablet of a table that another host than the first one leads, by its number, and that host."""
    return next(((n, one) for n, one in enumerate(leaders(cluster, table)) if one not in (None, NAMES[0])), None)


def test_a_machine_stands_still_for_longer_than_a_write_is_in_flight(cluster: MachineCluster) -> None:
    """With its supervisor and its gateway, in which a first use of a log waits (R4). The gateway goes on first."""
    cluster.west.tables.create("fresh", [b"2", b"4", b"6", b"8"], properties=PROPERTIES)
    wait_until(lambda: moved(cluster, "fresh") is not None, "a tablet whose leader is not the first host", READY_S)
    number, name = moved(cluster, "fresh") or (0, "")
    host, row = next(one for one in cluster.hosts if one.settings.host.name == name), b"%d" % (2 * number + 1)
    still_s = 2 * books_flight_ms(host.settings) / 1_000
    with cluster.load(), ThreadPoolExecutor(1) as pool:
        cluster.wait_written(BETWEEN)
        host.signal("gateway", signal.SIGSTOP)
        written = pool.submit(put, cluster.west, "fresh", row)
        put_into_standstill(host)
        host.machine.suspend()
        began_s = cluster.clock.boot_ns() / 1e9
        cluster.wait_written(BETWEEN)
        print(f"others serve {cluster.clock.boot_ns() / 1e9 - began_s:.1f} s after a machine stands still")
        written.result()
        for_s(still_s - (cluster.clock.boot_ns() / 1e9 - began_s))
        assert not has_late_row(cluster.hosts[0])
        host.signal("gateway", signal.SIGCONT)
        wait_until(lambda: has_late_row(cluster.hosts[0]), "the put of a gateway that goes on", READY_S)
        host.machine.resume()
        cluster.wait_written(BETWEEN)
    print(f"a machine stood still for {still_s:.0f} s, and its put arrived")
    with books(cluster.hosts[0]) as table:
        table.delete(LATE)
    cluster.check()
    assert [cell.row for cell in cluster.west.scan("fresh").cells()] == [row]
    cluster.wait_tidy()
