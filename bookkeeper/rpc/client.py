"""Calls to other processes: pooled connections, each greeted once, thrown away after any doubt.

Arrives: an address, a method, arguments. Leaves: the result, or the error that the other side raised, or
UnavailableError naming the address and the reason. A call whose answer did not come may have been carried out.
A connection is used by one call at a time; whatever goes wrong on it closes it, and the idle ones of that address too.
"""

from __future__ import annotations

import functools
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config import RpcSettings
from bookkeeper.errors import CorruptionError, IncompatibleError, InvalidInputError, UnavailableError
from bookkeeper.rpc.address import parse_address
from bookkeeper.rpc.envelope import FRAME_HEADER, Answered, MethodCodec, method_codec
from bookkeeper.rpc.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.services import Master, Replay, TServer
from bookkeeper.rpc.wire import Buffers

IDLE_CONNECTIONS_MAX = 16
"""Idle connections kept for one address; more are closed after use."""

UNREACHED = "unreached"
"""Detail of an UnavailableError: the address to which there was no connection, so that nothing of the call left."""

_READ_BYTES = 64 * 1024


class _Channel:
    """One connection. Not thread-safe."""

    def __init__(self, address: str, settings: RpcSettings, clock: Clock) -> None:
        target = parse_address(address)
        self._clock = clock
        self._frame_bytes_max = settings.frame_bytes_max
        self._sequence = 0
        self._sock = socket.create_connection((target.host, target.port), settings.connect_timeout_ms / 1000)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def call(self, codec: MethodCodec, arguments: tuple[Any, ...], timeout_ms: float) -> Answered:
        """One call; raises InvalidInputError before anything is sent, OSError (a timeout too), or CorruptionError when
        what came is no answer.
        """
        self._sequence = (self._sequence + 1) & 0x7FFFFFFF
        buffers = codec.call(self._sequence, arguments, self._frame_bytes_max)
        deadline_ns = self._clock.boot_ns() + int(timeout_ms * 1e6)
        self._send(buffers, deadline_ns)
        if codec.oneway:
            return Answered(None, None)
        return codec.read_answer(self._receive(deadline_ns), self._sequence)

    def _limit(self, deadline_ns: int) -> None:
        left_ns = deadline_ns - self._clock.boot_ns()
        if left_ns <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left_ns / 1e9)

    def _send(self, buffers: Buffers, deadline_ns: int) -> None:
        left = [memoryview(buffer) for buffer in buffers]
        while left:
            self._limit(deadline_ns)
            sent = self._sock.sendmsg(left)
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if sent:
                left[0] = left[0][sent:]

    def _receive(self, deadline_ns: int) -> memoryview:
        self._limit(deadline_ns)
        first = self._sock.recv(_READ_BYTES)
        while len(first) < FRAME_HEADER.size:
            first += self._more(first, deadline_ns)
        (size,) = FRAME_HEADER.unpack_from(first)
        if not 0 < size <= self._frame_bytes_max or len(first) > FRAME_HEADER.size + size:
            raise CorruptionError(f"a frame of {size} bytes was announced, the limit is {self._frame_bytes_max}")
        if len(first) == FRAME_HEADER.size + size:
            return memoryview(first)[FRAME_HEADER.size :]
        frame = memoryview(bytearray(size))
        at = len(first) - FRAME_HEADER.size
        frame[:at] = first[FRAME_HEADER.size :]
        while at < size:
            self._limit(deadline_ns)
            count = self._sock.recv_into(frame[at:])
            if count == 0:
                raise ConnectionResetError("closed in the middle of an answer")
            at += count
        return frame

    def _more(self, first: bytes, deadline_ns: int) -> bytes:
        self._limit(deadline_ns)
        more = self._sock.recv(_READ_BYTES) if first else b""
        if not more:
            raise ConnectionResetError("closed without an answer")
        return more

    def is_stale(self) -> bool:
        """Tell whether something arrived (an end, usually) while nothing was asked."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


class RpcPool:
    """Connections to any number of servers; thread-safe."""

    def __init__(self, hello: Hello, settings: RpcSettings, clock: Clock | None = None) -> None:
        self._hello = hello
        self._settings = settings
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._idle: dict[str, deque[_Channel]] = {}
        self._hellos: dict[str, Hello] = {}
        self._closed = False

    def call(self, address: str, service: str, method: str, *arguments: Any, timeout_ms: float | None = None) -> Any:
        """Call a method; raises what the other side raised, UnavailableError, InvalidInputError, IncompatibleError."""
        codec = method_codec(service, method)
        limit_ms = self._settings.timeout_ms if timeout_ms is None else timeout_ms
        channel = self._take(address, limit_ms)
        try:
            answered = channel.call(codec, arguments, limit_ms)
        except InvalidInputError:
            self._put_back(address, channel)  # nothing was sent
            raise
        except (OSError, CorruptionError) as error:
            channel.close()
            self._evict(address)
            raise UnavailableError(f"{address} did not answer {method}: {_reason(error)}") from error
        except BaseException:
            channel.close()
            raise
        self._put_back(address, channel)
        if answered.error is not None:
            raise answered.error
        return answered.result

    def peer_hello(self, address: str) -> Hello:
        """Who answers at an address, as said when last connected; connects when that never happened."""
        if address not in self._hellos:
            self._put_back(address, self._connect(address, self._settings.timeout_ms))
        return self._hellos[address]

    def master(self, address: str, timeout_ms: float | None = None) -> Master:
        """The master there; its methods are :meth:`call` with this timeout."""
        return cast(Master, _Stub(self, address, "Master", timeout_ms))

    def tserver(self, address: str, timeout_ms: float | None = None) -> TServer:
        """The tserver there."""
        return cast(TServer, _Stub(self, address, "TServer", timeout_ms))

    def replay(self, address: str, timeout_ms: float | None = None) -> Replay:
        """The replay process there."""
        return cast(Replay, _Stub(self, address, "Replay", timeout_ms))

    def close(self) -> None:
        """Close every idle connection, and those in use after their call."""
        with self._lock:
            self._closed = True
            channels = [channel for idle in self._idle.values() for channel in idle]
            self._idle.clear()
        for channel in channels:
            channel.close()

    def _take(self, address: str, timeout_ms: float) -> _Channel:
        while True:
            with self._lock:
                idle = self._idle.get(address)
                channel = idle.pop() if idle else None
            if channel is None:
                return self._connect(address, timeout_ms)
            if not channel.is_stale():
                return channel
            channel.close()

    def _connect(self, address: str, timeout_ms: float) -> _Channel:
        try:
            channel = _Channel(address, self._settings, self._clock)
        except OSError as error:
            raise UnavailableError(f"{address} can't be reached: {_reason(error)}", {UNREACHED: address}) from error
        try:
            answered = channel.call(_HELLO, (self._hello,), min(timeout_ms, self._settings.frame_timeout_ms))
        except OSError as error:
            channel.close()
            reason = f"{address} did not answer hello: {_reason(error)}"
            raise UnavailableError(reason, {UNREACHED: address}) from error
        except CorruptionError as error:
            channel.close()
            raise IncompatibleError(f"{address} does not speak this protocol: {error}") from error
        if answered.error is not None:
            channel.close()
            raise answered.error
        with self._lock:
            self._hellos[address] = answered.result
        return channel

    def _put_back(self, address: str, channel: _Channel) -> None:
        with self._lock:
            idle = self._idle.setdefault(address, deque())
            keep = not self._closed and len(idle) < IDLE_CONNECTIONS_MAX
            if keep:
                idle.append(channel)
        if not keep:
            channel.close()

    def _evict(self, address: str) -> None:
        with self._lock:
            channels = self._idle.pop(address, deque())
            self._hellos.pop(address, None)
        for channel in channels:
            channel.close()


class _Stub:
    """A service at an address: an attribute is a method of the contract."""

    def __init__(self, pool: RpcPool, address: str, service: str, timeout_ms: float | None) -> None:
        self._pool = pool
        self._address = address
        self._service = service
        self._timeout_ms = timeout_ms

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return functools.partial(self._pool.call, self._address, self._service, method, timeout_ms=self._timeout_ms)


_HELLO = method_codec("Master", "hello")


def plain_hello(role: str = "client") -> Hello:
    """The greeting of a process that belongs to no cluster."""
    return Hello(PROTOCOL_VERSION, "", "", role)


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
