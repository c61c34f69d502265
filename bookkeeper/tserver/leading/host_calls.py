"""Calls to the processes that hold the replicas of other hosts. All lanes share one short-lived list of the sessions.

A session that ends or moves is noticed by the call that fails: the list is then read again before the next call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from bookkeeper.clock import Clock
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.model import HostIdentity
from bookkeeper.replicas.values import Target
from bookkeeper.rpc.contract.services import TServer

SESSIONS_MS = 1_000
"""ms for which a list of the sessions is used: the longest delay until a new host gets its first segment."""


class HostCalls:
    """Thread-safe."""

    def __init__(self, coordination: Coordination, tserver: Callable[[str], TServer], clock: Clock) -> None:
        """``tserver``: calls to the process at an address."""
        self._coordination = coordination
        self._tserver = tserver
        self._clock = clock
        self._lock = threading.Lock()
        self._addresses: Mapping[HostIdentity, str] | None = None
        self._read_ns = 0

    def find(self, target: Target) -> TServer | None:
        """Calls to a target's host; None while no live process holds that disk. Raises TransientError."""
        address = self._live().get(HostIdentity(target.host, target.placement.incarnation))
        return None if address is None else self._tserver(address)

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


def is_old(read_ns: int, now_ns: int) -> bool:
    """Whether a list of the sessions is not used any more."""
    return now_ns - read_ns >= SESSIONS_MS * 1_000_000
