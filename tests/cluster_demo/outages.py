"""The kills of the demo, in its order: processes and whole machines. The demo starts again, as systemd would do it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.clusters_on_machines import PEER, ClustersOnMachines

AWAY_S = 8.0
"""A machine without power boots after this time."""


@dataclass(frozen=True, slots=True)
class Outage:
    """``begin`` returns what it killed, for people. ``end``: what is done after ``lasts_s``."""

    begin: Callable[[], str]
    end: Callable[[], None] | None = None
    lasts_s: float = 0.0


def outages_of(clusters: ClustersOnMachines) -> Sequence[Outage]:
    """One of each kind, and two machines."""

    def role_at(number: int, role: str) -> str:
        host = clusters.hosts[number]
        return f"kill -9 {host.machine.name} {role} (pid {host.signal(role, signal.SIGKILL)} there)"

    def leading_master() -> str:
        return f"{role_at(clusters.leading_master(), 'master')}, which leads"

    def zookeeper(mode: str) -> str:
        number = clusters.zookeeper_that(mode)
        clusters.restart_zookeeper(number)
        return f"kill -9 {clusters.hosts[number].machine.name} ZooKeeper, a {mode}; started again"

    def supervisor(number: int) -> str:
        clusters.restart_supervisor(number)
        return f"kill -9 {clusters.hosts[number].machine.name} supervisor, and so all its processes; started again"

    def books() -> str:
        clusters.books.kill9()
        return "kill -9 HBase, all of it"

    def of_peer() -> str:
        return f"kill -9 {PEER} tserver1 (pid {clusters.peer.signal('tserver1', signal.SIGKILL)} there)"

    def machine(number: int) -> Outage:
        def begin() -> str:
            clusters.wait_hosts()
            clusters.pull(number)
            return f"{clusters.hosts[number].machine.name} loses its power, with a host and a ZooKeeper server"

        return Outage(begin, lambda: clusters.boot(number), AWAY_S)

    return (
        Outage(lambda: role_at(1, "tserver1")),
        Outage(leading_master),
        Outage(lambda: zookeeper("leader")),
        machine(2),
        Outage(lambda: role_at(0, "replay")),
        Outage(of_peer),
        Outage(lambda: role_at(1, "gateway")),
        Outage(lambda: supervisor(1)),
        Outage(books, clusters.books.start),
        machine(0),
        Outage(lambda: zookeeper("follower")),
    )
