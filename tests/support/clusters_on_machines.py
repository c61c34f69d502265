"""Cluster ``west`` on three machines, its books in a real HBase on a fourth one, and its peer ``east`` on a fifth one.

Each of the three machines has a ZooKeeper server, a host with a gateway of its own, and a replica of each tablet. The
test is on a sixth machine, which reaches all others. Arrives: a directory, a seed and workloads. Leaves:
:class:`ClustersOnMachines`, with load from outside, processes and machines to end, stop and cut, and the laws that hold
afterwards. Nothing outlives the process that made it, however it ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace

from bookkeeper.client import Client
from bookkeeper.config.sections import Settings
from bookkeeper.master.status_report import NEEDS_HELP, WARNING
from bookkeeper.metadata.metadata_table import Row
from bookkeeper.model import LocalityGroup
from bookkeeper.security.secret_store import SecretStore
from bookkeeper.standalone.hbase.java import why_not_runnable
from tests.soak.hosts.host_files import compare, lost_files, named_tablets
from tests.soak.watch import Watch, is_there, watching
from tests.support.books import books_of
from tests.support.cluster import Cluster
from tests.support.hosted_cluster import REPLICAS
from tests.support.machine_hosts import READY_MS, ClusterThere, HBaseOn, Host
from tests.support.machines import Machines, Process, why_no_machines
from tests.support.machines_settings import NO_VOLUME
from tests.support.tservers import wait_until
from tests.support.workloads import Workload
from tests.support.workloads_books import leftovers, look
from tests.support.workloads_clusters import READY_S, TwoClusters
from tests.support.workloads_run import DIFFERENCES_MAX, Found, Loader, differences, replica_differences
from tests.support.zookeeper import Member, ZooKeeperServer, three_servers

HOSTS = 3
HOST_NAMES = tuple(f"host{number}" for number in range(1, HOSTS + 1))
PEER = "east"
TRIES = 3
"""Of a command that makes a host: on busy cores a store may answer too late, and then it has changed nothing."""
WEST_SETTINGS: Mapping[str, object] = {
    **NO_VOLUME,
    "security.beyond_loopback": "plaintext",
    "coordination.session_lease_ms": 8_000,
    "metadata.region_session_ms": 10_000,
    "master.scan_interval_ms": 500,
    "master.gc_interval_ms": 2_000,
}
ON_EACH: Mapping[str, object] = {
    "coordination.session_lease_ms": 8_000,
    "metadata.region_session_ms": 10_000,
    "master.scan_interval_ms": 500,
    "master.gc_interval_ms": 2_000,
    "standalone.processes": '["master","tserver","replay"]',
}
VERSIONS = "1000"
PROPERTIES: Mapping[str, str] = {
    "table.versions.max": VERSIONS,
    "table.flush.interval_ms": "1000",
    "table.compaction.deletes_kept_ms": str(24 * 3_600_000),
}
"""A record that one cluster applied twice shows as a version more. A peer that compacts a delete away would show an
older value from a log that was given up (``table.failover``).
"""
ON_WEST: Mapping[str, str] = {"table.replicas": str(HOSTS), "table.failover": "2000"}
"""A tablet goes on without the log of a host that is away, and merges it when the host is back."""


def why_not() -> str | None:
    """Why this can't run here, in words; None if it can."""
    return why_no_machines() or why_not_runnable()


class ReachedCluster(Cluster):
    """A cluster that others start, as a test from outside uses it."""

    def __init__(self, settings: Settings, connect: Callable[[], Client]) -> None:
        self.settings = settings
        self._connect = connect
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """One client, which outlives all outages."""
        if self._client is None:
            self._client = self._connect()
        return self._client

    def launch(self) -> None:
        """It runs already."""

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Return when a master answers."""
        self.wait_until(lambda: bool(self.client.cluster_name()), "master that leads", timeout_s)

    def stop(self) -> None:
        """Disconnect."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float = READY_S) -> None:
        """Poll until ``condition`` holds. Raises AssertionError when it does not in time."""
        wait_until(condition, what, timeout_s)


