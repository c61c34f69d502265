"""The monitor's door: how many are inside at once, how long each may take to ask, and who makes room for others.

Arrives: connections at the listening socket. Leaves: visits, each with the library's HTTP protocol behind it, and lines
in the log about those that were shown out. A visit counts from the moment it is accepted, before TLS: whoever says
nothing, half a request or a byte now and then is shown out when its time is over, and before that as soon as its place
is wanted. So who is silent takes no place from who is not, and strangers cost a master a bounded number of sockets.
Nothing survives a crash. Known third party: uvicorn.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from bookkeeper.rpc.trust.admission import RefusalLog

LOG = logging.getLogger(__name__)

PLACES_MAX = 64
"""Connections at once, whatever they do."""

REQUEST_S = 5.0
"""From its first byte, or from the connection on for the first one, until a request is whole; TLS included."""

ANSWER_S = 30.0
"""From a request on until its answer is taken."""

IDLE_S = 5
"""From an answer until the next request begins."""

_PAUSE_S = 1.0
"""Until the next try, when no socket can be had."""


class Phase(Enum):
    """What a visit waits for."""

    ASKING = "a whole request"
    ANSWERED = "its answer"
    IDLE = "nothing"


@dataclass(eq=False, slots=True)
class Visit:
    """One connection. ``end`` cuts it at once."""

    peer: str
    end: Callable[[], object]
    phase: Phase = Phase.ASKING
    timer: asyncio.TimerHandle | None = None


def who_makes_room(visits: Iterable[Visit]) -> Visit | None:
    """Who leaves when a place is wanted, of visits in the order in which they came to where they are: the first that is
    not being answered, for whoever comes asks at once, and whoever is idle may come again. None: all are.
    """
    return next((visit for visit in visits if visit.phase is not Phase.ANSWERED), None)


def request_s() -> float:
    """How long a request may take to come."""
    return REQUEST_S


class ConnectionLimiter:
    """Who is inside. Used by the event loop's thread alone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: RefusalLog) -> None:
        self._loop, self._log = loop, log
        self._visits: dict[Visit, None] = {}

    def enter(self, visit: Visit) -> bool:
        """Take a place; whoever has to makes room for it. False: everybody is being answered."""
        if len(self._visits) >= PLACES_MAX:
            leaving = who_makes_room(self._visits)
            if leaving is None:
                self.refused(visit, "busy", f"{PLACES_MAX} connections are being answered")
                return False
            self._show_out(leaving, "surplus", f"more than {PLACES_MAX} connections, and this one waits for longest")
        self._visits[visit] = None
        self._allow(visit, request_s(), "no whole request came in time")
        return True

    def hears(self, visit: Visit) -> None:
        """Something came: of a new request, the first."""
        if visit.phase is Phase.IDLE:
            self._turn(visit, Phase.ASKING)
            self._allow(visit, request_s(), "no whole request came in time")

    def asked(self, visit: Visit) -> None:
        """A request is whole."""
        if visit.phase is not Phase.ANSWERED:
            self._turn(visit, Phase.ANSWERED)
            self._allow(visit, ANSWER_S, "it does not take its answer")

    def rests(self, visit: Visit) -> None:
        """Everything is answered. The library ends what is idle, after what was sent was read; if it is."""
        self._turn(visit, Phase.IDLE)

    def leave(self, visit: Visit) -> None:
        """It is gone; idempotent."""
        self._visits.pop(visit, None)
        if visit.timer is not None:
            visit.timer.cancel()

    def refused(self, visit: Visit, kind: str, reason: str) -> None:
        """A line in the log; of many such, now and then."""
        self._log.refused(visit.peer, kind, f"the monitor: {reason}")

    def _turn(self, visit: Visit, phase: Phase) -> None:
        visit.phase = phase
        if visit in self._visits:
            del self._visits[visit]
            self._visits[visit] = None

    def _allow(self, visit: Visit, seconds: float, reason: str) -> None:
        if visit.timer is not None:
            visit.timer.cancel()
        visit.timer = self._loop.call_later(seconds, self._show_out, visit, "late", reason)

    def _show_out(self, visit: Visit, kind: str, reason: str) -> None:
        self.refused(visit, kind, reason)
        self.leave(visit)
        visit.end()


