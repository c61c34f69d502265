"""Checks whether a cluster answers: a master leads and replies, and the expected tservers and hosts are registered."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from msgspec import Struct

from bookkeeper.client import Client
from bookkeeper.clock import Clock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import TransientError

POLL_MS = 100


class ClusterState(Struct, frozen=True):
    """The live processes: address of the leading master (None without one), addresses of the tservers."""

    master: str | None
    tservers: tuple[str, ...]
    hosts: frozenset[str] = frozenset()
    """Names of the hosts whose replicas one of the tservers holds."""


class Expected(Struct, frozen=True):
    """The least number of live tservers, and hosts that must be among theirs."""

    tservers: int
    hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, hosts: Sequence[Settings]) -> Expected:
        """All tservers of the hosts that a supervisor runs, and each of these hosts that is not the cluster's first, or
        shares no directory with others.
        """
        run = [host for host in hosts if "tserver" in host.standalone.processes]
        named = frozenset(host.host.name for host in run if host.host.cluster or host.storage.volume == "none")
        return cls(sum(host.standalone.tservers for host in run), named)


def read_state(coordination: Coordination) -> ClusterState:
    """The live processes and the leader by the coordination store."""
    leader = coordination.leader()
    alive = [session for session in coordination.sessions("tserver") if session.alive]
    hosts = frozenset(session.host.name for session in alive if session.host is not None)
    addresses = tuple(session.address for session in alive)
    return ClusterState(None if leader is None else leader.address, addresses, hosts)


def is_complete(state: ClusterState, wanted: Expected) -> bool:
    """Whether a master leads, and the expected tservers and hosts are registered."""
    return state.master is not None and len(state.tservers) >= wanted.tservers and wanted.hosts <= state.hosts


def answers(settings: Settings, coordination: Coordination, wanted: Expected) -> bool:
    """Whether the expected processes are registered and the leading master replies to a call."""
    if not is_complete(read_state(coordination), wanted):
        return False
    try:
        with Client.connect(settings.directory, budget_ms=0) as client:
            client.tables.list()
    except TransientError:
        return False
    return True


def wait_until_ready(settings: Settings, wanted: Expected, clock: Clock, stop: threading.Event) -> ClusterState | None:
    """Poll until the cluster answers, and return its processes; None when ``stop`` is set first."""
    coordination = open_coordination(settings)
    try:
        while not clock.wait(stop, POLL_MS):
            if answers(settings, coordination, wanted):
                return read_state(coordination)
    finally:
        coordination.close()
    return None
