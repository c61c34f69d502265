"""Calls that do not wait for each other: their order, their errors, and connections that no later call may use."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bookkeeper.errors import InvalidInputError, RefusedError, UnavailableError
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.rpc.rpc_server import RpcServer
from bookkeeper.security.access import Credentials, Entrance
from bookkeeper.security.secret import new_secret
from tests.support.rpc_peer import Echo, Gate, pooled, serving

OWN = new_secret("cluster", "west", "i-west", "processes", 0)
LIMIT = 1 << 20


class World:
    """A server, and callers of it."""

    def __init__(self, echo: Echo, server: RpcServer, pool: RpcPool) -> None:
        self.echo, self.server, self.pool = echo, server, pool

    def run(self, data: bytes) -> bytes:
        """One call."""
        return self.pool.replay(self.server.address).run(data)

    @property
    def idle(self) -> int:
        """Connections that a later call uses."""
        return len(self.pool._idle.get(self.server.address, ()))


@pytest.fixture(params=["open", "tags"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    echo, has_tags = Echo(), request.param == "tags"
    entrance = Entrance(lambda: {OWN.id: OWN}) if has_tags else None
    credentials = Credentials(lambda: (OWN,), True, instance_id="i-west") if has_tags else None
    with (
        serving(echo, entrance=entrance, frame_bytes_max=LIMIT) as server,
        pooled(credentials=credentials, frame_bytes_max=LIMIT) as pool,
    ):
        yield World(echo, server, pool)


def test_answers_come_in_the_order_of_the_calls_and_the_connection_stays(world: World) -> None:
    payloads = [os.urandom(size) for size in (1, 0, 300_000, 7, 70_000, 100_000, 3)]
    with world.pool.pipeline(world.server.address, "Replay", "run") as calls:
        for payload in payloads:
            calls.send(payload)
        assert [bytes(calls.receive()) for _ in payloads] == payloads
        calls.send(b"later")
        assert calls.receive() == b"later"
    assert world.idle == 1
    assert world.run(b"next") == b"next"
    assert world.idle == 1


def test_a_call_is_sent_before_an_earlier_one_is_answered(world: World) -> None:
    gate = Gate()
    world.echo.on_run = lambda data: gate(data) if data == b"slow" else data
    with world.pool.pipeline(world.server.address, "Replay", "run") as calls:
        calls.send(b"slow")
        gate.wait_for(1)
        calls.send(b"fast")
        gate.opened.set()
        assert [calls.receive(), calls.receive()] == [b"slow", b"fast"]


def test_an_error_of_one_call_leaves_the_others(world: World) -> None:
    def refuse(data: bytes) -> bytes:
        if data == b"no":
            raise RefusedError("not this one")
        return data

    world.echo.on_run = refuse
    with world.pool.pipeline(world.server.address, "Replay", "run") as calls:
        for payload in (b"a", b"no", b"b"):
            calls.send(payload)
        with pytest.raises(InvalidInputError, match="more than"):
            calls.send(bytes(LIMIT))  # no byte of it was sent
        assert calls.receive() == b"a"
        with pytest.raises(RefusedError, match="not this one"):
            calls.receive()
        assert calls.receive() == b"b"
    assert world.idle == 1


def test_a_connection_with_an_answer_under_way_is_not_used_again(world: World) -> None:
    with world.pool.pipeline(world.server.address, "Replay", "run") as calls:
        calls.send(b"a")
        calls.send(b"left")
        assert calls.receive() == b"a"
    assert world.idle == 0
    assert world.run(b"next") == b"next"


def test_a_server_that_dies_leaves_its_calls_without_answers(world: World) -> None:
    gate = Gate()
    world.echo.on_run = gate
    with world.pool.pipeline(world.server.address, "Replay", "run") as calls:
        calls.send(b"a")
        calls.send(b"b")
        gate.wait_for(1)
        world.server.stop(grace_ms=1)
        gate.opened.set()
        with pytest.raises(UnavailableError, match="did not answer run"):
            [calls.receive() for _ in range(2)]
    assert world.idle == 0