class Visitor(H11Protocol):
    """The library's protocol for one visit, which tells the door how far it is."""

    def __init__(self, config: Config, state: ServerState, door: ConnectionLimiter, visit: Visit) -> None:
        super().__init__(config, state, {})
        self._door, self._visit = door, visit

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._visit.end = transport.abort

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        super().connection_lost(exc)
        self._door.leave(self._visit)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._door.hears(self._visit)
        super().data_received(data)
        self._tell()

    def on_response_complete(self) -> None:
        """See the library: everything of an answer was handed to the transport."""
        if is_whole(self.cycle):
            self._door.rests(self._visit)
        super().on_response_complete()
        self._tell()

    def send_400_response(self, msg: str) -> None:
        """See the library: what came is no HTTP."""
        self._door.refused(self._visit, "garbage", msg)
        super().send_400_response(msg)

    def _tell(self) -> None:
        if is_whole(self.cycle) and not self.cycle.response_complete:
            self._door.asked(self._visit)


def is_whole(cycle: RequestResponseCycle | None) -> bool:
    """The latest request that began has come with all of its body."""
    return cycle is not None and not cycle.more_body


async def answer(server: Server, listening: socket.socket, log: RefusalLog, tls: ssl.SSLContext | None) -> None:
    """Serve whoever comes to the socket, until the server is told to stop. ``server`` was given no socket. ``tls``: the
    library's own contexts take TLS 1.2, too; None = plain HTTP.
    """
    server.config.load()
    server.config.ssl = tls
    listening.setblocking(False)
    accepting = asyncio.ensure_future(_accept(server, listening, ConnectionLimiter(asyncio.get_running_loop(), log)))
    accepting.add_done_callback(lambda _: setattr(server, "should_exit", True))
    try:
        await server.serve(sockets=[])
    finally:
        accepting.cancel()
        await asyncio.wait([accepting])
    if not accepting.cancelled():
        accepting.result()


async def _accept(server: Server, listening: socket.socket, door: ConnectionLimiter) -> None:
    loop = asyncio.get_running_loop()
    coming: set[asyncio.Task[None]] = set()
    try:
        while True:
            try:
                sock, address = await loop.sock_accept(listening)
            except OSError as error:
                LOG.warning("the monitor can't accept a connection: %s", error)
                await asyncio.sleep(_PAUSE_S)
                continue
            visit = Visit(f"{address[0]}:{address[1]}", sock.close)
            if not door.enter(visit):
                sock.close()
                continue
            task = asyncio.create_task(_bring_in(server, sock, door, visit))
            visit.end = task.cancel
            coming.add(task)
            task.add_done_callback(coming.discard)
            task.add_done_callback(partial(_close_if_cancelled, sock))
            await asyncio.sleep(0)  # those who are inside go on, however many come at once
    finally:
        for task in coming:
            task.cancel()


def _close_if_cancelled(sock: socket.socket, ended: asyncio.Task[None]) -> None:
    if ended.cancelled():
        sock.close()


async def _bring_in(server: Server, sock: socket.socket, door: ConnectionLimiter, visit: Visit) -> None:
    """Through TLS, if there is any, and on to the HTTP protocol. Cancelled when the visit is shown out before that."""
    config = server.config
    try:
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: Visitor(config, server.server_state, door, visit), sock, ssl=config.ssl
        )
    except (OSError, ssl.SSLError) as error:
        door.refused(visit, "tls", f"no connection came about: {error}")
        door.leave(visit)
    except asyncio.CancelledError:
        door.leave(visit)
        raise
