"""Three servers of ZooKeeper and a process of a cluster, each on a machine of its own: a machine goes, links are cut.

The lease is that of ``init`` for a store in ZooKeeper. A session that lost its lease never gets it back, so a later end
of the lease shows that the renewals went on in time. Rule: R15.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from kazoo.client import KazooClient

from bookkeeper.coordination.masters import read_masters
from bookkeeper.coordination.zookeeper.url import parse_url
from bookkeeper.errors import UnavailableError
from tests.support.coordination_process import RENEW_MS, CoordinationProcess
from tests.support.faults import fault
from tests.support.hbase import HBaseUnavailableError
from tests.support.machines import Machine, Machines, why_no_machines
from tests.support.tservers import wait_until
from tests.support.zookeeper import ZooKeeperServer, three_servers

pytestmark = [pytest.mark.long, pytest.mark.machines, pytest.mark.timeout(300)]

LEASE_MS = 15_000
NEW_ROOT = """
import sys
from bookkeeper.clock import SystemClock
from bookkeeper.coordination.zookeeper.access import Access
from bookkeeper.coordination.zookeeper.url import parse_url
from bookkeeper.coordination.zookeeper.zookeeper import make_root
print(make_root(Access(parse_url(sys.argv[1])), SystemClock(), 3_000))
"""


@dataclass
class Topology:
    """Servers on the first three machines, and a process with a session on the fourth."""

    machines: Machines
    servers: list[ZooKeeperServer]
    process: CoordinationProcess
    session: str

    @property
    def client(self) -> Machine:
        """The machine of the process."""
        return self.machines.all[3]

    def of(self, server: ZooKeeperServer) -> Machine:
        """The machine of a server."""
        return self.machines.all[self.servers.index(server)]

    def leader(self) -> ZooKeeperServer:
        """The server that leads."""
        (found,) = (server for server in self.servers if server.mode == "leader")
        return found

    def used(self) -> ZooKeeperServer:
        """The server to which the process is connected."""
        connections = Path(f"/proc/{self.client.pid}/net/tcp").read_text()
        (found,) = (server for server in self.servers if f" {in_hex(self.of(server), server.port)} 01 " in connections)
        return found

    def goes_on(self) -> bool:
        """Whether the session is renewed again and again, and the process writes; if not, its lease has ended."""
        seen = int(self.process.ask("expires", self.session))

        def is_renewed() -> bool:
            return int(self.process.ask("expires", self.session)) > seen + 3 * RENEW_MS * 1_000_000

        wait_until(lambda: is_renewed() or not self.process.ask("valid", self.session), "renewals, or the lease's end")
        if not self.process.ask("valid", self.session):
            return False
        assert self.process.ask("write", "/go/", 1) == [1]
        return True

    def must_go_on(self) -> None:
        """The session is renewed again and again, and the process writes."""
        assert self.goes_on(), "the session lost its lease"


def in_hex(machine: Machine, port: int) -> str:
    """The address as the kernel lists connections."""
    return f"{socket.inet_aton(machine.address)[::-1].hex().upper()}:{port:04X}"


@contextmanager
def new_topology(tmp_path: Path, switch: str = "") -> Iterator[Topology]:
    """``switch``: the fault of the process; without one the process uses the server that leads."""
    if (reason := why_no_machines()) is not None:
        pytest.skip(reason)
    with ExitStack() as stack:
        machines = stack.enter_context(Machines(tmp_path, 4))
        client = machines.all[3]
        try:
            servers = stack.enter_context(three_servers(tmp_path, machines.all[:3]))
        except HBaseUnavailableError as error:
            pytest.skip(f"NO ZOOKEEPER, so none was tested on several machines: {error}")
        url = f"zk://{','.join(server.quorum for server in servers)}/west"
        store_id = client.run(sys.executable, "-c", NEW_ROOT, url).strip()
        for server, machine in zip(servers, machines.all, strict=False):
            if not switch and server.mode != "leader":
                machines.cut(client, machine)
        place = f"{url} {store_id} {client.directory / 'leases'}"
        process = stack.enter_context(
            CoordinationProcess("zookeeper", place, str(LEASE_MS), machine=client, switch=switch)
        )
        session = process.ask("open", "tserver", "h:1")
        machines.join_all()
        yield Topology(machines, servers, process, session)


@pytest.fixture
def topology(tmp_path: Path) -> Iterator[Topology]:
    with new_topology(tmp_path) as made:
        yield made


def test_a_machine_with_the_leading_server_loses_its_power(topology: Topology) -> None:
    lost = topology.leader()
    assert topology.used() is lost
    topology.machines.pull(topology.of(lost))
    topology.must_go_on()
    assert sorted(server.mode for server in topology.servers if server is not lost) == ["follower", "leader"]


CUTS: dict[str, Callable[[Machines, Machine, Machine], None]] = {
    "both": lambda machines, one, other: machines.cut(one, other),
    "from it": lambda machines, one, other: machines.cut_one_way(one, other),
    "to it": lambda machines, one, other: machines.cut_one_way(other, one),
}


@pytest.mark.parametrize("direction", CUTS)
def test_the_leading_server_is_cut_off_from_the_two_others(topology: Topology, direction: str) -> None:
    """The process reaches all three. A leader that hears nobody and is heard is voted for again by the two others, so
    ZooKeeper may be without a leader for longer than a lease: then the process can open a new session afterwards.
    """
    before = topology.leader()
    assert topology.used() is before
    for server in topology.servers:
        if server is not before:
            CUTS[direction](topology.machines, topology.of(before), topology.of(server))
    goes_on = topology.goes_on()
    assert goes_on or direction == "to it", "the session lost its lease"
    topology.machines.join_all()
    modes = ["follower", "follower", "leader"]
    wait_until(lambda: sorted(server.mode for server in topology.servers) == modes, "the quorum of all three")
    if not goes_on:
        topology.process.ask("open", "tserver", "h:1")
    topology.process.ask("write", "/joined/", 1)


@pytest.mark.parametrize("direction", CUTS)
def test_the_process_is_cut_off_from_its_server(topology: Topology, direction: str) -> None:
    """The servers reach each other."""
    used = topology.used()
    CUTS[direction](topology.machines, topology.of(used), topology.client)
    topology.must_go_on()
    assert topology.used() is not used


def test_without_its_rule_a_process_that_is_cut_off_from_its_server_loses_its_lease(tmp_path: Path) -> None:
    broken = pytest.raises(AssertionError, match="the session lost its lease")
    with new_topology(tmp_path, "zookeeper-waits-for-its-server") as topology, broken:
        test_the_process_is_cut_off_from_its_server(topology, "from it")


def a_machine_without_power_hides_no_other(topology: Topology) -> None:
    """Somebody outside asks for the masters of the cluster; the first server that he tries is on that machine."""
    lost = next(server for server in topology.servers if server.mode == "follower")
    others = [server for server in topology.servers if server is not lost]
    root = parse_url(f"zk://{','.join(server.quorum for server in (lost, *others))}/west")
    with topology.client.network():  # the threads of a client are there, too
        client = KazooClient(others[0].quorum)
        client.start()
        client.create("/west/masters", b'{"instance_id": "i-west", "masters": ["h:1"]}')
        client.stop()
        client.close()
        topology.machines.pull(topology.of(lost))
        with mock.patch("kazoo.protocol.connection.random.shuffle"):
            try:
                found = read_masters(root, 2_000)
            except UnavailableError as error:
                raise AssertionError(f"a machine without power hides the others: {error}") from error
    assert found.masters == ("h:1",)


def test_a_machine_without_power_hides_no_other(topology: Topology) -> None:
    a_machine_without_power_hides_no_other(topology)


def test_without_its_rule_a_machine_without_power_hides_the_others(topology: Topology) -> None:
    broken = pytest.raises(AssertionError, match="a machine without power hides the others")
    with fault("zookeeper-untrusted-wait"), broken:
        a_machine_without_power_hides_no_other(topology)
