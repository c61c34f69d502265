"""A TCP proxy that misbehaves on command: drops connections, lets them hang, goes dark, loses answers, or tells one end
alone that a connection is over.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType


class TcpProxy:
    """Forwards connections to ``host:port``; a context manager. It listens at ``host`` and ``port``."""

    def __init__(self, host: str, port: int, own_host: str = "127.0.0.1") -> None:
        self._upstream = (host, port)
        self._listener = socket.create_server((own_host, 0))
        self.host, self.port = self._listener.getsockname()[:2]
        self.accepted = 0
        self._open: list[socket.socket] = []
        self._hanging = threading.Event()
        self._dark = threading.Event()
        self._losing = threading.Event()
        self._abandoning = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> TcpProxy:
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()

    def drop(self) -> None:
        """End every connection, as a server does with idle ones."""
        with self._lock:
            dropped, self._open = self._open, []
        for each in dropped:
            _shut(each)

    def hang(self) -> None:
        """Drop all bytes of the present connections from now on; later connections work."""
        self._hanging.set()
        self._hanging = threading.Event()

    def darken(self) -> None:
        """Drop all bytes of the present and of later connections, as a machine without power does, until :meth:`drop`
        and :meth:`lighten`.
        """
        self._dark.set()

    def lighten(self) -> None:
        """Later connections work again."""
        self._dark.clear()

    def abandon(self) -> None:
        """End the callers' ends of all connections, now and later, and leave the server's ends open: it does not
        notice.
        """
        self._abandoning.set()
        with self._lock:
            callers = self._open[::2]
        for each in callers:
            _shut(each)

    def restore(self) -> None:
        """Undo :meth:`abandon`: end the server's ends, too; later connections work."""
        self._abandoning.clear()
        self.drop()

    @property
    def connections(self) -> int:
        """How many are open."""
        with self._lock:
            return sum(each.fileno() >= 0 for each in self._open) // 2

    def lose_answer(self) -> None:
        """End the connection on which the server answers next, in place of that answer."""
        self._losing.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            if self._abandoning.is_set():
                _shut(client)
                continue
            try:
                server = socket.create_connection(self._upstream)
            except OSError:
                _shut(client)  # no server listens yet, or any more
                continue
            with self._lock:
                self.accepted += 1
                self._open += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(
                    target=self._pump, args=(source, sink, source is server, self._hanging), daemon=True
                ).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool, hanging: threading.Event) -> None:
        try:
            while data := source.recv(65536):
                if is_answer and self._losing.is_set():
                    self._losing.clear()
                    return
                if not hanging.is_set() and not self._dark.is_set():
                    sink.sendall(data)
        except OSError:
            pass  # dropped: the other direction notices the same way
        finally:
            _shut(sink if is_answer else source)
            if not self._abandoning.is_set():
                _shut(source if is_answer else sink)


def _shut(each: socket.socket) -> None:
    with suppress(OSError):  # ended already
        each.shutdown(socket.SHUT_RDWR)
    each.close()
