"""A server stays up and serves other connections while one misbehaves."""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from bookkeeper import errors
from bookkeeper.errors import (
    BookkeeperError,
    GapError,
    IncompatibleError,
    InvalidInputError,
    PermanentError,
    TransientError,
    UnavailableError,
)
from bookkeeper.rpc.connection import LOW_WATER_BYTES
from bookkeeper.rpc.contract.faults import ERRORS_BY_CODE, from_fault, internal_fault, to_fault
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Fault, Hello
from bookkeeper.rpc.frames.envelope import method_codec
from bookkeeper.rpc.rpc_server import RpcServer
from tests.support.rpc_peer import SERVER_HELLO, Echo, RawPeer, pooled, serving
from tests.support.standstills import undisturbed


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def server(echo: Echo) -> Iterator[RpcServer]:
    with serving(echo, threads_max=2) as server:
        yield server


@pytest.fixture
def hurried(echo: Echo) -> Iterator[RpcServer]:
    with serving(echo, frame_timeout_ms=300, handshake_timeout_ms=1_000, threads_max=2) as server:
        yield server


def _serves(address: str) -> bool:
    with pooled() as pool:
        return bytes(pool.replay(address).run(b"ping")) == b"ping"


# ---- strangers


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00" * 64,
        b"\xff" * 64,
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 40) + b"x" * 40,
        struct.pack(">i", 12) + struct.pack(">Iii", 0x80010001, 2**31 - 1, 0),
        struct.pack(">i", 16) + struct.pack(">Ii4si", 0x80010009, 4, b"warm", 0),
        struct.pack(">i", 16) + struct.pack(">Ii4si", 0x80010002, 4, b"warm", 0),
        os.urandom(4096),
    ],
)
def test_garbage_closes_its_connection_with_a_log_line_and_no_other(
    hurried: RpcServer, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with pooled() as pool, caplog.at_level(logging.WARNING):
        assert pool.replay(hurried.address).run(b"a") == b"a"
        stranger = RawPeer(hurried.address)
        stranger.send(raw)
        assert stranger.is_closed_by_server()
        stranger.close()
        assert pool.replay(hurried.address).run(b"b") == b"b"
    assert any("closed" in record.message and "127.0.0.1:" in record.message for record in caplog.records)


def test_a_frame_beyond_the_limit_is_refused_by_its_header_alone(echo: Echo) -> None:
    with serving(echo, frame_bytes_max=1 << 20) as server:
        stranger = RawPeer(server.address)
        stranger.greet()
        stranger.send(struct.pack(">i", (1 << 20) + 1))
        assert stranger.is_closed_by_server()
        stranger.close()


def test_half_sent_frames_time_out_while_others_are_served(
    hurried: RpcServer, caplog: pytest.LogCaptureFixture
) -> None:
    def check() -> None:
        caplog.clear()
        strangers = [RawPeer(hurried.address) for _ in range(20)]  # ten times the server's threads
        for number, stranger in enumerate(strangers):
            stranger.do_handshake()
            stranger.send(struct.pack(">i", 1000)[: 1 + number % 4] + b"x" * (number if number % 4 == 3 else 0))
        assert _serves(hurried.address)
        for stranger in strangers:
            assert stranger.is_closed_by_server()
            stranger.close()
        assert sum("was not complete" in record.message for record in caplog.records) == 20
        assert _serves(hurried.address)

    undisturbed(check)


def test_a_slow_frame_is_served_when_it_is_whole_in_time(echo: Echo) -> None:
    with serving(echo, threads_max=1) as server:
        slow = RawPeer(server.address)
        slow.greet()
        raw = b"".join(method_codec("Replay", "run").call(1, (b"x" * 100,), 1 << 20))
        for byte in raw[:-1]:
            slow.send(bytes([byte]))
        assert _serves(server.address)
        slow.send(raw[-1:])
        assert slow.receive_answer("run").result == b"x" * 100
        slow.close()


def test_a_large_frame_in_pieces_is_served_and_so_are_small_ones_behind_it(echo: Echo) -> None:
    large = b"x" * (3 * LOW_WATER_BYTES + 17)
    with serving(echo, threads_max=1) as server:
        peer = RawPeer(server.address)
        peer.greet()
        raw = b"".join(method_codec("Replay", "run").call(1, (large,), 1 << 30))
        for start in range(0, len(raw), LOW_WATER_BYTES // 3):
            peer.send(raw[start : start + LOW_WATER_BYTES // 3])
            assert _serves(server.address)
        assert peer.receive_answer("run").result == large
        for size in (0, 1, 100, 70_000):
            peer.send_call("run", b"x" * size)
            assert peer.receive_answer("run").result == b"x" * size
        peer.close()


def test_a_large_frame_whose_sender_is_gone_closes_its_connection(echo: Echo) -> None:
    with serving(echo, threads_max=1) as server:
        peer = RawPeer(server.address)
        peer.greet()
        raw = b"".join(method_codec("Replay", "run").call(1, (b"x" * LOW_WATER_BYTES,), 1 << 30))
        peer.send(raw[:1000])
        assert _serves(server.address)
        peer.sock.shutdown(socket.SHUT_WR)
        assert peer.is_closed_by_server()
        peer.close()


def test_a_reader_that_does_not_read_its_answer_holds_no_thread(echo: Echo) -> None:
    with serving(echo, threads_max=1, frame_timeout_ms=500) as server:
        lazy = RawPeer(server.address, receive_buffer_bytes=4096)
        lazy.greet()
        lazy.send_call("run", bytes(16 << 20))
        assert _serves(server.address)
        slow = RawPeer(server.address)
        slow.greet()
        slow.send_call("run", bytes(8 << 20))
        assert _serves(server.address)
        assert slow.receive_answer("run").result == bytes(8 << 20)
        with pytest.raises(ConnectionResetError):
            _wait_until_closed(lazy)
        for peer in (lazy, slow):
            peer.close()


def _wait_until_closed(peer: RawPeer) -> None:
    never = threading.Event()
    for _ in range(300):
        try:
            peer.sock.send(b"\x00")
        except (ConnectionResetError, BrokenPipeError):
            raise ConnectionResetError from None
        never.wait(0.05)


def test_frames_sent_ahead_are_answered_in_order(server: RpcServer) -> None:
    eager = RawPeer(server.address)
    eager.greet()
    for number in range(50):
        eager.send_call("run", b"x" * (number * 3000), sequence=number)
    for number in range(50):
        assert eager.receive_answer("run", sequence=number).result == b"x" * (number * 3000)
    eager.close()


def test_connections_beyond_the_bound_are_turned_away_and_let_in_when_others_left(
    echo: Echo, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(echo, connections_max=5) as server:
        inside = [RawPeer(server.address) for _ in range(5)]
        for peer in inside:
            peer.greet()
        for _ in range(10):
            outside = RawPeer(server.address)
            assert outside.is_closed_by_server()
            outside.close()
        assert sum("refused, " in record.message for record in caplog.records) == 10
        for peer in inside:
            peer.send_call("run", b"still here")
            assert peer.receive_answer("run").result == b"still here"
        inside.pop().close()
        assert _eventually(lambda: _admitted(server.address))
        for peer in inside:
            peer.close()


def _admitted(address: str) -> bool:
    try:
        return _serves(address)
    except UnavailableError:
        return False


def _eventually(holds: Callable[[], bool], limit_s: float = 30) -> bool:
    never, started = threading.Event(), time.monotonic()
    while not holds():
        if time.monotonic() > started + limit_s:
            return False
        never.wait(0.01)
    return True


def test_an_idle_connection_is_closed_after_its_time_and_nobody_notices(echo: Echo) -> None:
    def check() -> None:
        with serving(echo, idle_timeout_ms=1_000) as server, pooled() as pool:
            assert pool.replay(server.address).run(b"1") == b"1"
            later = RawPeer(server.address)
            later.greet()
            assert later.is_closed_by_server(), "and before that the pooled connection was"
            later.close()
            assert pool.replay(server.address).run(b"2") == b"2"

    undisturbed(check)


# ---- hello


def test_the_first_call_must_be_hello(server: RpcServer) -> None:
    rude = RawPeer(server.address)
    rude.do_handshake()
    rude.send_call("run", b"x")
    error = rude.receive_answer("run").error
    assert isinstance(error, IncompatibleError)
    assert "hello" in error.message
    assert rude.is_closed_by_server()
    rude.close()


def test_another_protocol_version_is_refused_with_both_versions_named(server: RpcServer) -> None:
    with (
        pooled(Hello(99, "i-east", "east", "tserver")) as pool,
        pytest.raises(IncompatibleError, match=f"{PROTOCOL_VERSION}, not 99"),
    ):
        pool.replay(server.address).warm()


def test_both_sides_know_who_the_other_is(server: RpcServer, echo: Echo) -> None:
    hello = Hello(PROTOCOL_VERSION, "i-east", "east", "tserver")
    with pooled(hello) as pool:
        assert pool.peer_hello(server.address) == SERVER_HELLO
        pool.replay(server.address).run(b"")
    assert echo.last_caller == hello


# ---- errors


@pytest.mark.parametrize("code", sorted(ERRORS_BY_CODE.keys() - {BookkeeperError.code}))
def test_every_error_keeps_its_class_message_and_details(server: RpcServer, echo: Echo, code: str) -> None:
    original = ERRORS_BY_CODE[code]("no such thing: ü", {"high_water": "7", "k": ""})

    def fail(_: bytes) -> bytes:
        raise original

    echo.on_run = fail
    with pooled() as pool, pytest.raises(BookkeeperError) as caught:
        pool.replay(server.address).run(b"")
    assert type(caught.value) is type(original)
    assert (caught.value.message, caught.value.details) == (original.message, original.details)
    if isinstance(caught.value, GapError):
        assert caught.value.high_water == 7


def test_every_error_class_has_a_code_of_its_own() -> None:
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, BookkeeperError)]
    assert set(ERRORS_BY_CODE.values()) == set(classes)
    assert len(ERRORS_BY_CODE) == len(classes)


@pytest.mark.parametrize(("transient", "cls"), [(True, TransientError), (False, PermanentError)])
def test_a_code_of_a_later_version_keeps_its_kind(transient: bool, cls: type) -> None:
    error = from_fault(Fault(transient, "from_the_future", "m", None))
    assert type(error) is cls
    assert error.details == {"code": "from_the_future"}
    assert type(from_fault(Fault(transient, "gap" if not transient else "not_found", "m"))) is cls
    assert type(from_fault(Fault(transient, "error", "m"))) is cls, "an error of neither kind ends the caller's process"


def test_what_a_server_says_of_an_error_is_one_line_and_has_bounds() -> None:
    said = {f"detail {number}": "\x1b[31m" + "y" * 100_000 for number in range(1_000)}
    error = from_fault(Fault(False, "z\n" * 9_000, "no\x1b[2J\n" + "x" * 1_000_000, said))
    texts = [error.message, *error.details, *error.details.values()]
    assert all(text.isprintable() and len(text) < 5_000 for text in texts)
    assert len(error.details) <= 33
    assert error.message.startswith("no\\x1b[2J\\nxxx")


def test_a_failure_nobody_foresaw_is_permanent_and_its_traceback_stays_here(
    server: RpcServer, echo: Echo, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: bytes) -> bytes:
        raise ZeroDivisionError("secret")

    echo.on_run = fail
    with pooled() as pool:
        with pytest.raises(PermanentError) as caught:
            pool.replay(server.address).run(b"")
        assert caught.value.details == {"code": "internal"}
        assert "secret" not in caught.value.message
        assert any(record.exc_info and "failed unexpectedly" in record.message for record in caplog.records)
        echo.on_run = lambda data: data
        assert pool.replay(server.address).run(b"fine") == b"fine"
    assert to_fault(from_fault(internal_fault(ZeroDivisionError(), "x"))).transient_ is False


def test_an_unknown_method_is_refused_as_thrift_does(server: RpcServer) -> None:
    with pooled() as pool:
        with pytest.raises(IncompatibleError, match="no method wal_positions here"):
            pool.call(server.address, "TServer", "wal_positions", "t")
        pool.replay(server.address).warm()


def test_a_call_without_its_arguments_is_refused(server: RpcServer) -> None:
    peer = RawPeer(server.address)
    peer.greet()
    peer.send(struct.pack(">iIi3sib", 16, 0x80010001, 3, b"run", 1, 0))
    error = peer.receive_answer("run").error
    assert isinstance(error, InvalidInputError)
    assert "ranges is missing" in error.message
    peer.close()


def test_an_answer_beyond_the_limit_is_an_error_at_the_caller(echo: Echo) -> None:
    echo.on_run = lambda _: bytes(2 << 20)
    with serving(echo, frame_bytes_max=1 << 20) as server, pooled() as pool:
        with pytest.raises(InvalidInputError, match=r"rpc\.frame_bytes_max"):
            pool.replay(server.address).run(b"")
        echo.on_run = lambda data: data
        assert pool.replay(server.address).run(b"") == b""


def test_a_handler_that_lacks_a_method_is_refused_at_once(echo: Echo) -> None:
    with pytest.raises(InvalidInputError, match="locate"), serving(echo, "Master"):
        pass
    with pytest.raises(InvalidInputError, match="nothing"), serving(echo, concurrency={"nothing": 1}):
        pass
