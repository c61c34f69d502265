"""The server: a fixed number of threads answer calls on many connections; none of them ever waits for a slow peer.

Arrives: connections. Leaves: calls of a handler, answers, log lines about what was refused. Every thread waits for any
socket that is ready, reads what is there, and calls the handler once a frame is whole: a half-sent or slow frame costs
memory until its deadline, but no thread. What does not parse closes its connection with one log line. A connection
begins with a handshake (:mod:`bookkeeper.rpc.trust.handshake`); those under way are bounded in number and in time, and
the oldest makes room for a new one: who is silent takes no place from who is not. The first call on a connection must
be ``hello``. Nothing survives a crash.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
from collections.abc import Mapping

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config import RpcSettings
from bookkeeper.errors import CorruptionError, OverloadedError, UnavailableError
from bookkeeper.rpc.address import Address
from bookkeeper.rpc.connection import Connection, PeerClosedError
from bookkeeper.rpc.contract.messages import Hello
from bookkeeper.rpc.dispatch import Dispatcher
from bookkeeper.rpc.frames.budget import Budget, limits_of
from bookkeeper.rpc.frames.envelope import HEAD_BYTES_MAX
from bookkeeper.rpc.frames.partial_frame import SCRATCH_BYTES, Answer, Declined, FrameBuffers
from bookkeeper.rpc.frames.transport import end
from bookkeeper.rpc.trust.admission import Admission, Admitted, RefusalLog, RefusedGuestError
from bookkeeper.runtime.threads import guarded_thread
from bookkeeper.security.access import Entrance
from bookkeeper.security.secret import Secret

LOG = logging.getLogger(__name__)

_BACKLOG = 256

TICK_MS = 250
"""How often deadlines are looked at."""


class RpcServer:
    """Serves one service of the contract. ``handler`` has its methods, see :mod:`bookkeeper.rpc.contract.services`.

    ``entrance`` says who is let in; None = whoever comes.
    ``concurrency`` bounds the calls of single methods; beyond it callers get OverloadedError. A method that waits for
    calls to servers of the same kind must be bounded, or all threads of two servers may wait for each other.
    """

    def __init__(
        self,
        service: str,
        handler: object,
        hello: Hello,
        settings: RpcSettings,
        clock: Clock | None = None,
        *,
        host: str | None = None,
        port: int = 0,
        concurrency: Mapping[str, int] | None = None,
        entrance: Entrance | None = None,
    ) -> None:
        """Bind (``port`` 0 = any free one); raises UnavailableError when that fails, InvalidInputError on a handler
        that lacks a method.
        """
        self._service = service
        self._settings = settings
        self._clock = clock or SystemClock()
        self._dispatcher = Dispatcher(service, handler, hello, settings.frame_bytes_max, concurrency or {})
        self._listener = _listen(Address(host or settings.bind_host, port))
        self.address = str(Address(*self._listener.getsockname()[:2]))
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN | select.EPOLLONESHOT)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        limits = limits_of(settings)
        self._budget = Budget(limits)
        self._buffers = FrameBuffers(settings.threads_max, limits.process_bytes // 4)
        self._hello = hello
        self._entrance = entrance or Entrance()
        self._refusals = RefusalLog(self._clock)
        self._connections: dict[int, Connection] = {}
        self._guests: dict[int, Connection] = {}
        self._counting = threading.Lock()
        self._busy: set[int] = set()
        self._idle = threading.Condition()
        self._stopping = threading.Event()
        self._janitor = guarded_thread("rpc-janitor", self._tick)
        self._workers = [guarded_thread(f"rpc-{n}", self._work) for n in range(settings.threads_max)]

    def start(self) -> None:
        """Begin to serve."""
        for thread in (*self._workers, self._janitor):
            thread.start()

    def stop(self, grace_ms: int = 2_000) -> None:
        """Take no more calls, let those under way end for up to ``grace_ms``, close every connection; idempotent."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        with self._idle:
            self._idle.wait_for(lambda: not self._busy, grace_ms / 1000)
        os.eventfd_write(self._wake, 1)
        for thread in (*self._workers, self._janitor):
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join(grace_ms / 1000)
        self._listener.close()
        for connection in list(self._connections.values()):
            self._close(connection)

    # ---- threads

    def _work(self) -> None:
        scratch = memoryview(bytearray(SCRATCH_BYTES))
        while not self._stopping.is_set():
            for descriptor, event in self._epoll.poll(None, 1):
                if descriptor == self._wake:
                    return
                if descriptor == self._listener.fileno():
                    self._accept()
                else:
                    self._serve(descriptor, event, scratch)

    def _tick(self) -> None:
        while not self._clock.wait(self._stopping, TICK_MS):
            now_ns = self._clock.boot_ns()
            accepted = None if self._entrance.accepted is None else self._entrance.accepted()
            for descriptor, connection in list(self._connections.items()):
                if descriptor in self._busy:
                    continue
                if self._is_overdue(connection, now_ns) or self._is_over(connection, accepted):
                    with contextlib.suppress(OSError):
                        end(connection.sock, socket.SHUT_RDWR)  # whoever waits for it closes it

    def _is_overdue(self, connection: Connection, now_ns: int) -> bool:
        deadline_ns = connection.deadline_ns
        if deadline_ns is not None and now_ns > deadline_ns:
            if connection.admission is not None:
                if not connection.refused:
                    reason = f"the handshake was not over in {self._settings.handshake_timeout_ms} ms"
                    self._refusals.refused(connection.conversation.peer, "late", reason)
                return True
            LOG.warning(
                "%s: a frame was not whole in %d ms, closed",
                connection.conversation.peer,
                self._settings.frame_timeout_ms,
            )
            return True
        return now_ns > connection.last_used_ns + self._settings.idle_timeout_ms * 1_000_000

    def _is_over(self, connection: Connection, accepted: Mapping[str, Secret] | None) -> bool:
        admitted = connection.conversation.admitted
        if admitted is None or not is_forgotten(admitted, accepted):
            return False
        self._refusals.refused(
            connection.conversation.peer, "forgotten", "the secret with which it came in is forgotten"
        )
        return True

    # ---- connections

    def _accept(self) -> None:
        try:
            while True:
                sock, peer = self._listener.accept()
                self._admit(sock, f"{peer[0]}:{peer[1]}")
        except BlockingIOError:
            pass
        except OSError as error:
            LOG.warning("the %s server can't accept a connection: %s", self._service, error)
            self._clock.wait(self._stopping, TICK_MS)
        if not self._stopping.is_set():
            self._epoll.modify(self._listener, select.EPOLLIN | select.EPOLLONESHOT)

    def _admit(self, sock: socket.socket, peer: str) -> None:
        with self._counting:
            inside = len(self._connections) - len(self._guests)
        if inside >= self._settings.connections_max:
            LOG.warning("%s: turned away, %d connections are open", peer, inside)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        admission = Admission(self._entrance, self._hello)
        now_ns = self._clock.boot_ns()
        connection = Connection(
            sock,
            peer,
            now_ns,
            self._settings,
            self._buffers,
            self._budget,
            self._dispatcher,
            admission,
            self._entrance.tls,
        )
        with self._counting:
            self._connections[sock.fileno()] = connection
            self._guests[sock.fileno()] = connection
        self._make_room()
        self._epoll.register(sock, select.EPOLLIN | select.EPOLLONESHOT)

    def _make_room(self) -> None:
        """Beyond the bound of handshakes under way, the oldest one ends."""
        with self._counting:
            surplus = len(self._guests) - self._settings.handshakes_max
            leaving = [self._guests.pop(descriptor) for descriptor in list(self._guests)[: max(0, surplus)]]
        for guest in leaving:
            if not guest.refused:
                reason = f"more than {self._settings.handshakes_max} handshakes are under way, and this is the oldest"
                self._refusals.refused(guest.conversation.peer, "surplus", reason)
            with contextlib.suppress(OSError):
                end(guest.sock, socket.SHUT_RDWR)  # whoever waits for it closes it

    def _close(self, connection: Connection) -> None:
        with self._counting:
            self._connections.pop(connection.sock.fileno(), None)
            self._guests.pop(connection.sock.fileno(), None)
        connection.close()

    def _serve(self, descriptor: int, event: int, scratch: memoryview) -> None:
        connection = self._connections.get(descriptor)
        if connection is None:
            return
        with self._idle:
            self._busy.add(descriptor)
        try:
            keep = self._exchange(connection, event, scratch)
        except PeerClosedError:
            keep = False
        except RefusedGuestError as refused:
            self._refusals.refused(connection.conversation.peer, refused.error.code, refused.error.message)
            keep = connection.turn_away(refused.answer)  # until it has read why
        except CorruptionError as error:
            LOG.warning("%s: %s; closed", connection.conversation.peer, error)
            keep = False
        except OSError as error:
            LOG.info("%s: connection lost: %s", connection.conversation.peer, error)
            keep = False
        finally:
            with self._idle:
                self._busy.discard(descriptor)
                self._idle.notify_all()
        if keep and not self._stopping.is_set():
            self._epoll.modify(descriptor, connection.wants | select.EPOLLONESHOT)
        else:
            self._close(connection)

    def _exchange(self, connection: Connection, event: int, scratch: memoryview) -> bool:
        """Move what moves; False when the connection is to be closed."""
        if event & select.EPOLLOUT:
            if not connection.flush(self._clock.boot_ns()):
                return True
            if connection.closing:
                return False
        while True:
            if connection.admission is not None and not self._let_in(connection):
                return True
            keep = self._answer(connection)
            if keep is not None:
                return keep
            now_ns = self._clock.boot_ns()
            if not connection.receive(scratch, now_ns):
                return True
            if connection.refused:
                return connection.deadline_ns is not None and now_ns < connection.deadline_ns

    def _let_in(self, connection: Connection) -> bool:
        """Go on with TLS and the handshake; False while TLS is not done."""
        if not connection.secure():
            return False
        if connection.shake_hands(self._clock.boot_ns()):
            with self._counting:
                self._guests.pop(connection.sock.fileno(), None)
        return True

    def _answer(self, connection: Connection) -> bool | None:
        """Answer the frames that are whole; None when there is none left, else whether to keep the connection."""
        if connection.admission is not None:
            return None
        for frame in connection.frames():
            if isinstance(frame, Declined):
                self._send(connection, frame.answer)
            else:
                self._respond(connection, frame)
            if connection.wants == select.EPOLLOUT:
                return True
            if connection.closing or self._stopping.is_set():
                return False
        return None

    def _respond(self, connection: Connection, frame: memoryview) -> None:
        head = bytes(frame[:HEAD_BYTES_MAX])
        answer = self._dispatcher.respond(frame, connection.conversation)
        try:
            self._send(connection, answer)
        except OverloadedError as error:
            self._send(connection, self._dispatcher.refuse(memoryview(head), error))

    def _send(self, connection: Connection, answer: Answer) -> None:
        connection.closing = answer.close
        if answer.buffers is not None:
            connection.answer(answer.buffers, self._clock.boot_ns())


def is_forgotten(admitted: Admitted, accepted: Mapping[str, Secret] | None) -> bool:
    """Tell whether the secret with which somebody came in would let nobody in any more."""
    return accepted is not None and admitted.secret is not None and admitted.secret.id not in accepted


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise UnavailableError(
            f"can't listen at {address} ({error.strerror}); end the process that does, or choose another address"
        ) from error
    listener.setblocking(False)
    return listener
