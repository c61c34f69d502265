"""The monitor's connections: at most 64, and each has limited time for its request and its answer.

A connection counts from accept on, before TLS. When all slots are in use, the connection that has waited longest
without a request closes, so silent clients never keep others out and use a bounded number of sockets.
uvicorn's own settings do not give this: ``limit_concurrency`` answers 503 to new connections and keeps silent ones, and
no setting limits the time of a TLS handshake, of a request or of reading an answer. Therefore this module accepts the
connections; :func:`serve` is its only entrance.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterable
from enum import Enum

from uvicorn import Server
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from bookkeeper.rpc.trust.admission import RefusalLog

LOG = logging.getLogger(__name__)

CONNECTIONS_MAX = 64

REQUEST_S = 5.0
"""Time for a complete request, from its first byte; for the first request from accept, TLS included."""

ANSWER_S = 30.0
"""Time for the client to read an answer, from the end of its request."""

IDLE_S = 5
"""Time from an answer to the first byte of the next request."""

_ACCEPT_RETRY_S = 1.0


class Phase(Enum):
    """Phases of a connection, each with the reason that the log gives when its time is over."""

    REQUEST = "no complete request came in time"
    ANSWER = "the client does not read its answer"
    IDLE = "the client did not read its answer"


async def serve(server: Server, listening: socket.socket, log: RefusalLog, tls: ssl.SSLContext | None) -> None:
    """Serve the connections of ``listening`` until ``server`` stops. ``tls`` None: plain HTTP."""
    server.config.load()
    server.config.ssl = tls  # uvicorn's own contexts accept TLS 1.2
    listening.setblocking(False)
    accepting = asyncio.ensure_future(_accept(server, listening, ConnectionLimiter(log)))
    accepting.add_done_callback(lambda _: setattr(server, "should_exit", True))
    try:
        await server.serve(sockets=[])
    finally:
        accepting.cancel()
        await asyncio.wait([accepting])
    if not accepting.cancelled():
        accepting.result()


async def _accept(server: Server, listening: socket.socket, limiter: ConnectionLimiter) -> None:
    while True:
        try:
            sock, address = await asyncio.get_running_loop().sock_accept(listening)
        except OSError as error:
            LOG.warning("the monitor can't accept a connection: %s", error)
            await asyncio.sleep(_ACCEPT_RETRY_S)
            continue
        limiter.open(LimitedConnection(server, limiter, sock, f"{address[0]}:{address[1]}"))
        await asyncio.sleep(0)  # one connection a turn of the loop: a flood does not delay open connections


class ConnectionLimiter:
    """The open connections, in the order in which they entered their phase. Used by the event loop's thread alone."""

    def __init__(self, log: RefusalLog) -> None:
        self._log = log
        self._connections: dict[LimitedConnection, None] = {}

    def open(self, connection: LimitedConnection) -> None:
        """Admit a new connection; when all slots are in use, close an older one, or the new one."""
        if len(self._connections) >= CONNECTIONS_MAX:
            surplus = surplus_connection(self._connections)
            if surplus is None:
                connection.refuse("busy", f"{CONNECTIONS_MAX} connections wait for their answers")
                return
            surplus.refuse("surplus", f"more than {CONNECTIONS_MAX} connections, and this one waits for longest")
        self._connections[connection] = None
        connection.start()

    def move_to_end(self, connection: LimitedConnection) -> None:
        """An open connection enters a phase."""
        if connection in self._connections:
            del self._connections[connection]
            self._connections[connection] = None

    def remove(self, connection: LimitedConnection) -> None:
        """The connection is closed; idempotent."""
        self._connections.pop(connection, None)

    def report(self, peer: str, kind: str, reason: str) -> None:
        """Log a refusal; of many such of one address, one line now and then."""
        self._log.refused(peer, kind, f"the monitor: {reason}")


def surplus_connection(connections: Iterable[LimitedConnection]) -> LimitedConnection | None:
    """The connection to close when a slot is needed: the first that does not wait for its answer. None: all wait."""
    return next((connection for connection in connections if connection.phase is not Phase.ANSWER), None)


class LimitedConnection(H11Protocol):
    """uvicorn's HTTP protocol on one connection, with time limits; it closes its socket."""

    def __init__(self, server: Server, limiter: ConnectionLimiter, sock: socket.socket, peer: str) -> None:
        super().__init__(server.config, server.server_state, {})
        self.phase = Phase.REQUEST
        self._limiter, self._sock, self._peer = limiter, sock, peer
        self._limit: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin with TLS, or with HTTP where there is none."""
        self._enter(Phase.REQUEST)
        self._opening = asyncio.create_task(self._open())

    def refuse(self, kind: str, reason: str) -> None:
        """Log the reason and close at once, in any phase."""
        self._limiter.report(self._peer, kind, reason)
        self._forget()
        if self in self.connections:  # of uvicorn: HTTP has begun
            self.transport.abort()
        elif self._opening is None:
            self._sock.close()
        else:
            self._opening.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        super().connection_lost(exc)
        self._forget()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self.phase is Phase.IDLE:
            self._enter(Phase.REQUEST)
        super().data_received(data)
        self._check_request()

    def on_response_complete(self) -> None:
        """See H11Protocol: the transport has the complete answer."""
        if not self.cycle.more_body:
            self._enter(Phase.IDLE)
        super().on_response_complete()
        self._check_request()

    def send_400_response(self, msg: str) -> None:
        """See H11Protocol: the bytes are no HTTP."""
        self._limiter.report(self._peer, "garbage", msg)
        super().send_400_response(msg)

    async def _open(self) -> None:
        try:
            await self.loop.connect_accepted_socket(lambda: self, self._sock, ssl=self.config.ssl)
        except OSError as error:
            self._limiter.report(self._peer, "tls", f"no connection came about: {error}")
            self._forget()

    def _check_request(self) -> None:
        if self.phase is not Phase.ANSWER and waits_for_answer(self.cycle):
            self._enter(Phase.ANSWER)

    def _enter(self, phase: Phase) -> None:
        """Idle connections keep the time limit of their answer; after ``IDLE_S`` uvicorn closes them."""
        self.phase = phase
        self._limiter.move_to_end(self)
        if phase is not Phase.IDLE:
            self._cancel_limit()
            seconds = REQUEST_S if phase is Phase.REQUEST else ANSWER_S
            self._limit = self.loop.call_later(seconds, self._close_late)

    def _close_late(self) -> None:
        self.refuse("late", self.phase.value)

    def _cancel_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()

    def _forget(self) -> None:
        self._limiter.remove(self)
        self._cancel_limit()


def waits_for_answer(cycle: RequestResponseCycle | None) -> bool:
    """Whether the latest request is complete, its body included, and its answer is not."""
    return cycle is not None and not cycle.more_body and not cycle.response_complete
