"""Calls to the processes that hold the replicas of other hosts. All lanes share one short-lived list of the sessions.

A session that ends or moves is noticed by the call that fails: the list is then read again before the next call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.config.sections import RpcSettings
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.model import HostIdentity
from bookkeeper.replicas.values import Target
from bookkeeper.rpc.contract.messages import TRANSIT_BYTES_MAX, SegmentAck, SegmentTransit
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.rpc.rpc_pool import RpcPool

SESSIONS_MS = 1_000
"""ms for which a list of the sessions is used: the longest delay until a new host gets its first segment."""


class Transits(Protocol):
    """Content on its way to a host; later parts do not wait for the answers to earlier ones."""

    def send(self, transit: SegmentTransit) -> None:
        """Send a part; the content is the caller's again. Raises UnavailableError."""

    def receive(self) -> SegmentAck:
        """The answer to the oldest part that waits for one. Raises as ``TServer.segment_transit``."""


class HostLink(Struct, frozen=True):
    """Calls to one host. ``transits``: a connection for content, until the block ends; raises UnavailableError.
    ``part_bytes``: of content, in one message.
    """

    calls: TServer
    transits: Callable[[], AbstractContextManager[Transits]]
    part_bytes: int


class HostCalls:
    """Thread-safe."""

    def __init__(self, coordination: Coordination, link: Callable[[str], HostLink], clock: Clock) -> None:
        """``link``: calls to the process at an address."""
        self._coordination = coordination
        self._link = link
        self._clock = clock
        self._lock = threading.Lock()
        self._addresses: Mapping[HostIdentity, str] | None = None
        self._read_ns = 0

    def find(self, target: Target) -> TServer | None:
        """Calls to a target's host; None while no live process holds that disk. Raises TransientError."""
        link = self.link(target)
        return None if link is None else link.calls

    def link(self, target: Target) -> HostLink | None:
        """The same, with connections for content."""
        address = self._live().get(HostIdentity(target.host, target.placement.incarnation))
        return None if address is None else self._link(address)

    def forget(self) -> None:
        """Read the sessions again before the next call: a host was not there, or did not answer."""
        with self._lock:
            self._addresses = None

    def _live(self) -> Mapping[HostIdentity, str]:
        """The addresses of live hosts. Raises TransientError."""
        now_ns = self._clock.boot_ns()
        with self._lock:
            if self._addresses is None or is_old(self._read_ns, now_ns):
                sessions = self._coordination.sessions("tserver")
                self._addresses = {one.host: one.address for one in sessions if one.alive and one.host is not None}
                self._read_ns = now_ns
            return self._addresses


def part_bytes(frame_bytes_max: int) -> int:
    """Most content of a part where frames have this limit."""
    return min(TRANSIT_BYTES_MAX, frame_bytes_max // 2)


def link_of(pool: RpcPool, settings: RpcSettings, address: str) -> HostLink:
    """Calls to the process at an address."""
    transits = partial(pool.pipeline, address, "TServer", "segment_transit")
    return HostLink(pool.tserver(address), transits, part_bytes(settings.frame_bytes_max))


def is_old(read_ns: int, now_ns: int) -> bool:
    """Whether a list of the sessions is not used any more."""
    return now_ns - read_ns >= SESSIONS_MS * 1_000_000
