"""The server: a fixed number of threads answer calls on many connections, and no thread waits for a slow peer.

Each thread waits for any ready socket, reads its bytes, and calls the handler once a frame is complete: a partly
received or slow frame costs memory until its deadline, but no thread. A frame that does not parse closes its connection
with one log line. A connection begins with a handshake (:mod:`bookkeeper.rpc.trust.handshake`). The server limits the
number and the time of open handshakes and ends the oldest one first, so that silent peers can't block others. The first
call on a connection must be ``hello``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
from collections.abc import Mapping

from msgspec import Struct

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config.sections import RpcSettings
from bookkeeper.errors import CorruptionError, OverloadedError, UnavailableError
from bookkeeper.rpc.address import Address
from bookkeeper.rpc.connection import Connection, PeerClosedError, ServerContext
from bookkeeper.rpc.contract.messages import Hello
from bookkeeper.rpc.dispatch import Dispatcher, ServedService
from bookkeeper.rpc.frames.budget import Budget, limits_of
from bookkeeper.rpc.frames.envelope import HEAD_BYTES_MAX
from bookkeeper.rpc.frames.partial_frame import SCRATCH_BYTES, Declined, FrameBuffers
from bookkeeper.rpc.frames.transport import end
from bookkeeper.rpc.trust.admission import Admission, Admitted, HandshakeRefusedError, RefusalLog
from bookkeeper.runtime.threads import guarded_thread
from bookkeeper.security.access import Entrance
from bookkeeper.security.secret import Secret

LOG = logging.getLogger(__name__)

_BACKLOG = 256

TICK_MS = 250
"""Time between two checks of all deadlines."""


class Binding(Struct, frozen=True):
    """The address of a server: ``host`` None = ``rpc.bind_host``, ``port`` 0 = any free port. Others get the announced
    one: ``announced_host`` "" = ``rpc.announced_host`` for ``rpc.bind_host``, else the bound one; ``announced_port``
    0 = the bound one.
    """

    host: str | None = None
    port: int = 0
    announced_host: str = ""
    announced_port: int = 0

    def announced(self, settings: RpcSettings, bound: Address) -> Address:
        """The address that others call."""
        host = self.announced_host or ("" if self.host else settings.announced_host) or bound.host
        return Address(host, self.announced_port or bound.port)


class RpcServer:
    """Serves one service of the contract. ``entrance`` says which callers it admits; None = every caller."""

    def __init__(
        self,
        service: ServedService,
        hello: Hello,
        settings: RpcSettings,
        clock: Clock | None = None,
        *,
        binding: Binding | None = None,
        entrance: Entrance | None = None,
    ) -> None:
        """Bind the address. Raises UnavailableError when that fails, InvalidInputError on a handler that lacks a
        method.
        """
        binding = binding or Binding()
        self._service = service.name
        self._settings = settings
        self._clock = clock or SystemClock()
        self._dispatcher = Dispatcher(service, hello, settings.frame_bytes_max)
        self._listener = _listen(Address(binding.host or settings.bind_host, binding.port))
        self.address = str(binding.announced(settings, Address(*self._listener.getsockname()[:2])))
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN | select.EPOLLONESHOT)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        limits = limits_of(settings)
        self._budget = Budget(limits)
        self._hello = hello
        self._entrance = entrance or Entrance()
        buffers = FrameBuffers(settings.threads_max, limits.process_bytes // 4)
        self._context = ServerContext(settings, buffers, self._budget, self._dispatcher, self._entrance.tls)
        self._refusals = RefusalLog(self._clock)
        self._connections: dict[int, Connection] = {}
        self._handshakes: dict[int, Connection] = {}
        """The connections whose handshake is not over, oldest first."""
        self._connections_lock = threading.Lock()
        self._busy: set[int] = set()
        self._idle = threading.Condition()
        self._stopping = threading.Event()
        self._janitor = guarded_thread("rpc-janitor", self._tick)
        self._workers = [guarded_thread(f"rpc-{n}", self._work) for n in range(settings.threads_max)]

    def start(self) -> None:
        """Start to accept connections and to answer calls."""
        for thread in (*self._workers, self._janitor):
            thread.start()

    def stop(self, grace_ms: int = 2_000) -> None:
        """Refuse new calls, wait up to ``grace_ms`` for the calls in progress, close all connections; idempotent."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        with self._idle:
            self._idle.wait_for(lambda: not self._busy, grace_ms / 1000)
        os.eventfd_write(self._wake, 1)
        others = [one for one in (*self._workers, self._janitor) if one is not threading.current_thread()]
        for thread in others:
            if thread.is_alive():
                thread.join(grace_ms / 1000)
        if not any(thread.is_alive() for thread in others):  # else one may still wait for it
            os.close(self._wake)
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
                if self._is_overdue(connection, now_ns) or self._is_secret_forgotten(connection, accepted):
                    with contextlib.suppress(OSError):
                        end(connection.sock, socket.SHUT_RDWR)  # the thread that waits for it closes it

    def _is_overdue(self, connection: Connection, now_ns: int) -> bool:
        deadline_ns = connection.deadline_ns
        if deadline_ns is not None and now_ns > deadline_ns:
            if connection.admission is not None:
                if not connection.refused:
                    reason = f"the handshake did not end in {self._settings.handshake_timeout_ms} ms"
                    self._refusals.refused(connection.caller_state.peer, "late", reason)
                return True
            LOG.warning(
                "%s: a frame was not complete in %d ms, closed",
                connection.caller_state.peer,
                self._settings.frame_timeout_ms,
            )
            return True
        return now_ns > connection.last_used_ns + self._settings.idle_timeout_ms * 1_000_000

    def _is_secret_forgotten(self, connection: Connection, accepted: Mapping[str, Secret] | None) -> bool:
        admitted = connection.caller_state.admitted
        if admitted is None or not is_forgotten(admitted, accepted):
            return False
        self._refusals.refused(connection.caller_state.peer, "forgotten", "the secret of its handshake is forgotten")
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
        with self._connections_lock:
            admitted = len(self._connections) - len(self._handshakes)
        if admitted >= self._settings.connections_max:
            LOG.warning("%s: refused, %d connections are open", peer, admitted)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        admission = Admission(self._entrance, self._hello)
        connection = Connection(sock, peer, self._clock.boot_ns(), self._context, admission)
        with self._connections_lock:
            self._connections[sock.fileno()] = connection
            self._handshakes[sock.fileno()] = connection
        self._end_surplus_handshakes()
        self._epoll.register(sock, select.EPOLLIN | select.EPOLLONESHOT)

    def _end_surplus_handshakes(self) -> None:
        """End the oldest handshakes above the limit."""
        with self._connections_lock:
            surplus = len(self._handshakes) - self._settings.handshakes_max
            ended = [self._handshakes.pop(descriptor) for descriptor in list(self._handshakes)[: max(0, surplus)]]
        for connection in ended:
            if not connection.refused:
                reason = f"more than {self._settings.handshakes_max} handshakes are open, and this is the oldest"
                self._refusals.refused(connection.caller_state.peer, "surplus", reason)
            with contextlib.suppress(OSError):
                end(connection.sock, socket.SHUT_RDWR)  # the thread that waits for it closes it

    def _close(self, connection: Connection) -> None:
        with self._connections_lock:
            self._connections.pop(connection.sock.fileno(), None)
            self._handshakes.pop(connection.sock.fileno(), None)
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
        except HandshakeRefusedError as refused:
            self._refusals.refused(connection.caller_state.peer, refused.error.code, refused.error.message)
            keep = connection.send_refusal(refused.answer)  # until the peer has read it
        except CorruptionError as error:
            LOG.warning("%s: %s; closed", connection.caller_state.peer, error)
            keep = False
        except OSError as error:
            LOG.info("%s: connection lost: %s", connection.caller_state.peer, error)
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
        """Read, answer and send as far as the socket allows; False = close the connection."""
        if event & select.EPOLLOUT:
            if not connection.flush(self._clock.boot_ns()):
                return True
            if connection.closing:
                return False
        while True:
            if connection.admission is not None and not self._admit_caller(connection):
                return True
            keep = self._answer(connection)
            if keep is not None:
                return keep
            now_ns = self._clock.boot_ns()
            if not connection.receive(scratch, now_ns):
                return True
            if connection.refused:
                return connection.deadline_ns is not None and now_ns < connection.deadline_ns

    def _admit_caller(self, connection: Connection) -> bool:
        """Continue TLS and the handshake; False while TLS is not done."""
        if not connection.continue_tls():
            return False
        if connection.continue_handshake(self._clock.boot_ns()):
            with self._connections_lock:
                self._handshakes.pop(connection.sock.fileno(), None)
        return True

    def _answer(self, connection: Connection) -> bool | None:
        """Answer the complete frames; None when no frame remains, else whether to keep the connection."""
        if connection.admission is not None:
            return None
        for frame in connection.frames():
            if isinstance(frame, Declined):
                connection.answer(frame.answer, self._clock.boot_ns())
            else:
                self._respond(connection, frame)
            if connection.wants == select.EPOLLOUT:
                return True
            if connection.closing or self._stopping.is_set():
                return False
        return None

    def _respond(self, connection: Connection, frame: memoryview) -> None:
        head = bytes(frame[:HEAD_BYTES_MAX])
        answer = self._dispatcher.respond(frame, connection.caller_state)
        try:
            connection.answer(answer, self._clock.boot_ns())
        except OverloadedError as error:
            connection.answer(self._dispatcher.refuse(memoryview(head), error), self._clock.boot_ns())


def is_forgotten(admitted: Admitted, accepted: Mapping[str, Secret] | None) -> bool:
    """Whether the server does not accept the secret of a connection any more."""
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
