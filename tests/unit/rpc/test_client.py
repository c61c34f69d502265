"""A pool of connections: nothing doubtful is used again, and an unreachable server is named with the reason."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bookkeeper.errors import IncompatibleError, InvalidInputError, NoAnswerError, NotFoundError, UnavailableError
from bookkeeper.rpc import rpc_pool
from bookkeeper.rpc.address import Address, format_quorum, parse_address, parse_quorum
from bookkeeper.rpc.channel import Channel
from bookkeeper.rpc.rpc_pool import IDLE_CONNECTIONS_MAX
from tests.support.rpc_peer import Echo, Gate, pooled, serving
from tests.support.tservers import wait_until


@contextmanager
def answering(reply: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that treats each connection as ``reply`` says."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    reply(peer)

        thread = threading.Thread(target=serve)
        thread.start()
        host, port = listener.getsockname()
        try:
            yield f"{host}:{port}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_a_server_that_is_not_there_is_named_with_the_reason() -> None:
    address = f"127.0.0.1:{_free_port()}"
    with pooled() as pool, pytest.raises(UnavailableError, match=rf"{address} can't be reached: Connection refused"):
        pool.replay(address).warm()
    with pooled() as pool, pytest.raises(UnavailableError, match=r"no-such-host\.invalid:1 can't be reached"):
        pool.replay("no-such-host.invalid:1").warm()


@pytest.mark.parametrize("reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x05hello", b"\xff" * 8])
def test_a_server_of_something_else_is_incompatible(reply: bytes) -> None:
    def answer(peer: socket.socket) -> None:
        peer.recv(1000)
        peer.sendall(reply)

    with answering(answer) as address, pooled() as pool, pytest.raises(IncompatibleError, match=address):
        pool.replay(address).warm()


def test_a_server_that_closes_or_says_nothing_is_unavailable() -> None:
    def hang_up(peer: socket.socket) -> None:
        peer.recv(1000)

    with (
        answering(hang_up) as address,
        pooled() as pool,
        pytest.raises(UnavailableError, match=rf"{address} did not answer hello: closed"),
    ):
        pool.replay(address).warm()
    release = threading.Event()

    def say_nothing(peer: socket.socket) -> None:
        peer.recv(1000)
        release.wait(30)

    with answering(say_nothing) as address, pooled() as pool:
        with pytest.raises(UnavailableError, match=rf"{address} did not answer hello: timed out"):
            pool.call(address, "Replay", "warm", timeout_ms=100)
        release.set()


def test_a_call_that_takes_too_long_ends_and_its_connection_is_not_used_again() -> None:
    echo, gate = Echo(), Gate()
    echo.on_run = gate
    with serving(echo) as server, pooled() as pool:
        pool.replay(server.address).warm()  # a connection is made without the limit of the call
        with pytest.raises(UnavailableError, match=f"{server.address} did not answer run: timed out"):
            pool.replay(server.address, timeout_ms=100).run(b"late")
        gate.opened.set()
        assert pool.replay(server.address).run(b"next") == b"next"


def test_a_call_ends_early_when_the_server_does_not_answer_others_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_pool, "LOOK_MS", 10)
    echo, gate = Echo(), Gate()
    echo.on_run = gate
    with serving(echo, threads_max=1) as server, pooled(silent_ms=100) as pool:
        address = server.address
        wait_until(lambda: pool.replay(address).status() != {}, "a connection in time")
        with pytest.raises(NoAnswerError, match=f"{address} did not answer run: nor hello on another"):
            pool.replay(address, timeout_ms=60_000).run(b"waits")
        with pytest.raises(NoAnswerError, match=f"{address} did not answer hello"):
            pool.replay(address, timeout_ms=60_000).run(b"waits, too")
        gate.opened.set()
        wait_until(lambda: pool.replay(address).run(b"next") == b"next", "a connection in time")


def test_a_call_to_a_server_that_answers_others_lasts_as_long_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_pool, "LOOK_MS", 10)
    echo, greeted, run = Echo(), threading.Event(), Channel.greet

    def greet(*arguments: Any) -> Any:
        found = run(*arguments)
        looks.append(found)
        if len(looks) == 3:
            greeted.set()
        return found

    looks: list[object] = []
    monkeypatch.setattr(Channel, "greet", greet)
    echo.on_run = lambda data: data if greeted.wait(30) else b"no look"
    with serving(echo, threads_max=2) as server, pooled(silent_ms=20_000) as pool:
        assert pool.replay(server.address).run(b"slow") == b"slow", "its own connection, and two looks"


def test_a_server_that_comes_back_on_its_port_is_found_without_an_error() -> None:
    echo = Echo()
    with serving(echo) as server, pooled() as pool:
        threads = [threading.Thread(target=pool.replay(server.address).run, args=(b"",)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        server.stop()
        with serving(echo, port=parse_address(server.address).port) as again:
            assert again.address == server.address
            for _ in range(10):
                assert pool.replay(server.address).run(b"x") == b"x"


def test_a_server_that_dies_in_the_middle_of_a_call_is_unavailable() -> None:
    echo, gate = Echo(), Gate()
    echo.on_run = gate
    failures: list[Exception] = []
    with serving(echo) as server, pooled() as pool:

        def call() -> None:
            try:
                pool.replay(server.address).run(b"")
            except UnavailableError as error:
                failures.append(error)

        calling = threading.Thread(target=call)
        calling.start()
        gate.wait_for(1)
        server.stop(grace_ms=1)
        calling.join()
        gate.opened.set()
    assert len(failures) == 1


def test_what_can_not_be_sent_costs_no_connection() -> None:
    echo = Echo()
    with serving(echo) as server, pooled(frame_bytes_max=1 << 20) as pool:
        for _ in range(3):
            with pytest.raises(InvalidInputError):
                pool.replay(server.address).run(bytes(2 << 20))
            with pytest.raises(InvalidInputError):
                pool.call(server.address, "Replay", "run", "text")
            with pytest.raises(NotFoundError):
                pool.call(server.address, "Replay", "walk")
        assert pool.replay(server.address).run(b"x") == b"x"
        assert len(pool._idle[server.address]) == 1


def test_idle_connections_are_bounded_and_closed_with_the_pool() -> None:
    echo, gate = Echo(), Gate()
    echo.on_run = gate
    calls = IDLE_CONNECTIONS_MAX + 8
    with serving(echo, threads_max=calls) as server, pooled() as pool:
        threads = [threading.Thread(target=pool.replay(server.address).run, args=(b"",)) for _ in range(calls)]
        for thread in threads:
            thread.start()
        gate.wait_for(calls)
        gate.opened.set()
        for thread in threads:
            thread.join()
        assert len(pool._idle[server.address]) == IDLE_CONNECTIONS_MAX
        pool.close()
        assert not pool._idle
        pool.replay(server.address).warm()
        assert not pool._idle.get(server.address)


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 1 << 20, (4 << 20) + 1, 20 << 20])
def test_a_payload_of_any_size_goes_and_comes_back(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    with serving(Echo()) as server, pooled() as pool:
        for _ in range(2):
            assert pool.replay(server.address).run(data) == data


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("h:1", Address("h", 1)),
        (" a.b-c:65535 ", Address("a.b-c", 65535)),
        ("[::1]:9797", Address("::1", 9797)),
        ("127.0.0.1:80", Address("127.0.0.1", 80)),
    ],
)
def test_an_address_reads_and_writes(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text.strip()


@pytest.mark.parametrize(
    "text", ["", "h", "h:", ":1", "h:0", "h:65536", "h:x", "h:+1", "h:\uff11", "::1:1", "a b:1", "u@h:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="not an address"):
        parse_address(text)


def test_a_quorum_is_a_list_of_addresses() -> None:
    quorum = parse_quorum("b:2, a:1,b:2")
    assert quorum == (Address("b", 2), Address("a", 1))
    assert format_quorum(quorum) == "b:2,a:1"
    for bad in ("", "a:1,", ",a:1", "a:1;b:2"):
        with pytest.raises(InvalidInputError):
            parse_quorum(bad)