@dataclass(slots=True)
class ClustersOnMachines(TwoClusters):
    """A context manager; the thread that enters it makes all machines and processes, and has to live as long."""

    workloads: Sequence[Workload] = ()
    say: Callable[[str], None] = print
    machines: Machines = field(init=False)
    zookeepers: list[ZooKeeperServer] = field(init=False)
    hosts: list[Host] = field(init=False)
    tables: list[str] = field(default_factory=list)
    books: HBaseOn = field(init=False)
    peer: ClusterThere = field(init=False)

    # ---- set-up

    def _make(self) -> None:
        enter = self._cleanup.enter_context
        self.machines = enter(Machines(self.directory, HOSTS + 3))
        *mine, stores, there, here = self.machines.all
        enter(here.network())
        self.zookeepers = enter(three_servers(self.directory, mine))
        of_peer = enter(ZooKeeperServer(there.directory / "zookeeper", member=Member(0, (), there)))
        self.say(f"ZooKeeper answers on {HOSTS} machines ({self._quorum}), and on that of {PEER}")
        overrides = {"coordination.url": f"zk://{of_peer.quorum}/{PEER}", "standalone.processes": ["master", "tserver"]}
        self.peer = ClusterThere(there, PEER, overrides)
        self.peer.launch()
        self.books = HBaseOn.of(stores)
        enter(self.books)
        self.say(f"HBase answers on a machine of its own ({stores.address}), in one JVM")
        self.hosts = [Host(machine) for machine in mine]
        self._make_west()
        west = self.hosts[0]
        secret = SecretStore(west.directory).file_of("client")
        self.west = ReachedCluster(
            self._readable(west.settings),
            lambda: Client.connect(self._root, secret_file=secret, budget_ms=READY_MS),
        )
        self.east = ReachedCluster(self.peer.settings, lambda: Client.connect(self.peer.home, budget_ms=READY_MS))

    @property
    def _quorum(self) -> str:
        return ",".join(server.quorum for server in self.zookeepers)

    @property
    def _root(self) -> str:
        return f"zk://{self._quorum}/west"

    def _make_west(self) -> None:
        first, *others = self.hosts
        new = {**WEST_SETTINGS, **ON_EACH, "coordination.url": self._root}
        url = f"hbase+zk://{self.books.host}:{self.books.ports.zookeeper}/west"
        command = first.init_command("--name", "west", "--metadata", url, **new)
        self._finish(first, command, first.machine.start(command, stdout=subprocess.DEVNULL))
        first.start()
        join_file = first.exported()
        joining = []
        for host in others:
            command = host.join_command(self._root, join_file, **ON_EACH)
            joining.append((host, command, host.machine.start(command, stdout=subprocess.DEVNULL)))
        for host, command, process in joining:
            self._finish(host, command, process)
            host.start()
        self.say("three hosts are made, each with its own gateway to HBase")

    def _finish(self, host: Host, command: Sequence[str], process: Process) -> None:
        """Wait for a command that makes a host, and repeat it when it failed."""
        for _ in range(TRIES):
            if process.wait() == 0:
                return
            self.say(f"{host.machine.name}: once more")
            process = host.machine.start(command, stdout=subprocess.DEVNULL)
        assert process.wait() == 0, f"no host on {host.machine.name}: see the lines above"

    def _readable(self, settings: Settings) -> Settings:
        """Settings by which the test reads the books of west."""
        url = f"hbase://{self.books.host}:{self.books.thrift_port}/west"
        return replace(settings, metadata=replace(settings.metadata, url=url))

    def _connect_peer(self) -> None:
        theirs, own = self.peer.settings.instance, self.hosts[0].settings.instance
        made = SecretStore(self.peer.home).make_for_peer(
            "west", PEER, theirs.instance_id, own.instance_id, all_tables=True
        )
        for host in self.hosts:
            SecretStore(host.directory).keep_for_peer(PEER, made.secret)
        self.west.client.replication.define_cluster(PEER, self.peer.settings.coordination.url)

    def _connect(self) -> None:
        self.wait_hosts()
        self._connect_peer()
        for workload in self.workloads:
            self.make_table(workload.table, workload.splits, workload.groups)
        self.loaders = [Loader(self.west.client, workload, self.clock, self.pause_ms) for workload in self.workloads]

    def make_table(self, name: str, splits: Sequence[bytes] = (), groups: Sequence[LocalityGroup] = ()) -> None:
        """A table on both clusters, which west replicates to its peer; on west each tablet is on all hosts."""
        self.west.client.tables.create(name, splits, groups, {**PROPERTIES, **ON_WEST})
        self.east.client.tables.create(name, splits, groups, PROPERTIES)
        self.west.client.replication.enable(name, PEER)
        self.tables.append(name)

    # ---- faults

    def alive(self) -> set[str]:
        """The hosts of west that have a live session. Raises TransientError."""
        return {host.name for host in self.west.client.hosts.list() if host.incarnation is not None}

    def wait_hosts(self) -> None:
        """Return when all hosts of west are alive, and all ZooKeeper servers serve."""
        wait_until(lambda: self.alive() == set(HOST_NAMES), f"{HOSTS} live hosts", READY_S)
        wait_until(lambda: all(server.mode for server in self.zookeepers), f"{HOSTS} ZooKeeper servers", READY_S)

    def zookeeper_that(self, mode: str) -> int:
        """The number (from 0) of a server with this mode, ``leader`` or ``follower``."""
        found: list[int] = []

        def is_found() -> bool:
            found[:] = [number for number, server in enumerate(self.zookeepers) if server.mode == mode]
            return bool(found)

        wait_until(is_found, f"a ZooKeeper server that is {mode}", READY_S)
        return found[-1]

    def leading_master(self) -> int:
        """The number (from 0) of the host whose master leads."""
        found: list[int] = []

        def is_found() -> bool:
            leader = self.west.client._master.find_leader()
            found[:] = [number for number, host in enumerate(self.hosts) if host.machine.address in leader]
            return bool(found)

        wait_until(is_found, "a leading master", READY_S)
        return found[0]

    def restart_zookeeper(self, number: int) -> None:
        """kill -9 of a ZooKeeper server, which starts again at once, as systemd would do it."""
        self.zookeepers[number].kill9()
        self.zookeepers[number].launch()

    def restart_supervisor(self, number: int) -> None:
        """kill -9 of a supervisor; its processes end with it, and it starts again."""
        host = self.hosts[number]
        host.supervisor.kill()
        host.supervisor.wait()
        host.start()

    def restart_books(self) -> None:
        """kill -9 of HBase, which starts again; returns when it answers."""
        self.books.kill9()
        self.books.start()

    @contextmanager
    def cut_from_zookeeper(self, number: int) -> Iterator[None]:
        """In the block no packet of ZooKeeper goes between a machine, with its own server, and the other machines."""
        machine = self.hosts[number].machine
        ports = ",".join(str(port) for server in self.zookeepers for port in server.ports)

        def rules(change: str) -> None:
            for chain, link in (("OUTPUT", "-o"), ("INPUT", "-i")):
                for side in ("--sports", "--dports"):
                    packets = (link, "eth0", "-p", "tcp", "-m", "multiport", side, ports)
                    machine.run("iptables", change, chain, *packets, "-j", "DROP")

        rules("-A")
        try:
            yield
        finally:
            rules("-D")

    def pull(self, number: int) -> None:
        """A machine loses its power, and the others hear nothing."""
        self.machines.pull(self.hosts[number].machine)

    def boot(self, number: int) -> None:
        """A machine that was pulled boots, and all that ran on it."""
        self.machines.power_on(self.hosts[number].machine)
        self.zookeepers[number].launch()
        self.hosts[number].start()

    @contextmanager
    def supervisor_stopped(self, number: int) -> Iterator[None]:
        """A supervisor stands still in the block, and its processes go on."""
        process = self.hosts[number].supervisor
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    @contextmanager
    def machine_stopped(self, number: int) -> Iterator[None]:
        """All processes of a machine stand still in the block."""
        self.hosts[number].machine.suspend()
        try:
            yield
        finally:
            self.hosts[number].machine.resume()

    @contextmanager
    def books_stopped(self) -> Iterator[None]:
        """HBase stands still in the block."""
        pid = self.books.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    # ---- the laws

    def flush(self) -> None:
        """Flush all tablets of both clusters."""
        for cluster in self.clusters.values():
            for table in self.tables:
                cluster.client.tables.flush(table)

    @property
    def homes(self) -> dict[str, Path]:
        """The directories of the hosts of west."""
        return {host.settings.host.name: host.directory for host in self.hosts}

    @property
    def disks(self) -> list[Path]:
        """The disks of the hosts of west."""
        return [home / REPLICAS for home in self.homes.values()]

    @contextmanager
    def watched(self) -> Iterator[list[Watch]]:
        """Look at the books of both clusters again and again inside the block: nothing goes back, and no file that
        somebody needs is gone.
        """
        settings = {name: cluster.settings for name, cluster in self.clusters.items()}
        with watching(settings, self.clock, self._broken, self._exists) as watches:
            yield watches

    def _broken(self, name: str, rows: Sequence[Row]) -> list[str]:
        return lost_files(named_tablets(rows), self.disks) if name == "west" else []

    def _exists(self, settings: Settings, log: str) -> bool:
        if settings.instance.name == PEER:
            return is_there(settings, log)
        return any((disk / log).exists() for disk in self.disks)

    def differences(self) -> list[str]:
        """How both clusters differ from what was written, and from each other, and records that were applied twice.
        Nothing is being written.
        """
        problems: list[str] = []
        for loader in self.loaders:
            table = loader.workload.table
            shown = {name: cluster.client.scan(table).table() for name, cluster in self.clusters.items()}
            found = {name: newest_in(cells) for name, cells in shown.items()}
            expected = loader.expectation.after(loader.acknowledged)
            for name in shown:
                problems += differences(expected, found[name], f"{name} {table}")
            problems += replica_differences(found["west"], found["east"], table)
            problems += [f"{table}: {line}" for line in applied_twice(shown["west"], shown["east"])]
        return problems

    def leftovers(self) -> list[str]:
        """Cells and files of both clusters that no live process needs, and copies that differ, after a flush of all
        tablets.
        """
        self.flush()
        lines = leftovers(look(self.west.settings, self.disks)) + leftovers(look(self.east.settings))
        with closing(books_of(self.west.settings)) as table:
            files = compare(named_tablets(table.scan()), self.homes)
        return lines + [f"west: {line}" for line in (*files.problems, *files.surplus)]

    def asked_of_people(self) -> list[str]:
        """Facts of west's status that an operator has to act on, and ranges in quarantine. Raises TransientError."""
        client = self.west.client
        facts = client._master.call("status")
        lines = [f"{name} {text}" for name, text in facts.items() if name.startswith((WARNING, NEEDS_HELP))]
        for loader in self.loaders:
            lines += [f"in quarantine: {found}" for found in client.replication.quarantine(loader.workload.table)]
        return lines


