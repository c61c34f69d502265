"""Requests to HBase's Thrift server: repeats transient failures and translates HBase's errors.

A request that fails in transit (its idle connection was dropped, its server restarts) is repeated on a new connection
for a limited time: all requests of this room are idempotent.
"""

from __future__ import annotations

import importlib
import logging
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

import tenacity
from msgspec import Struct, field

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.errors import InvalidInputError, LostBooksError, PermanentError, UnavailableError
from bookkeeper.metadata.hbase.hbase_pool import ConnectionPool

thrift: Any = importlib.import_module("Hbase_thrift")
"""HBase's messages; happybase, which ``hbase_pool`` imports, creates this module."""

_P = ParamSpec("_P")
_T = TypeVar("_T")
_log = logging.getLogger(__name__)

_PREFIX = re.compile(r"(?:[A-Za-z0-9_]+:)?[A-Za-z0-9_][A-Za-z0-9_.-]*")
_REFUSALS = (b"IllegalArgumentException", b"AccessDeniedException")


class HBaseAddress(Struct, frozen=True):
    """A Thrift server, and the prefix of the table's name; ``namespace:`` may come first. Raises InvalidInputError."""

    host: str
    port: int
    prefix: str

    def __post_init__(self) -> None:
        if _PREFIX.fullmatch(self.prefix) is None:
            text = f"{self.prefix!r} can't start the name of an HBase table; use letters, digits and _ . -"
            raise InvalidInputError(text)

    @property
    def table(self) -> bytes:
        """The name of the table in HBase."""
        return f"{self.prefix}_metadata".encode()

    def __str__(self) -> str:
        return f"the HBase table {self.table.decode()} at {self.host}:{self.port}"


class CallLimits(Struct, frozen=True):
    """``timeout_ms`` bounds each request on its socket, ``retry_for_ms`` all tries of one call, ``connections_max`` the
    requests in flight. ``sleep`` (seconds) and ``rng`` set the time between tries.
    """

    timeout_ms: int = 15_000
    retry_for_ms: int = 30_000
    connections_max: int = 16
    sleep: Callable[[float], None] = time.sleep
    rng: random.Random = field(default_factory=random.Random)
    clock: Clock = field(default_factory=SystemClock)


class HBaseCalls:
    """Calls about one table. Thread-safe."""

    def __init__(self, address: HBaseAddress, limits: CallLimits, check_owner: Callable[[Any], None]) -> None:
        self._address = address
        self._pool = ConnectionPool(
            address.host,
            address.port,
            limits.timeout_ms,
            limits.connections_max,
            limits.clock,
            self._translated(check_owner),
        )
        self._retry = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(UnavailableError),
            stop=tenacity.stop_after_delay(limits.retry_for_ms / 1000),
            wait=lambda state: _wait_s(state.attempt_number, limits.rng),
            sleep=limits.sleep,
            reraise=True,
            before_sleep=_log_retry,
        )

    def call(self, request: Callable[Concatenate[Any, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run ``request(client, ...)``; repeats it on another connection after a transient failure."""
        answer: _T = self._retry(self._once, request, *args, **kwargs)
        return answer

    def _once(self, request: Callable[Concatenate[Any, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self.client() as client:
            return request(client, *args, **kwargs)

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A connection for one thread, for requests that belong together; repeats nothing."""
        with self._pool.client() as client, translated(self._address):
            yield client

    def _translated(self, check_owner: Callable[[Any], None]) -> Callable[[Any], None]:
        def check(client: Any) -> None:
            with translated(self._address):
                check_owner(client)

        return check

    def close(self) -> None:
        """Release the connections."""
        self._pool.close()


@contextmanager
def translated(address: HBaseAddress) -> Iterator[None]:
    """Translate HBase's errors: a missing or wrong table is not transient."""
    try:
        yield
    except thrift.IllegalArgument as error:
        raise InvalidInputError(f"HBase refuses: {_first_line(error)}") from error
    except thrift.IOError as error:
        if b"TableNotFoundException" in error.message:
            raise LostBooksError(missing_text(address)) from error
        if b"NoSuchColumnFamilyException" in error.message:
            raise LostBooksError(f"{address} is not a metadata table; correct metadata.url") from error
        if any(reason in error.message for reason in _REFUSALS):
            raise PermanentError(f"HBase refuses: {_first_line(error)}") from error
        raise UnavailableError(f"{address}: {_first_line(error)}") from error


def missing_text(address: HBaseAddress) -> str:
    """The error text for a missing table, with the next step."""
    return (
        f"{address} does not exist; correct metadata.url, or restore the table: only 'bookkeeper init' creates one, "
        "for a new cluster"
    )


def _wait_s(attempt: int, rng: random.Random) -> float:
    """No wait after the first failure (probably a dropped idle connection), then 0.05 s to 2 s with jitter."""
    return 0.0 if attempt == 1 else min(2.0, 0.05 * 2.0 ** min(attempt, 10)) * rng.uniform(0.5, 1.0)


def _log_retry(state: tenacity.RetryCallState) -> None:
    if state.attempt_number > 1 and state.outcome is not None:
        _log.warning("try %d failed, next try follows: %s", state.attempt_number, state.outcome.exception())


def _first_line(error: Any) -> str:
    text: str = error.message.decode(errors="replace")
    return text.split("\n", 1)[0][:500]
