"""How long a cluster of three hosts on machines of their own needs after a failure, a change, and a restart.

It needs root, for the machines; the reference of each figure is of the same run.
"""

from __future__ import annotations

import signal
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bookkeeper.client import Client, Mutation
from bookkeeper.errors import BookkeeperError, UnavailableError
from tests.benchmarks.figure import Figure
from tests.support.machine_cluster import PROPERTIES, READY_S, MachineCluster
from tests.support.machine_hosts import Host
from tests.support.machines import why_no_machines
from tests.support.time_limit import TimeLimit
from tests.support.tservers import wait_until
from tests.support.zookeeper import TICK_MS

DEAD_S = CHANGED_S = 1.0
SERVED_S = 3.0
"""More than the lease."""
SYNC_LIMIT = 5
RESTARTED_S = 15.0
ROUNDS = 5
KEPT = "kept"
"""A table of west that has a tablet on each host; of the peer, too, with one replica."""


def figure(name: str, value_s: float, reference_s: float, reference: str, most_s: float) -> Figure:
    """One time; the least is best."""
    return {
        "name": name,
        "value": value_s,
        "unit": "s",
        "reference": reference_s,
        "reference_name": reference,
        "reference_unit": "s",
        "ratio": value_s / reference_s,
        "target": most_s,
        "lower_is_better": True,
    }


class Trial:
    """Measures one cluster, which is whole again after each figure."""

    def __init__(self, cluster: MachineCluster) -> None:
        self._cluster = cluster
        settings = cluster.hosts[0].settings.coordination
        self._lease_s = settings.session_lease_ms / 1e3
        self._over_s = (settings.session_lease_ms + settings.session_margin_ms) / 1e3
        at_once = {**PROPERTIES, "table.failover": "1"}  # the marks have no time for a host to come back
        for client, properties in ((cluster.west, at_once), (cluster.peer, None)):
            client.tables.create(KEPT, [b"2", b"4", b"6", b"8"], properties=properties)

    def run(self) -> list[Figure]:
        """All figures."""
        return [self._killed(), *self._pulled(), self._changed(), self._restarted()]

    def _timed(self, what: Callable[[], object]) -> float:
        began_ns = self._cluster.clock.boot_ns()
        what()
        return (self._cluster.clock.boot_ns() - began_ns) / 1e9

    def _killed(self) -> Figure:
        """A tserver with kill -9, until no host counts it as alive."""
        found = []
        for number in range(ROUNDS):
            host = self._cluster.hosts[1 + number % 2]
            found.append(self._death_s(host))
        over = "lease and margin"
        return figure("kill -9 of a process until it counts as dead", max(found), self._over_s, over, DEAD_S)

    def _death_s(self, host: Host) -> float:
        before = self._session_of(host)
        host.signal("tserver1", signal.SIGKILL)
        felt_s = self._timed(lambda: self._wait_other(host, before))
        self._cluster.check()
        return felt_s

    def _session_of(self, host: Host) -> str | None:
        name = host.settings.host.name
        return next(one.address for one in self._cluster.west.hosts.list() if one.name == name)

    def _wait_other(self, host: Host, before: str | None) -> None:
        wait_until(lambda: self._session_of(host) != before, "the end of a session", READY_S)

    def _pulled(self) -> list[Figure]:
        """A machine without power, until a row of each tablet is acknowledged."""
        found = []
        for leads, more_s in ((False, 0.0), (True, SYNC_LIMIT * TICK_MS / 1e3)):
            lost = next(host for host in self._cluster.hosts if self._leads(host) is leads)
            wait_until(partial(self._serves, lost), "a tablet of that host", READY_S)
            self._cluster.machines.pull(lost.machine)
            felt_s = self._timed(lambda: put_all(self._cluster.west))
            self._cluster.power_on(lost)
            self._cluster.check()
            beside = "with the leading server of ZooKeeper on it" if leads else "with another server of ZooKeeper"
            name = f"power of a machine {beside}, until all tablets take rows"
            found.append(figure(name, felt_s, self._over_s, "lease and margin", self._lease_s + SERVED_S + more_s))
        return found

    def _serves(self, host: Host) -> bool:
        """Whether it leads a tablet that takes rows; leaders even out by themselves."""
        tablets = self._cluster.west.hosts.replicas(self._cluster.west.tables.get(KEPT).table_id)
        name = host.settings.host.name
        return any(one.leads and one.host == name for tablet in tablets for one in tablet.replicas)

    def _leads(self, host: Host) -> bool:
        return self._cluster.server_of(host).mode == "leader"

    def _changed(self) -> Figure:
        """A property of a table, until it is in force on all hosts."""

        def change(client: Client, number: int) -> float:
            values = {"table.versions.max": str(2 + number)}
            return self._timed(lambda: client.tables.change_properties(KEPT, values))

        ours, alone = (
            statistics.median(change(client, number) for number in range(ROUNDS))
            for client in (self._cluster.west, self._cluster.peer)
        )
        return figure("a changed property in force on three hosts", ours, alone, "on one host, no ZooKeeper", CHANGED_S)

    def _restarted(self) -> Figure:
        """All hosts at once, until a row of each tablet is acknowledged."""

        def restart(hosts: list[Host], client: Client) -> float:
            for host in hosts:
                host.stop()
            for host in hosts:
                host.start()
            return self._timed(lambda: put_all(client))

        ours = restart(self._cluster.hosts, self._cluster.west)
        alone = restart([self._cluster.east], self._cluster.peer)
        self._cluster.check()
        return figure("start of all three hosts, until all tablets take rows", ours, alone, "one host", RESTARTED_S)


def put_all(client: Client) -> None:
    """A row of each tablet is acknowledged."""
    limit = TimeLimit(READY_S)
    while True:
        try:
            with client.writer(KEPT) as writer:
                writer.add_all(Mutation(b"%d" % row).put(b"f", b"q", b"1") for row in range(1, 10))
        except BookkeeperError:
            if limit.is_over():
                raise
        else:
            return


def run() -> list[Figure]:
    """Measure; takes minutes. Raises UnavailableError where no machine can be made."""
    if (reason := why_no_machines()) is not None:
        raise UnavailableError(reason)
    with (
        tempfile.TemporaryDirectory(prefix="bookkeeper-bench-") as name,
        MachineCluster(Path(name) / "machines") as cluster,
    ):
        return Trial(cluster).run()
