"""Checks whether a cluster of this machine answers: a master leads and replies, and all tservers are registered."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from bookkeeper.client import Client
from bookkeeper.clock import Clock
from bookkeeper.config import Settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import TransientError

POLL_MS = 100


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The live processes: address of the leading master (None without one), addresses of the tservers."""

    master: str | None
    tservers: tuple[str, ...]


def read_state(coordination: Coordination) -> ClusterState:
    """The live processes and the leader by the coordination store."""
    leader = coordination.leader()
    alive = [session.address for session in coordination.sessions("tserver") if session.alive]
    return ClusterState(None if leader is None else leader.address, tuple(alive))


def is_complete(state: ClusterState, tservers: int) -> bool:
    """Whether a master leads and at least ``tservers`` tservers are registered."""
    return state.master is not None and len(state.tservers) >= tservers


def answers(settings: Settings, coordination: Coordination) -> bool:
    """Whether all processes of this cluster are registered and its leading master replies to a call."""
    if not is_complete(read_state(coordination), settings.standalone.tservers):
        return False
    try:
        with Client.connect(settings.directory, budget_ms=0) as client:
            client.tables.list()
    except TransientError:
        return False
    return True


def wait_until_ready(settings: Settings, clock: Clock, stop: threading.Event) -> ClusterState | None:
    """Poll until the cluster answers, and return its processes; None when ``stop`` is set first."""
    coordination = open_coordination(settings)
    try:
        while not clock.wait(stop, POLL_MS):
            if answers(settings, coordination):
                return read_state(coordination)
    finally:
        coordination.close()
    return None
