"""Calls to other processes over pooled connections, each with one handshake and one ``hello``.

A call returns the result or raises the server's error, or UnavailableError with the address and the reason. A call
without an answer may have run at the server. One call, or one pipeline of calls, uses a connection at a time; any
failure closes the connection and the idle connections to the same address.
"""

from __future__ import annotations

import functools
import logging
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from msgspec.structs import replace

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config.sections import RpcSettings
from bookkeeper.errors import (
    BookkeeperError,
    CorruptionError,
    IncompatibleError,
    InvalidInputError,
    NoAnswerError,
    NotAdmittedError,
    OtherInstanceError,
    UnavailableError,
)
from bookkeeper.rpc.channel import Channel, Look
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.contract.services import Master, Replay, TServer
from bookkeeper.rpc.frames.envelope import MethodCodec, method_codec
from bookkeeper.rpc.frames.transport import tls_failure
from bookkeeper.security.access import Credentials
from bookkeeper.security.secret import Secret

LOG = logging.getLogger(__name__)

IDLE_CONNECTIONS_MAX = 16
"""Most idle connections to one address; the pool closes more of them after use."""

LOOK_MS = 1_000
"""Time without an answer until a caller looks whether the server answers other connections."""

SILENT_MS = 2_000
"""A process that does not answer a new connection in this time is silent, ms: a busy one answers hello. For callers
that do not wait for all of the time of a call at a process that stands still, or at a machine without power.
"""

UNREACHED = "unreached"
"""Detail of an error: the address to which there was no connection, so that no byte of the call was sent."""

SILENT = "silent"
"""Detail of an error: the address that answers nobody, as far as this side knows; a call may take all of its time at a
server that answers others.
"""


class SilentServerError(TimeoutError):
    """The server does not answer hello on another connection either."""


