"""A root in a real ZooKeeper that one test has, and the ways to it: the server itself, or a proxy that a test cuts."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from bookkeeper.clock import SystemClock
from bookkeeper.coordination.host_leases import HostLeases
from bookkeeper.coordination.zookeeper.access import Access
from bookkeeper.coordination.zookeeper.url import parse_url
from bookkeeper.coordination.zookeeper.zookeeper import ZooKeeperCoordination
from tests.support.coordination_process import SETTINGS
from tests.support.tcp_proxy import TcpProxy
from tests.support.zookeeper import ZooKeeperServer

PATIENT_MS = 20_000
"""A lease whose calls may take a fifth of it: a busy machine delays an answer by more than a second."""

HOUR_MS = 3_600_000
"""Lease of a session that renews it only when a test tells it to."""


@dataclass
class Place:
    """A root of a test's own, and what reaches it."""

    server: ZooKeeperServer
    root: str
    stack: ExitStack

    @property
    def leases(self) -> Path:
        return Path(self.root.split(" ")[2])

    def open(
        self, *addresses: str, clock: SystemClock | None = None, lease_ms: int = PATIENT_MS, renew_ms: int = 100
    ) -> ZooKeeperCoordination:
        """The store, of a process of its own; ``addresses``: other ways to the server."""
        url, store_id, leases = self.root.split(" ")
        if addresses:
            url = f"zk://{','.join(addresses)}/{url.rpartition('/')[2]}"
        clock = clock or SystemClock()
        settings = replace(SETTINGS, url=url, store_id=store_id, session_lease_ms=lease_ms, session_renew_ms=renew_ms)
        store = ZooKeeperCoordination(
            Access(parse_url(url)), settings, HostLeases(Path(leases), lease_ms, clock), clock
        )
        self.stack.callback(store.close)
        return store

    def proxy(self) -> TcpProxy:
        host, port = self.server.quorum.split(":")
        return self.stack.enter_context(TcpProxy(host, int(port)))