class Standstills:
    """How long nothing was acknowledged, seen from outside; a context manager with a thread that looks."""

    LOOK_MS = 20

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._longest_ns = 0
        self._thread = threading.Thread(target=self._run, name="standstills")

    def take_longest_s(self) -> float:
        """The longest time without an acknowledgement since the last call, s."""
        with self._lock:
            longest_ns, self._longest_ns = self._longest_ns, 0
        return longest_ns / 1e9

    def _run(self) -> None:
        clock, acknowledged = self._loader.clock, self._loader.acknowledged
        since_ns = clock.boot_ns()
        while not clock.wait(self._stop, self.LOOK_MS):
            now_ns, count = clock.boot_ns(), self._loader.acknowledged
            with self._lock:
                self._longest_ns = max(self._longest_ns, now_ns - since_ns)
            if count != acknowledged:
                acknowledged, since_ns = count, now_ns

    def __enter__(self) -> Standstills:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()


def newest_in(shown: pa.Table) -> Found:
    """The newest version of each cell that a scan has shown; a cell's versions come newest first."""
    names = ("row", "family", "qualifier", "timestamp", "value")
    found: dict[tuple[bytes, bytes, bytes], tuple[int, bytes]] = {}
    for row, family, qualifier, timestamp, value in zip(*(shown.column(n).to_pylist() for n in names), strict=True):
        found.setdefault((row, family, qualifier), (timestamp, value))
    return found


def applied_twice(west: pa.Table, east: pa.Table) -> list[str]:
    """Versions of cells that one cluster has more often than the other one: a record was applied twice, or not at all.
    A writer that sends a record again, because it got no answer, makes another record, which both have; its time may
    be the same.
    """
    names = ("row", "family", "qualifier", "timestamp", "value")
    counts = [Counter(zip(*(shown.column(name).to_pylist() for name in names), strict=True)) for shown in (west, east)]
    unequal = sorted(version for version in counts[0] | counts[1] if counts[0][version] != counts[1][version])
    lines = [f"{version!r} is {counts[0][version]} times on west, {counts[1][version]} on east" for version in unequal]
    return lines[:DIFFERENCES_MAX]
