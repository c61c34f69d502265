"""A small real server for tests of calls, and raw sockets to misbehave with."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bookkeeper.config.sections import RpcSettings
from bookkeeper.rpc.address import parse_address
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.dispatch import ServedService, caller
from bookkeeper.rpc.frames.envelope import method_codec
from bookkeeper.rpc.frames.frame_tags import FrameTags
from bookkeeper.rpc.rpc_pool import RpcPool, plain_hello
from bookkeeper.rpc.rpc_server import Binding, RpcServer
from bookkeeper.rpc.trust import handshake
from bookkeeper.rpc.trust.handshake import Challenge, Kind, Message
from bookkeeper.security.access import Credentials, Entrance
from bookkeeper.security.secret import Secret

SERVER_HELLO = Hello(PROTOCOL_VERSION, "i-west", "west", "replay")


class Echo:
    """Handler of the Replay service: ``run`` answers its argument, or does what a test put into ``on_run``."""

    def __init__(self) -> None:
        self.on_run: Callable[[bytes], bytes] = lambda data: data
        self.calls = 0
        self.last_caller: Hello | None = None

    def status(self) -> Mapping[str, str]:
        return {"calls": str(self.calls)}

    def warm(self) -> None:
        self.calls += 1

    def follow(self, tserver: str, cluster: str, run: str) -> None:
        """See the contract."""

    def note(self, ranges: bytes, results: bytes) -> None:
        """See the contract."""

    def run(self, ranges: bytes) -> bytes:
        found = caller()
        self.last_caller = None if found is None else found.hello
        return self.on_run(ranges)


@contextmanager
def serving(
    handler: object,
    service: str = "Replay",
    *,
    port: int = 0,
    concurrency: Mapping[str, int] | None = None,
    entrance: Entrance | None = None,
    **settings: Any,
) -> Iterator[RpcServer]:
    server = RpcServer(
        ServedService(service, handler, concurrency or {}),
        SERVER_HELLO,
        RpcSettings(**settings),
        binding=Binding(port=port),
        entrance=entrance,
    )
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def pooled(
    hello: Hello | None = None, credentials: Credentials | None = None, silent_ms: int | None = None, **settings: Any
) -> Iterator[RpcPool]:
    pool = RpcPool(hello or plain_hello(), RpcSettings(**settings), None, credentials, silent_ms)
    try:
        yield pool
    finally:
        pool.close()


def greeting(
    *offers: Secret, target: str = "", role: str = "client", instance_id: str = "", nonce: bytes | None = None
) -> bytes:
    """The first message of a caller with these secrets."""
    ids = [bytes.fromhex(offer.id) for offer in offers]
    return handshake.pack_greeting(nonce or handshake.new_nonce(), role, instance_id, target, ids)


def transcript_after(said: bytes, challenge: Challenge, channel: bytes = b"") -> bytes:
    """The bytes that proofs and keys sign when ``said`` was answered with this challenge."""
    return handshake.transcript_of(channel, [said], challenge.nonce, challenge.chosen)


class RawPeer:
    """A bare socket to a server. ``tags`` is None until :meth:`authenticate`."""

    def __init__(self, address: str, receive_buffer_bytes: int | None = None) -> None:
        target = parse_address(address)
        self.sock = socket.socket()
        if receive_buffer_bytes is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.sock.settimeout(30)
        self.sock.connect((target.host, target.port))
        self.tags: FrameTags | None = None

    def send(self, raw: bytes) -> None:
        self.sock.sendall(raw)

    def send_call(self, method: str, *arguments: Any, service: str = "Replay", sequence: int = 1) -> None:
        self.send(self.call(method, *arguments, service=service, sequence=sequence))

    def call(self, method: str, *arguments: Any, service: str = "Replay", sequence: int = 1) -> bytes:
        """The next frame of this peer."""
        frame = method_codec(service, method).call(sequence, arguments, 1 << 30)
        return b"".join(frame if self.tags is None else self.tags.tagged(frame))

    def do_handshake(self) -> None:
        """With a server that asks for no secret."""
        self.send(greeting())
        assert handshake.read_challenge(self.receive_message()).is_open

    def authenticate(self, secret: Secret) -> None:
        """With this secret, through a server that speaks no TLS."""
        said = greeting(secret, target=secret.instance_id)
        self.send(said)
        transcript = transcript_after(said, handshake.read_challenge(self.receive_message()))
        self.send(handshake.pack(Kind.PROOF, handshake.client_proof(secret.key, transcript)))
        assert self.receive_message().kind is Kind.WELCOME
        keys = handshake.client_frames_key(secret.key, transcript), handshake.server_frames_key(secret.key, transcript)
        self.tags = FrameTags(*keys)

    def receive_message(self) -> Message:
        head = self._exactly(handshake.HEAD.size)
        version, kind, size = handshake.unpack_head(head)
        body = self._exactly(size)
        return Message(version, kind, body, head + body)

    def greet(self) -> Any:
        self.do_handshake()
        self.send_call("hello", plain_hello())
        return self.receive_answer("hello").result

    def receive_answer(self, method: str, service: str = "Replay", sequence: int = 1) -> Any:
        (size,) = struct.unpack(">i", self._exactly(4))
        frame = memoryview(self._exactly(size))
        payload = frame if self.tags is None else self.tags.check(frame)
        return method_codec(service, method).read_answer(payload, sequence)

    def _exactly(self, size: int) -> bytes:
        raw, done = bytearray(size), 0
        while done < size:
            count = self.sock.recv_into(memoryview(raw)[done:])
            if not count:
                raise ConnectionResetError
            done += count
        return bytes(raw)

    def read_all(self) -> bytes:
        """All bytes that the server sends until it closes."""
        raw = b""
        while more := self.sock.recv(4096):
            raw += more
        return raw

    def is_closed_by_server(self) -> bool:
        """Wait until the server closes the connection; ignore its bytes."""
        try:
            while self.sock.recv(4096):
                pass
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self.sock.close()


class Gate:
    """A call waits in here until the test opens it."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()

    def __call__(self, data: bytes) -> bytes:
        self.entered.release()
        assert self.opened.wait(30)
        return data

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self.entered.acquire(timeout=30)
