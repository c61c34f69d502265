"""Requests to HBase's Thrift server: tried again while the failure may pass, HBase's errors as ours.

Arrives: functions of a Thrift client. Leaves: their results. A request that failed on its way (its connection was idle
and dropped, its server restarts) is repeated whole on a new connection, for a bounded time: all requests of this room
are idempotent.
"""

from __future__ import annotations

import importlib
import logging
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

import tenacity

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.errors import InvalidInputError, LostBooksError, PermanentError, UnavailableError
from bookkeeper.metadata.hbase.hbase_pool import ConnectionPool

thrift: Any = importlib.import_module("Hbase_thrift")
"""HBase's messages; happybase, which ``hbase_pool`` imports, makes this module."""

_P = ParamSpec("_P")
_T = TypeVar("_T")
_log = logging.getLogger(__name__)

_PREFIX = re.compile(r"(?:[A-Za-z0-9_]+:)?[A-Za-z0-9_][A-Za-z0-9_.-]*")
_REFUSALS = (b"IllegalArgumentException", b"AccessDeniedException")


@dataclass(frozen=True, slots=True)
class HBaseAddress:
    """A Thrift server, and the prefix of the table's name; ``namespace:`` may come first. Raises InvalidInputError."""

    host: str
    port: int
    prefix: str

    def __post_init__(self) -> None:
        if _PREFIX.fullmatch(self.prefix) is None:
            text = f"{self.prefix!r} can't start the name of an HBase table: letters, digits and _ . - can"
            raise InvalidInputError(text)

    @property
    def table(self) -> bytes:
        """The name of the table in HBase."""
        return f"{self.prefix}_metadata".encode()

    def __str__(self) -> str:
        return f"the HBase table {self.table.decode()} at {self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class CallLimits:
    """``timeout_ms`` bounds each request on its socket, ``retry_for_ms`` all tries of one call, ``connections_max`` the
    requests in flight. ``sleep`` (seconds) and ``rng`` space the tries.
    """

    timeout_ms: int = 15_000
    retry_for_ms: int = 30_000
    connections_max: int = 16
    sleep: Callable[[float], None] = time.sleep
    rng: random.Random = field(default_factory=random.Random)
    clock: Clock = field(default_factory=SystemClock)


class HBaseCalls:
    """Calls about one table. Thread-safe."""

    def __init__(self, address: HBaseAddress, limits: CallLimits, prove: Callable[[Any], None]) -> None:
        self._address = address
        self._pool = ConnectionPool(
            address.host, address.port, limits.timeout_ms, limits.connections_max, limits.clock, self._translated(prove)
        )
        self._retry = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(UnavailableError),
            stop=tenacity.stop_after_delay(limits.retry_for_ms / 1000),
            wait=lambda state: _wait_s(state.attempt_number, limits.rng),
            sleep=limits.sleep,
            reraise=True,
            before_sleep=_tell,
        )

    def call(self, request: Callable[Concatenate[Any, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run ``request(client, ...)``, again on another connection while the failure may pass."""
        answer: _T = self._retry(self._once, request, *args, **kwargs)
        return answer

    def _once(self, request: Callable[Concatenate[Any, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self.client() as client:
            return request(client, *args, **kwargs)

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A connection for one thread, for requests that belong together; nothing is tried again."""
        with self._pool.client() as client, translated(self._address):
            yield client

    def _translated(self, prove: Callable[[Any], None]) -> Callable[[Any], None]:
        def proof(client: Any) -> None:
            with translated(self._address):
                prove(client)

        return proof

    def close(self) -> None:
        """Release the connections."""
        self._pool.close()


@contextmanager
def translated(address: HBaseAddress) -> Iterator[None]:
    """HBase's answers that are errors, as ours: a table that is not there, or is another one's, does not pass."""
    try:
        yield
    except thrift.IllegalArgument as error:
        raise InvalidInputError(f"HBase refuses: {_first_line(error)}") from error
    except thrift.IOError as error:
        if b"TableNotFoundException" in error.message:
            raise LostBooksError(missing_text(address)) from error
        if b"NoSuchColumnFamilyException" in error.message:
            raise LostBooksError(f"{address} is no metadata table; correct metadata.url") from error
        if any(reason in error.message for reason in _REFUSALS):
            raise PermanentError(f"HBase refuses: {_first_line(error)}") from error
        raise UnavailableError(f"{address}: {_first_line(error)}") from error


def missing_text(address: HBaseAddress) -> str:
    """What is wrong, and the next step, where there is no table."""
    return (
        f"{address} does not exist; correct metadata.url, or restore the table: only 'bookkeeper init' makes one, for "
        "a new cluster"
    )


def _wait_s(attempt: int, rng: random.Random) -> float:
    """At once after the first failure (most likely an idle connection was dropped), then 0.05 s to 2 s with jitter."""
    return 0.0 if attempt == 1 else min(2.0, 0.05 * 2.0 ** min(attempt, 10)) * rng.uniform(0.5, 1.0)


def _tell(state: tenacity.RetryCallState) -> None:
    if state.attempt_number > 1 and state.outcome is not None:
        _log.warning("try %d failed, going on: %s", state.attempt_number, state.outcome.exception())


def _first_line(error: Any) -> str:
    text: str = error.message.decode(errors="replace")
    return text.split("\n", 1)[0][:500]
