"""Connections to HBase's Thrift server, each proven to lead to the right table before it is used.

Arrives: an address, and a proof: a function that asks over a connection for the owner of the books and raises when that
is another one. Leaves: clients for one thread at a time. A proof ends with the connection, with any failure, and after
:data:`PROOF_MS`: behind a Thrift server that goes on, a table may be dropped and made anew, which takes HBase longer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import happybase
from happybase.pool import TException

from bookkeeper.clock import Clock
from bookkeeper.errors import InvalidInputError, OverloadedError, PermanentError, TransientError, UnavailableError

PROOF_MS = 500
"""ms for which a connection is believed to lead to the right table."""


@dataclass(slots=True)
class _Link:
    """A connection, and when it was proven (boot clock, ns); None: it has to be."""

    connection: happybase.Connection
    proven_ns: int | None = None


class ConnectionPool:
    """Up to ``connections_max`` connections, each used by one thread at a time and dropped at the first fault."""

    def __init__(
        self,
        host: str,
        port: int,
        timeout_ms: int,
        connections_max: int,
        clock: Clock,
        prove: Callable[[Any], None],
    ) -> None:
        self._host, self._port, self._timeout_ms = host, port, timeout_ms
        self._clock, self._prove = clock, prove
        self._idle: list[_Link] = []
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(connections_max)
        self._closed = False

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A Thrift client that is proven. Raises UnavailableError when the connection fails, OverloadedError when none
        gets free, and what the proof raises.
        """
        if not self._free.acquire(timeout=self._timeout_ms / 1000):
            raise OverloadedError(f"all connections to HBase at {self._host}:{self._port} are in use")
        try:
            link = self._take()
            try:
                self._prove_again(link)
                yield link.connection.client
            except (PermanentError, TransientError):
                link.proven_ns = None
                self._give(link)  # HBase answered: the connection is sound
                raise
            except BaseException:
                link.connection.close()
                raise
            self._give(link)
        except (TException, OSError) as error:
            self._drop_idle()  # what ended this connection has likely ended those that waited beside it
            raise UnavailableError(f"HBase at {self._host}:{self._port} does not answer: {error!r}") from error
        finally:
            self._free.release()

    def close(self) -> None:
        """Close idle connections now and those in use when they come back."""
        with self._lock:
            self._closed = True
        self._drop_idle()

    def _prove_again(self, link: _Link) -> None:
        now_ns = self._clock.boot_ns()
        if not is_proven(link.proven_ns, now_ns):
            self._prove(link.connection.client)
            link.proven_ns = now_ns

    def _take(self) -> _Link:
        with self._lock:
            if self._closed:
                raise InvalidInputError(f"the metadata table in HBase at {self._host}:{self._port} was closed")
            if self._idle:
                return self._idle.pop()
        return _Link(happybase.Connection(self._host, self._port, timeout=self._timeout_ms))

    def _give(self, link: _Link) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(link)
                return
        link.connection.close()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for link in idle:
            link.connection.close()


def is_proven(proven_ns: int | None, now_ns: int) -> bool:
    """Whether a connection that was proven then may be used now without asking."""
    return proven_ns is not None and now_ns - proven_ns < PROOF_MS * 1_000_000
