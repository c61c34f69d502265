"""The strait passes bytes, learns addresses, and does what it is told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.strait import Strait

PATIENCE_S = 30.0


@pytest.fixture
def echo() -> Iterator[str]:
    """Answers each message with its own address behind it."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{listener.getsockname()[1]}"

    def serve(connected: socket.socket) -> None:
        with connected:
            try:
                while data := connected.recv(100):
                    connected.sendall(data + address.encode())
            except ConnectionError:
                return

    def accept() -> None:
        while True:
            try:
                connected, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connected,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield address
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def connect(address: str) -> socket.socket:
    host, _, port = address.partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def ask(connected: socket.socket, text: bytes) -> bytes:
    connected.sendall(text)
    return connected.recv(100)


def test_what_an_answer_names_is_reached_through_the_strait(echo: str) -> None:
    with Strait() as strait:
        host, _, _ = strait.address(echo).partition(":")
        elsewhere = socket.create_server(("127.0.0.1", 0))
        with connect(strait.address(echo)) as near:
            port = elsewhere.getsockname()[1]
            assert ask(near, b"127.0.0.1:%d " % port) == b"127.0.0.1:%d " % port + echo.encode()
        with connect(f"{host}:{port}"), elsewhere, elsewhere.accept()[0]:
            assert strait.passing["BOOKKEEPER_TEST_STRAITS"] == f"127.0.0.1={host}"


def test_a_cut_holds_everything_up_and_loses_nothing(echo: str) -> None:
    with Strait() as strait, connect(strait.address(echo)) as near:
        assert ask(near, b"a").startswith(b"a")
        strait.cut()
        near.settimeout(0.2)
        near.sendall(b"b")
        with pytest.raises(TimeoutError):
            near.recv(100)
        strait.mend()
        near.settimeout(PATIENCE_S)
        assert near.recv(100).startswith(b"b")


def test_a_reset_breaks_connections_and_new_ones_work(echo: str) -> None:
    with Strait() as strait, connect(strait.address(echo)) as near:
        assert ask(near, b"a").startswith(b"a")
        strait.reset()
        with pytest.raises(ConnectionResetError):
            near.recv(100)
        with connect(strait.address(echo)) as again:
            assert ask(again, b"b").startswith(b"b")


def test_a_delay_delays(echo: str) -> None:
    with Strait() as strait, connect(strait.address(echo)) as near:
        strait.delay(50)
        assert ask(near, b"a").startswith(b"a")