class RpcPool:
    """Connections to any number of servers; thread-safe."""

    def __init__(
        self,
        hello: Hello,
        settings: RpcSettings,
        clock: Clock | None = None,
        credentials: Credentials | None = None,
        silent_ms: int | None = None,
    ) -> None:
        """``credentials`` None: only servers that ask for no secret answer calls. ``silent_ms``: a server that does not
        answer hello in this time is silent, and the calls to it end, whatever their own time is; None: they wait.
        """
        self._hello = hello
        self._credentials = credentials or Credentials()
        self._settings = settings
        self._silent_ms = silent_ms
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._idle: dict[str, deque[Channel]] = {}
        self._hellos: dict[str, Hello] = {}
        self._instance_pools: dict[str, RpcPool] = {}
        self._closed = False

    def call(self, address: str, service: str, method: str, *arguments: Any, timeout_ms: float | None = None) -> Any:
        """Call a method; raises the server's error, UnavailableError, InvalidInputError, IncompatibleError."""
        codec = method_codec(service, method)
        limit_ms = self._settings.timeout_ms if timeout_ms is None else timeout_ms
        channel = self._take(address, limit_ms)
        try:
            answered = channel.call(codec, arguments, limit_ms)
        except InvalidInputError:
            self._put_back(address, channel)  # no byte was sent
            raise
        except (OSError, CorruptionError) as error:
            channel.close()
            self._evict(address)
            raise self._failure(_not_answered(address, method, error), address, error) from error
        except BaseException:
            channel.close()
            raise
        self._put_back(address, channel)
        if answered.error is not None:
            raise answered.error
        return answered.result

    @contextmanager
    def pipeline(self, address: str, service: str, method: str) -> Iterator[CallPipeline]:
        """A connection for calls of one method, until the block ends. Raises as :meth:`call`."""
        timeout_ms = self._settings.timeout_ms
        channel = self._take(address, timeout_ms)
        calls = CallPipeline(channel, method_codec(service, method), address, timeout_ms)
        try:
            yield calls
        finally:
            if calls.is_broken:
                self._evict(address)
            if calls.is_broken or channel.unanswered:
                channel.close()
            else:
                self._put_back(address, channel)

    def peer_hello(self, address: str) -> Hello:
        """The hello of the server at an address, from the last connection; connects when there was none."""
        if address not in self._hellos:
            self._put_back(address, self._connect(address, self._settings.timeout_ms))
        return self._hellos[address]

    def disconnect(self, address: str) -> None:
        """Close the idle connections to an address: the next call proves a secret that this side presents now."""
        self._evict(address)

    def of_instance(self, instance_id: str) -> RpcPool:
        """A pool for calls to one instance: it refuses servers of other instances. It has its own connections, and this
        pool closes it.
        """
        with self._lock:
            pool = self._instance_pools.get(instance_id)
            if pool is None:
                credentials = replace(self._credentials, instance_id=instance_id)
                pool = RpcPool(self._hello, self._settings, self._clock, credentials, self._silent_ms)
                self._instance_pools[instance_id] = pool
            return pool

    def master(self, address: str, timeout_ms: float | None = None) -> Master:
        """The master at an address; its methods are :meth:`call` with this timeout."""
        return cast(Master, _Stub(self, address, "Master", timeout_ms))

    def tserver(self, address: str, timeout_ms: float | None = None) -> TServer:
        """The tserver at an address."""
        return cast(TServer, _Stub(self, address, "TServer", timeout_ms))

    def replay(self, address: str, timeout_ms: float | None = None) -> Replay:
        """The replay process at an address."""
        return cast(Replay, _Stub(self, address, "Replay", timeout_ms))

    def close(self) -> None:
        """Close all idle connections now and all others after their call."""
        with self._lock:
            self._closed = True
            channels = [channel for idle in self._idle.values() for channel in idle]
            self._idle.clear()
            instance_pools = list(self._instance_pools.values())
        for channel in channels:
            channel.close()
        for pool in instance_pools:
            pool.close()

    def _take(self, address: str, timeout_ms: float) -> Channel:
        while True:
            with self._lock:
                idle = self._idle.get(address)
                channel = idle.pop() if idle else None
            if channel is None:
                return self._connect(address, timeout_ms)
            if not channel.is_stale():
                return channel
            channel.close()

    def _connect(self, address: str, timeout_ms: float) -> Channel:
        try:
            channel = Channel(address, self._settings, self._clock, self._credentials.tls, timeout_ms)
        except ssl.SSLError as error:
            raise tls_failure(address, error) from error
        except OSError as error:
            text = f"{address} can't be reached: {_reason(error)}"
            raise self._failure(text, address, error, is_reached=False) from error
        hello_ms = min(timeout_ms, self._settings.frame_timeout_ms, self._silent_ms or timeout_ms)
        try:
            hello = self._introduce(channel, hello_ms)
        except ssl.SSLError as error:  # a missing certificate shows with the first answer
            channel.close()
            raise tls_failure(address, error) from error
        except OSError as error:
            channel.close()
            text = f"{address} did not answer hello: {_reason(error)}"
            raise self._failure(text, address, error, is_reached=False) from error
        except CorruptionError as error:
            channel.close()
            raise IncompatibleError(f"{address} does not speak this protocol: {error}", {UNREACHED: address}) from error
        except BookkeeperError as error:
            channel.close()
            raise self._with_address(address, error) from error
        with self._lock:
            self._hellos[address] = hello
        if self._silent_ms is not None:
            check = functools.partial(self._check_answers, address, self._silent_ms)
            channel.look_while_waiting(Look(LOOK_MS, LOOK_MS + self._silent_ms, check))
        return channel

    def _failure(self, text: str, address: str, error: Exception, is_reached: bool = True) -> UnavailableError:
        is_late = self._silent_ms is not None and isinstance(error, TimeoutError)
        is_silent = is_late and (not is_reached or isinstance(error, SilentServerError))
        details = {UNREACHED: not is_reached, SILENT: is_silent}
        kind = NoAnswerError if is_late else UnavailableError
        return kind(text, {name: address for name, holds in details.items() if holds})

    def _check_answers(self, address: str, silent_ms: int) -> None:
        """Raise SilentServerError when the server does not answer hello on a new connection; a refusal is an answer."""
        try:
            self._put_back(address, self._connect(address, silent_ms))
        except UnavailableError as error:
            if isinstance(error, NoAnswerError):
                raise SilentServerError(f"nor hello on another connection, within {silent_ms} ms") from error
        except BookkeeperError as error:
            LOG.debug("%s answers: %s", address, error)

    def _introduce(self, channel: Channel, timeout_ms: float) -> Hello:
        """Do the handshake and the first call; returns the server's hello, checked as far as the credentials ask."""
        secret = channel.greet(self._hello, self._credentials, timeout_ms)
        answered = channel.call(_HELLO, (self._hello,), timeout_ms)
        if answered.error is not None:
            raise answered.error
        hello: Hello = answered.result
        refuse_other_instance(hello, self._credentials.instance_id)
        refuse_wrong_instance(hello, secret, self._credentials.offers())
        return hello

    def _with_address(self, address: str, error: BookkeeperError) -> BookkeeperError:
        """The same error with the address, and with the next step when the server refused the caller."""
        details = {**error.details, UNREACHED: address}
        if not isinstance(error, NotAdmittedError):
            return type(error)(f"{address}: {error.message}", details)
        return NotAdmittedError(f"{address} refuses: {error.message}: {self._credentials.advice}", details)

    def _put_back(self, address: str, channel: Channel) -> None:
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


