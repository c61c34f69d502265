"""A cluster of three hosts on machines of their own, as an operator has it: what tests do to machines.

Each machine has a host and a server of ZooKeeper, all hosts at the same path. A fourth machine has HBase, and a peer.
Each host runs its own gateway to HBase. Arrives: a directory. Leaves: a table with three replicas that is replicated,
rows that are written to it while machines fail, and what both clusters have afterwards. All ends with the block.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bookkeeper.client import Client
from bookkeeper.clock import SystemClock
from bookkeeper.master.status_report import NEEDS_HELP, WARNING
from bookkeeper.metadata import keys
from bookkeeper.security.secret_store import SecretStore
from bookkeeper.standalone.cluster_process import RoleState
from tests.support.machine_hosts import HBaseOn, Host
from tests.support.machines import Machines
from tests.support.machines_settings import NO_VOLUME
from tests.support.trust import trust_everybody
from tests.support.tservers import wait_until
from tests.support.without_masters import LEADS, LOOK_MS, Absence
from tests.support.workloads import LinkedList, undefined_pointers
from tests.support.workloads_books import ClusterView, leftovers, look
from tests.support.workloads_run import Loader
from tests.support.zookeeper import ZooKeeperServer, three_servers

TIDY_S = 240.0
READY_S = 120.0
"""For all that takes seconds on idle cores."""
REPLICATED_MS = 300_000
NAMES = ("host1", "host2", "host3")
PROPERTIES = {
    "table.replicas": "3",
    "table.versions.max": "50",
    "table.flush.interval_ms": "1000",
    "table.failover": "1000",
}
"""A record that is applied twice shows as a version more. The table goes on without the log of a host that is away."""

OF_HOSTS: Mapping[str, object] = {
    "coordination.session_lease_ms": 10_000,
    "master.scan_interval_ms": 500,
    "metadata.region_session_ms": 10_000,
    "security.beyond_loopback": "plaintext",
}
"""The time of R4 is 65.5 s with these; no region server stands still here."""

WITHOUT_REPLAY: Mapping[str, object] = {"standalone.processes": '["master","tserver"]'}


class MachineCluster:
    """A context manager. While it is entered, sockets of the entering thread are on the machine of the peer."""

    def __init__(self, directory: Path, seed: int = 1) -> None:
        self._directory, self._seed = directory, seed
        self.clock = SystemClock()
        self._stack = ExitStack()
        self.machines: Machines
        self.servers: list[ZooKeeperServer] = []
        self.hosts: list[Host] = []
        self.east: Host
        self.loader: Loader

    def __enter__(self) -> MachineCluster:
        """Raises OSError, UnavailableError, HBaseUnavailableError."""
        with self._stack as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _start(self, stack: ExitStack) -> None:
        self.machines = stack.enter_context(Machines(self._directory, 4))
        *own, stores = self.machines.all
        stack.enter_context(stores.network())
        self.servers = stack.enter_context(three_servers(self._directory, own))
        hbase = stack.enter_context(HBaseOn.of(stores))
        self.url = f"zk://{','.join(server.quorum for server in self.servers)}/west"
        self.hosts, self.east = [Host(machine) for machine in own], Host(stores, "east")
        first, *others = self.hosts
        new = {**OF_HOSTS, **NO_VOLUME, "coordination.url": self.url}
        books = f"hbase+zk://{stores.address}:{hbase.ports.zookeeper}/west"
        first.init("--name", "west", "--metadata", books, **new)
        self.east.init("--name", "east", **OF_HOSTS, **WITHOUT_REPLAY)
        trust_everybody(self.east.settings)
        trust_everybody(first.settings)
        self.east.start()
        first.start()
        self.join_file = first.exported()
        for host in others:
            self.join(host)
            host.start()
        secret = SecretStore(first.directory).file_of("client")
        self.west = stack.enter_context(Client.connect(self.url, secret_file=secret))
        self.peer = stack.enter_context(Client.connect(self.east.directory))
        wait_until(lambda: self.alive() == set(NAMES), "three hosts", READY_S)
        workload = LinkedList(self._seed, 12, "links", (b"4", b"8", b"c"))
        for client, properties in ((self.west, PROPERTIES), (self.peer, {"table.versions.max": "50"})):
            client.tables.create(workload.table, workload.splits, workload.groups, properties)
        self.west.replication.define_cluster("east", self.east.settings.master.address)
        self.west.replication.enable(workload.table, "east")
        self.loader = Loader(self.west, workload, self.clock, 100.0)

    def join(self, host: Host, *words: str) -> None:
        """Make a host of the cluster. Raises CalledProcessError."""
        host.machine.run(*host.join_command(self.url, self.join_file, *words, **OF_HOSTS, **WITHOUT_REPLAY))

    # ---- what it has

    def alive(self) -> set[str]:
        """The hosts that live."""
        return {host.name for host in self.west.hosts.list() if host.incarnation is not None}

    def lacks(self) -> int:
        """The segments that hosts lack."""
        return sum(host.lacking_segments + host.joining for host in self.west.hosts.list())

    def server_of(self, host: Host) -> ZooKeeperServer:
        """The server of ZooKeeper on its machine."""
        return self.servers[self.hosts.index(host)]

    def leading_server(self) -> Host:
        """The host beside the server of ZooKeeper that leads."""
        found: list[Host] = []

        def is_found() -> bool:
            found[:] = [host for host in self.hosts if self.server_of(host).mode == "leader"]
            return bool(found)

        wait_until(is_found, "a server of ZooKeeper that leads", READY_S)
        return found[-1]

    def power_on(self, host: Host) -> None:
        """The machine of a host, which was pulled, begins again, with its server of ZooKeeper and its processes."""
        self.machines.power_on(host.machine)
        self.server_of(host).kill9()
        self.server_of(host).launch()
        host.start()

    # ---- load

    @contextmanager
    def load(self) -> Iterator[None]:
        """Rows are written while the block runs; at its end all are acknowledged."""
        self.loader.start()
        try:
            yield
        finally:
            self.loader.stop()

    def wait_written(self, batches: int) -> None:
        """Return when so many batches more are acknowledged."""
        self.loader.wait_acknowledged(self.loader.acknowledged + batches, READY_S)

    def check(self) -> None:
        """All three hosts live and have all segments, and each row that was written is there once, on both sides.
        Nothing is being written.
        """
        wait_until(lambda: self.alive() == set(NAMES), "three hosts", READY_S)
        table = self.loader.workload.table
        left = self.west.replication.wait(table, "east", timeout_ms=REPLICATED_MS)
        assert not left, f"not replicated: {left}"
        self.west.tables.flush(table)  # also what came from a log that was given up
        wait_until(lambda: self.lacks() == 0, "all copies", READY_S)
        assert not self.differences()

    def wait_tidy(self) -> None:
        """Return when the books and the disks have nothing that is not needed, besides files that wait for the end of
        R4, and nobody asks for an operator. Nothing is being written.
        """
        found: list[str] = []

        def is_tidy() -> bool:
            found[:] = self._untidy()
            return not found

        try:
            wait_until(is_tidy, "nothing is left behind", TIDY_S)
        except AssertionError as late:
            raise AssertionError("left behind:\n" + "\n".join(found[:20])) from late

    def _untidy(self) -> list[str]:
        self.west.tables.flush(self.loader.workload.table)
        view = self.view()
        going = {keys.parse_del_row(row.key) for row in view.rows if row.key.startswith(keys.DEL_PREFIX)}
        lines = [line for line in leftovers(view) if not any(name in line for name in going)]
        facts = self.west._master.call("status")
        return lines + [f"{name} {text}" for name, text in facts.items() if name.startswith((WARNING, NEEDS_HELP))]

    def is_at_peer(self, batch: int) -> bool:
        """Whether the peer has all rows of a batch of :class:`LinkedList`."""
        workload = self.loader.workload
        rows = {change.row for change in workload.batch(batch)}
        return rows <= {cell.row for cell in self.peer.scan(workload.table).cells()}

    def view(self, by: int = 0) -> ClusterView:
        """What the books and the disks have, as the host of this number sees it."""
        host = self.hosts[by]
        with host.machine.network():
            return look(host.settings, [one.settings.replicas_dir for one in self.hosts])

    @contextmanager
    def masters_away(self) -> Iterator[Absence]:
        """No master leads in the block: those of all hosts are killed, and each that a supervisor starts."""
        absence = Absence()
        for host in self.hosts:
            host.signal("master", signal.SIGKILL)
        led, stop = self._led(), threading.Event()
        thread = threading.Thread(target=self._keep_masters_away, args=(stop,))
        thread.start()
        try:
            yield absence
        finally:
            absence.failed = self._led() != led
            stop.set()
            thread.join()

    def _led(self) -> list[int]:
        return [host.log_text("master").count(LEADS) for host in self.hosts]

    def _keep_masters_away(self, stop: threading.Event) -> None:
        known: dict[str, RoleState] = {}
        while not self.clock.wait(stop, LOOK_MS):
            for host in self.hosts:
                state = host.role("master")
                if known.get(host.machine.name) != state:
                    host.signal("master", signal.SIGKILL)
                    known[host.machine.name] = state

    def differences(self) -> list[str]:
        """Between the rows that were written, and those of both sides: a few lines."""
        table = self.loader.workload.table
        west, east = (cells_of(client, table) for client in (self.west, self.peer))
        lines = [f"at the peer alone: {cell}" for cell in (east - west).elements()]
        lines += [f"not at the peer: {cell}" for cell in (west - east).elements()]
        wanted = self.loader.expectation.after(self.loader.acknowledged)
        found = {(row, family, qualifier): value for row, family, qualifier, _, value in west}
        lines += [f"lost: {key}" for key in wanted if found.get(key) != wanted[key]]
        lines += [f"never written: {key}" for key in found.keys() - wanted.keys()]
        lines += [f"points nowhere: {row!r}" for row in undefined_pointers(found)]
        return lines[:10]


Cell = tuple[bytes, bytes, bytes, int, bytes]


def cells_of(client: Client, table: str) -> Counter[Cell]:
    """All versions of all cells."""
    return Counter(
        (cell.row, cell.family, cell.qualifier, cell.timestamp, cell.value) for cell in client.scan(table).cells()
    )
