"""Slow and silent clients at the monitor's port, on real sockets: a new client gets its page; sockets are bounded."""

from __future__ import annotations

import http.client
import logging
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.config.sections import MonitorSettings
from bookkeeper.monitor import connection_limiter
from bookkeeper.monitor.connection_limiter import CONNECTIONS_MAX, LimitedConnection, Phase, surplus_connection
from bookkeeper.monitor.web_server import Monitor
from bookkeeper.security.tls import TlsFiles
from tests.support.certificates import Authority
from tests.support.faults import fault
from tests.support.monitor_source import LEADING, NO_TOKEN, SetSource

LIMIT_S = 60.0
CLOCK = SystemClock()
REQUEST = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


@contextmanager
def serving(tls: TlsFiles | None = None) -> Iterator[Monitor]:
    monitor = Monitor(MonitorSettings(), SetSource(LEADING), CLOCK, NO_TOKEN, 0, tls)
    monitor.start()
    try:
        yield monitor
    finally:
        monitor.stop()


def port_of(monitor: Monitor) -> int:
    return int(monitor.url.rstrip("/").rpartition(":")[2])


def connect(monitor: Monitor, first_bytes: bytes = b"") -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port_of(monitor)), timeout=LIMIT_S)
    sock.sendall(first_bytes)
    return sock


def is_served(monitor: Monitor, context: ssl.SSLContext | None = None) -> bool:
    """Whether a new client gets a page."""
    address = ("127.0.0.1", port_of(monitor))
    if context is None:
        client = http.client.HTTPConnection(*address, timeout=LIMIT_S)
    else:
        client = http.client.HTTPSConnection(*address, timeout=LIMIT_S, context=context)
    try:
        client.request("GET", "/")
        answer = client.getresponse()
        return answer.status == 200 and b"</html>" in answer.read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        client.close()


def is_closed(sock: socket.socket, limit_s: float = LIMIT_S, trickle: bytes = b"") -> bool:
    """Whether the server closes the connection, after any answers. Until then the client sends a byte of
    ``trickle`` now and then.
    """
    never, deadline_ns = threading.Event(), CLOCK.boot_ns() + int(limit_s * 1e9)
    remaining = iter(trickle)
    try:
        while CLOCK.boot_ns() < deadline_ns:
            ready, _, _ = select.select([sock], [], [], 0)
            if ready and not sock.recv(65_536):
                return True
            byte = next(remaining, None)
            if byte is not None:
                sock.sendall(bytes([byte]))
            CLOCK.wait(never, 20)
    except OSError:
        return True
    return False


# ---- slow clients


SLOW = {
    "nothing": (b"", b""),
    "half a head": (b"GET / HTTP/1.1\r\nHost: x\r\n", b""),
    "a byte now and then": (b"GET / HTTP/1.1\r\nX: ", b"x" * 100_000),
    "half a body": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n", b""),
    "a body byte by byte": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n", b"x" * 100_000),
    "a second request byte by byte": (REQUEST, b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000),
}


def check_is_closed(monitor: Monitor, first_bytes: bytes, trickle: bytes, limit_s: float = LIMIT_S) -> None:
    """The law: the server closes a connection without a complete request in time."""
    with connect(monitor, first_bytes) as sock:
        assert is_closed(sock, limit_s, trickle), "a slow request keeps its connection"


@pytest.mark.parametrize("kind", SLOW)
def test_a_slow_request_loses_its_connection(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limiter, "REQUEST_S", 0.2)
    with serving() as monitor:
        check_is_closed(monitor, *SLOW[kind])
        monkeypatch.setattr(connection_limiter, "REQUEST_S", LIMIT_S)
        assert is_served(monitor)


def test_without_the_time_limit_a_slow_client_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limiter, "REQUEST_S", 0.2)
    with (
        serving() as monitor,
        fault("slow-requests-keep-their-slots"),
        pytest.raises(AssertionError, match="a slow request keeps its connection"),
    ):
        check_is_closed(monitor, *SLOW["a byte now and then"], limit_s=2)


