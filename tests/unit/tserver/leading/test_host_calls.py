"""The address of a host: one list of sessions for all segments of a second, and a new one after a failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bookkeeper.config.sections import CoordinationSettings, RpcSettings
from bookkeeper.coordination.coordination_protocol import Session, SessionInfo
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.model import HostIdentity
from bookkeeper.replicas.values import Placement, Target
from bookkeeper.rpc.rpc_pool import RpcPool, plain_hello
from bookkeeper.tserver.leading.host_calls import SESSIONS_MS, HostCalls, HostLink, link_of
from tests.support.jumping_clock import TestClock

TARGET = Target("host2", Placement("p", "d1"))


class CountedCoordination(EmbeddedCoordination):
    """Counts the reads of sessions."""

    reads = 0

    def sessions(self, *kinds: str) -> list[SessionInfo]:
        self.reads += 1
        return super().sessions(*kinds)


@dataclass
class World:
    """A coordination store with sessions of hosts, and the calls of a leader."""

    directory: Path
    clock: TestClock = field(default_factory=TestClock)
    called: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.coordination = CountedCoordination(self.directory, CoordinationSettings(), self.clock)
        self.calls = HostCalls(self.coordination, self._link, self.clock)
        self._pool = RpcPool(plain_hello(), RpcSettings())

    def _link(self, address: str) -> HostLink:
        self.called.append(address)
        return link_of(self._pool, RpcSettings(), address)

    def host(self, address: str, disk: str = "d1") -> Session:
        """A live session of host2."""
        return self.coordination.open_session("tserver", address, HostIdentity("host2", disk))

    def found(self) -> str | None:
        """The address at which the host is called now."""
        self.called.clear()
        return None if self.calls.find(TARGET) is None else self.called[0]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_many_segments_of_a_second_read_the_sessions_once(world: World) -> None:
    world.host("127.0.0.1:1")
    assert {world.found() for _ in range(100)} == {"127.0.0.1:1"}
    assert world.coordination.reads == 1, "each segment reads all sessions"
    world.clock.jump(SESSIONS_MS)
    world.found()
    assert world.coordination.reads == 2


def test_a_host_that_moved_is_found_after_the_call_that_failed(world: World) -> None:
    first = world.host("127.0.0.1:1")
    assert world.found() == "127.0.0.1:1"
    first.close()
    world.host("127.0.0.1:2")
    assert world.found() == "127.0.0.1:1"
    world.calls.forget()
    assert world.found() == "127.0.0.1:2", "a lane goes on calling an address without a process"


def test_another_disk_of_the_host_is_no_target(world: World) -> None:
    world.host("127.0.0.1:1", "d2")
    assert world.found() is None
