"""A relay between a caller and a server: it passes their handshake on, then a test changes frames."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Literal

from bookkeeper.rpc.address import parse_address
from bookkeeper.rpc.trust import handshake
from bookkeeper.rpc.trust.handshake import Kind, Message

Side = Literal["client", "server"]

LAST = {"client": Kind.PROOF, "server": Kind.WELCOME}
"""The message that ends the handshake of a side."""


class Relay:
    """Forwards to ``upstream``; a context manager. ``meddle`` gets each whole frame with the side that sent it, and
    returns what goes on in its place. ``tls`` is what it shows to callers and what it takes of the server.
    """

    def __init__(
        self,
        upstream: str,
        meddle: Callable[[Side, bytes], bytes] = lambda _, frame: frame,
        tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
    ) -> None:
        self._upstream = parse_address(upstream)
        self._meddle = meddle
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.said: list[tuple[Side, Message]] = []

    def __enter__(self) -> Relay:
        threading.Thread(target=self._accept, name="relay", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            _shut(each)

    @property
    def offers(self) -> list[str]:
        """The ids of the secrets that callers offered."""
        greetings = [message for side, message in self.said if side == "client" and message.kind is Kind.GREETING]
        return [offer.hex() for message in greetings for offer in handshake.read_greeting(message).offers]

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return  # closed
            server = socket.create_connection((self._upstream.host, self._upstream.port))
            if self._tls is not None:
                shown, taken = self._tls
                caller = shown.wrap_socket(caller, server_side=True)
                server = taken.wrap_socket(server, server_hostname=self._upstream.host)
            self._open += [caller, server]
            ways: tuple[tuple[Side, socket.socket, socket.socket], ...]
            ways = (("client", caller, server), ("server", server, caller))
            for way in ways:
                threading.Thread(target=self._pass_on, args=way, daemon=True).start()

    def _pass_on(self, side: Side, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            over = False
            while not over:
                message = _hear_handshake(source)
                self.said.append((side, message))
                sink.sendall(message.raw)
                over = message.kind is LAST[side]
            while True:
                head = _exactly(source, 4)
                frame = head + _exactly(source, struct.unpack(">i", head)[0])
                sink.sendall(self._meddle(side, frame))
        _shut(source)
        _shut(sink)


def _hear_handshake(source: socket.socket) -> Message:
    head = _exactly(source, handshake.HEAD.size)
    version, kind, size = handshake.unpack_head(head)
    body = _exactly(source, size)
    return Message(version, kind, body, head + body)


def _exactly(source: socket.socket, size: int) -> bytes:
    raw = b""
    while len(raw) < size:
        more = source.recv(size - len(raw))
        if not more:
            raise ConnectionResetError
        raw += more
    return raw


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