def test_an_idle_client_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limiter, "IDLE_S", 0.2)
    with serving() as monitor:
        check_is_closed(monitor, REQUEST, b"")


def test_a_client_that_does_not_read_its_answer_loses_its_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_limiter, "ANSWER_S", 0.5)
    monkeypatch.setattr(connection_limiter, "IDLE_S", 3_600)
    with serving() as monitor, connect(monitor) as sock:
        never = threading.Event()
        deadline_ns = CLOCK.boot_ns() + int(LIMIT_S * 1e9)
        sock.settimeout(0.1)
        try:
            while "read its answer" not in caplog.text and CLOCK.boot_ns() < deadline_ns:
                try:
                    sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
                except TimeoutError:
                    CLOCK.wait(never, 10)
        except OSError:
            pass
        assert "read its answer" in caplog.text


def test_sequential_and_pipelined_requests_are_answered() -> None:
    with serving() as monitor, connect(monitor, REQUEST) as sock:
        assert b"200 OK" in sock.recv(65_536)
        sock.sendall(REQUEST * 3)
        answers = b""
        while answers.count(b"200 OK") < 3:
            answers += sock.recv(65_536) or pytest.fail("closed")


def test_garbage_gets_an_error_and_a_flood_of_it_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as monitor:
        for _ in range(20):
            with connect(monitor, b"\x16\x03\x01 is no HTTP\r\n\r\n") as sock:
                assert sock.recv(65_536).startswith(b"HTTP/1.1 400 ")
                assert is_closed(sock)
        assert is_served(monitor)
    assert len([line for line in caplog.messages if "Invalid HTTP request" in line]) == 1


# ---- more connections than slots


def check_makes_room(monitor: Monitor, first_bytes: bytes, context: ssl.SSLContext | None = None) -> None:
    """The law: with all slots in use by silent clients, a new client gets its page and the oldest closes."""
    with ExitStack() as open_sockets:
        silent = [open_sockets.enter_context(connect(monitor, first_bytes)) for _ in range(CONNECTIONS_MAX + 6)]
        assert is_served(monitor, context), "silent clients keep a client out"
        assert is_closed(silent[0])


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Monitor]]:
    """A monitor without time limits."""
    for limit in ("REQUEST_S", "ANSWER_S", "IDLE_S"):
        monkeypatch.setattr(connection_limiter, limit, 3_600)
    with ExitStack() as stack:
        yield lambda: stack.enter_context(serving())


@pytest.mark.parametrize("first_bytes", [b"", b"GET / HTTP/1.1\r\n", REQUEST], ids=["nothing", "half a head", "idle"])
def test_silent_and_idle_clients_make_room(patient: Callable[[], Monitor], first_bytes: bytes) -> None:
    check_makes_room(patient(), first_bytes)


def test_without_that_rule_silent_clients_keep_all_others_out(patient: Callable[[], Monitor]) -> None:
    with (
        fault("silent-clients-keep-their-slots"),
        pytest.raises(AssertionError, match="silent clients keep a client out"),
    ):
        check_makes_room(patient(), b"")


def test_a_client_that_does_not_begin_its_tls_handshake_makes_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_limiter, "REQUEST_S", 3_600)
    caplog.set_level(logging.INFO)
    authority = Authority.make(tmp_path / "ca")
    files = authority.sign("west")
    with serving(files) as monitor:
        check_makes_room(monitor, b"", ssl.create_default_context(cafile=str(files.ca)))
    assert len([line for line in caplog.messages if "waits for longest" in line]) == 1, (
        "one line for many of one address"
    )


# ---- the decision


@dataclass
class Connection:
    phase: Phase


def test_the_oldest_connection_without_a_request_closes() -> None:
    answer, idle, request = (Connection(phase) for phase in (Phase.ANSWER, Phase.IDLE, Phase.REQUEST))
    assert surplus(answer, idle, request) is idle
    assert surplus(answer, request, idle) is request
    assert surplus(answer) is None
    assert surplus() is None


def surplus(*connections: Connection) -> object:
    return surplus_connection(cast("tuple[LimitedConnection, ...]", connections))