class CallPipeline:
    """Calls that do not wait for each other; the server answers them in their order. Used by one thread."""

    def __init__(self, channel: Channel, codec: MethodCodec, address: str, timeout_ms: float) -> None:
        self._channel = channel
        self._codec = codec
        self._address = address
        self._timeout_ms = timeout_ms
        self.is_broken = False
        """No call can follow on this connection."""

    def send(self, *arguments: Any) -> None:
        """Begin a call. The caller limits how many wait: their answers must fit into the buffers of the connection.
        Raises UnavailableError, and InvalidInputError before a byte was sent.
        """
        self.is_broken = True
        try:
            self._channel.begin(self._codec, arguments, self._timeout_ms)
        except InvalidInputError:
            self.is_broken = False
            raise
        except OSError as error:
            raise UnavailableError(_not_answered(self._address, self._codec.name, error)) from error
        self.is_broken = False

    def receive(self) -> Any:
        """The result of the oldest call that waits; raises the server's error, UnavailableError."""
        self.is_broken = True
        try:
            answered = self._channel.finish()
        except (OSError, CorruptionError) as error:
            raise UnavailableError(_not_answered(self._address, self._codec.name, error)) from error
        self.is_broken = False
        if answered.error is not None:
            raise answered.error
        return answered.result


class _Stub:
    """A service at an address: each attribute is a method of the contract."""

    def __init__(self, pool: RpcPool, address: str, service: str, timeout_ms: float | None) -> None:
        self._pool = pool
        self._address = address
        self._service = service
        self._timeout_ms = timeout_ms

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return functools.partial(self._pool.call, self._address, self._service, method, timeout_ms=self._timeout_ms)


_HELLO = method_codec("Master", "hello")


def refuse_other_instance(hello: Hello, instance_id: str) -> None:
    """Rule R23: raise OtherInstanceError when the server is another instance than ``instance_id`` (empty: any is
    right).
    """
    if instance_id and hello.instance_id != instance_id:
        raise OtherInstanceError(
            f"it says that it is instance {hello.instance_id or 'none'} ({hello.cluster_name}), and the caller wants "
            f"{instance_id}: use the address of that one; if the peer was created again, delete the cluster and define "
            "it again",
            {"instance_id": hello.instance_id},
        )


def refuse_wrong_instance(hello: Hello, secret: Secret | None, offers: Sequence[Secret]) -> None:
    """Raise NotAdmittedError when the server's hello contradicts the ``secret`` that it proved, or when it proved none
    and this side has a secret of its instance.
    """
    if secret is not None and secret.instance_id not in ("", hello.instance_id):
        raise NotAdmittedError(
            f"it says that it is instance {hello.instance_id} ({hello.cluster_name}), and proved the secret of "
            f"{secret.instance_id} ({secret.cluster})"
        )
    if secret is None and hello.instance_id and any(offer.instance_id == hello.instance_id for offer in offers):
        raise NotAdmittedError(
            f"it says that it is instance {hello.instance_id} ({hello.cluster_name}), and does not prove its secret"
        )


def plain_hello(role: str = "client") -> Hello:
    """The hello of a process that belongs to no cluster."""
    return Hello(PROTOCOL_VERSION, "", "", role)


def _not_answered(address: str, method: str, error: Exception) -> str:
    return f"{address} did not answer {method}: {_reason(error)}"


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
