"""Connections to HBase's Thrift server; the pool checks the owner of the table over each before a thread uses it.

A connection that nobody used for :data:`IDLE_MS` is replaced before its next use: the server closes idle ones.

The check is a function that reads the owner of the books over a connection and raises when it is another one. A check
is valid for :data:`CHECK_VALID_MS`, at most until a failure or the end of the connection. An operator may drop and
create the table while the Thrift server runs, but HBase needs more time for that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import happybase
from happybase.pool import TException
from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.errors import InvalidInputError, OverloadedError, PermanentError, TransientError, UnavailableError

CHECK_VALID_MS = 500
"""Time in ms for which a check of the owner is valid."""

IDLE_MS = 30_000
"""Time in ms after which an idle connection is not used again: half of ``hbase.thrift.server.socket.read.timeout``."""


class _CheckedConnection(Struct):
    """A connection, the time of its last use (boot clock, ns) and of its last owner check; None: the next use needs a
    check.
    """

    connection: happybase.Connection
    used_ns: int = 0
    checked_ns: int | None = None

    def check(self, check_owner: Callable[[Any], None], now_ns: int) -> None:
        """Check the owner unless a valid check exists. Raises what ``check_owner`` raises."""
        if self.checked_ns is None or now_ns - self.checked_ns >= CHECK_VALID_MS * 1_000_000:
            check_owner(self.connection.client)
            self.checked_ns = now_ns

    def invalidate(self) -> None:
        """Require a check before the next use."""
        self.checked_ns = None


class ConnectionPool:
    """Up to ``connections_max`` connections, each used by one thread at a time and dropped at the first fault."""

    def __init__(
        self,
        host: str,
        port: int,
        timeout_ms: int,
        connections_max: int,
        clock: Clock,
        check_owner: Callable[[Any], None],
    ) -> None:
        self._host, self._port, self._timeout_ms = host, port, timeout_ms
        self._clock, self._check_owner = clock, check_owner
        self._idle: list[_CheckedConnection] = []
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(connections_max)
        self._closed = False

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A Thrift client with a valid owner check. Raises UnavailableError when the connection fails, OverloadedError
        when all connections stay in use, and the error of the check.
        """
        if not self._free.acquire(timeout=self._timeout_ms / 1000):
            raise OverloadedError(f"all connections to HBase at {self._host}:{self._port} are in use")
        try:
            checked = self._take()
            try:
                checked.check(self._check_owner, self._clock.boot_ns())
                yield checked.connection.client
            except (PermanentError, TransientError):
                checked.invalidate()
                self._put_back(checked)  # HBase answered: the connection works
                raise
            except BaseException:
                checked.connection.close()
                raise
            self._put_back(checked)
        except (TException, OSError) as error:
            self._drop_idle()  # the idle connections have probably failed for the same reason
            raise UnavailableError(f"HBase at {self._host}:{self._port} does not answer: {error!r}") from error
        finally:
            self._free.release()

    def close(self) -> None:
        """Close idle connections now and all others after their use."""
        with self._lock:
            self._closed = True
        self._drop_idle()

    def _take(self) -> _CheckedConnection:
        with self._lock:
            if self._closed:
                raise InvalidInputError(f"the metadata table in HBase at {self._host}:{self._port} was closed")
            idle = self._idle.pop() if self._idle else None
        if idle is not None:
            if self._clock.boot_ns() - idle.used_ns < IDLE_MS * 1_000_000:
                return idle
            idle.connection.close()
            self._drop_idle()  # they were put back before this one
        return _CheckedConnection(happybase.Connection(self._host, self._port, timeout=self._timeout_ms))

    def _put_back(self, checked: _CheckedConnection) -> None:
        checked.used_ns = self._clock.boot_ns()
        with self._lock:
            if not self._closed:
                self._idle.append(checked)
                return
        checked.connection.close()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for checked in idle:
            checked.connection.close()
