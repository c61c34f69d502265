"""Strangers at the monitor's port, on real sockets: whatever they do, a page comes, and they cost a few sockets."""

from __future__ import annotations

import http.client
import logging
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.config import MonitorSettings
from bookkeeper.monitor import connection_limiter
from bookkeeper.monitor.connection_limiter import PLACES_MAX, Phase, Visit, who_makes_room
from bookkeeper.monitor.web_server import Monitor
from bookkeeper.security.tls import TlsFiles
from tests.support.certificates import Authority
from tests.support.faults import fault
from tests.support.monitor_source import LEADING, WHOEVER, SetSource

LIMIT_S = 60.0
CLOCK = SystemClock()
WHOLE = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


@contextmanager
def serving(tls: TlsFiles | None = None) -> Iterator[Monitor]:
    monitor = Monitor(MonitorSettings(), SetSource(LEADING), CLOCK, WHOEVER, 0, tls)
    monitor.start()
    try:
        yield monitor
    finally:
        monitor.stop()


def port_of(monitor: Monitor) -> int:
    return int(monitor.url.rstrip("/").rpartition(":")[2])


def come(monitor: Monitor, says: bytes = b"") -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port_of(monitor)), timeout=LIMIT_S)
    sock.sendall(says)
    return sock


def is_served(monitor: Monitor, context: ssl.SSLContext | None = None) -> bool:
    """Whether somebody new gets a page."""
    where = ("127.0.0.1", port_of(monitor))
    if context is None:
        visitor = http.client.HTTPConnection(*where, timeout=LIMIT_S)
    else:
        visitor = http.client.HTTPSConnection(*where, timeout=LIMIT_S, context=context)
    try:
        visitor.request("GET", "/")
        answer = visitor.getresponse()
        return answer.status == 200 and b"</html>" in answer.read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        visitor.close()


def is_shown_out(sock: socket.socket, limit_s: float = LIMIT_S, trickle: bytes = b"") -> bool:
    """Whether the connection ends, whatever is answered before; a byte of ``trickle`` goes out now and then until it
    does.
    """
    never, deadline_ns = threading.Event(), CLOCK.boot_ns() + int(limit_s * 1e9)
    rest = iter(trickle)
    try:
        while CLOCK.boot_ns() < deadline_ns:
            ready, _, _ = select.select([sock], [], [], 0)
            if ready and not sock.recv(65_536):
                return True
            byte = next(rest, None)
            if byte is not None:
                sock.sendall(bytes([byte]))
            CLOCK.wait(never, 20)
    except OSError:
        return True
    return False


# ---- those who take their time


SLOW = {
    "says nothing": (b"", b""),
    "half a head": (b"GET / HTTP/1.1\r\nHost: x\r\n", b""),
    "a byte now and then": (b"GET / HTTP/1.1\r\nX: ", b"x" * 100_000),
    "half a body": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n", b""),
    "a body byte by byte": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n", b"x" * 100_000),
    "a second request byte by byte": (WHOLE, b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000),
}


def check_shown_out(monitor: Monitor, says: bytes, trickle: bytes, limit_s: float = LIMIT_S) -> None:
    """The law: a request that does not come ends its connection."""
    with come(monitor, says) as sock:
        assert is_shown_out(sock, limit_s, trickle), "a request that does not come keeps its connection"


@pytest.mark.parametrize("how", SLOW)
def test_who_takes_its_time_to_ask_is_shown_out(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limiter, "REQUEST_S", 0.2)
    with serving() as monitor:
        check_shown_out(monitor, *SLOW[how])
        monkeypatch.setattr(connection_limiter, "REQUEST_S", LIMIT_S)
        assert is_served(monitor)


def test_without_that_rule_a_stranger_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limiter, "REQUEST_S", 0.2)
    with (
        serving() as monitor,
        fault("strangers-take-their-time"),
        pytest.raises(AssertionError, match="a request that does not come keeps its connection"),
    ):
        check_shown_out(monitor, *SLOW["a byte now and then"], limit_s=2)


def test_who_has_its_answer_and_says_nothing_more_is_shown_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limiter, "IDLE_S", 0.2)
    with serving() as monitor:
        check_shown_out(monitor, WHOLE, b"")


def test_who_does_not_take_its_answer_is_shown_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_limiter, "ANSWER_S", 0.5)
    monkeypatch.setattr(connection_limiter, "IDLE_S", 3_600)
    with serving() as monitor, come(monitor) as sock:
        said = threading.Event()
        deadline_ns = CLOCK.boot_ns() + int(LIMIT_S * 1e9)
        sock.settimeout(0.1)
        try:
            while "does not take its answer" not in caplog.text and CLOCK.boot_ns() < deadline_ns:
                try:
                    sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
                except TimeoutError:
                    CLOCK.wait(said, 10)
        except OSError:
            pass
        assert "does not take its answer" in caplog.text


def test_requests_one_behind_the_other_and_all_at_once_are_answered() -> None:
    with serving() as monitor, come(monitor, WHOLE) as sock:
        assert b"200 OK" in sock.recv(65_536)
        sock.sendall(WHOLE * 3)
        told = b""
        while told.count(b"200 OK") < 3:
            told += sock.recv(65_536) or pytest.fail("closed")


def test_garbage_is_told_so_and_a_flood_of_it_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as monitor:
        for _ in range(20):
            with come(monitor, b"\x16\x03\x01 is no HTTP\r\n\r\n") as sock:
                assert sock.recv(65_536).startswith(b"HTTP/1.1 400 ")
                assert is_shown_out(sock)
        assert is_served(monitor)
    assert len([line for line in caplog.messages if "Invalid HTTP request" in line]) == 1


# ---- more than there are places


def check_makes_room(monitor: Monitor, says: bytes, context: ssl.SSLContext | None = None) -> None:
    """The law: however many take places and need none, somebody new gets its page, and the first of them lost its."""
    with ExitStack() as open_sockets:
        strangers = [open_sockets.enter_context(come(monitor, says)) for _ in range(PLACES_MAX + 6)]
        assert is_served(monitor, context), "silent strangers keep a visitor out"
        assert is_shown_out(strangers[0])


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Monitor]]:
    """A monitor that gives everybody time without end."""
    for limit in ("REQUEST_S", "ANSWER_S", "IDLE_S"):
        monkeypatch.setattr(connection_limiter, limit, 3_600)
    with ExitStack() as stack:
        yield lambda: stack.enter_context(serving())


@pytest.mark.parametrize("says", [b"", b"GET / HTTP/1.1\r\n", WHOLE], ids=["nothing", "half a head", "idle"])
def test_who_needs_no_place_makes_room(patient: Callable[[], Monitor], says: bytes) -> None:
    check_makes_room(patient(), says)


def test_without_that_rule_silent_strangers_keep_everybody_out(patient: Callable[[], Monitor]) -> None:
    with (
        fault("silent-strangers-keep-their-places"),
        pytest.raises(AssertionError, match="silent strangers keep a visitor out"),
    ):
        check_makes_room(patient(), b"")


def test_who_does_not_even_begin_with_tls_makes_room(
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


# ---- who it is


def test_who_waits_for_longest_makes_room_and_nobody_who_is_being_answered() -> None:
    visits = [Visit(phase.value, lambda: None, phase) for phase in (Phase.ANSWERED, Phase.IDLE, Phase.ASKING)]
    answered, idle, asking = visits
    assert who_makes_room(visits) is idle
    assert who_makes_room([answered, asking, idle]) is asking
    assert who_makes_room([answered]) is None
    assert who_makes_room([]) is None
