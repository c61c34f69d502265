"""A replay process without Spark: the same ship loop behind the same service, in threads of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from bookkeeper.config.sections import Settings
from bookkeeper.coordination.coordination_protocol import Coordination, Session
from bookkeeper.errors import UnavailableError
from bookkeeper.peers.registry import Registry, registry_of
from bookkeeper.replay.ranges import (
    RANGE_SCHEMA,
    RESULT_SCHEMA,
    Range,
    RangeResult,
    decode_table,
    encode_table,
    ranges_from_table,
    results_from_table,
    results_to_batch,
)
from bookkeeper.replay.stream.following import POLL_MS, follow
from bookkeeper.replay.stream.range_shipping import Sessions, Shipper
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.dispatch import ServedService
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.rpc.rpc_server import RpcServer
from bookkeeper.security.access import entrance_of, process_credentials
from bookkeeper.storage.volume.opening import open_volume


def at_once(_ranges: Sequence[Range]) -> None:
    """No trouble."""


@dataclass(slots=True)
class LocalReplay:
    """Handler and server; a context manager that registers a session of kind "replay" while it runs.

    ``before`` sees the ranges of each run and task first: it may wait or raise. ``runs`` keeps them, ``results``
    what they came to, ``noted`` the ranges that tasks followed.
    """

    settings: Settings
    coordination: Coordination
    registry: Callable[[], Registry] | None = None
    budget_ms: int = 3_600_000
    before: Callable[[Sequence[Range]], None] = at_once
    runs: list[list[Range]] = field(default_factory=list)
    results: list[RangeResult] = field(default_factory=list)
    noted: list[tuple[Range, RangeResult]] = field(default_factory=list)
    server: RpcServer = field(init=False)
    session: Session = field(init=False)
    _systems: Registry = field(init=False)
    """As in a process that ships several runs."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        """Listen and register."""
        self._systems = registry_of(self.settings)
        own = self.settings.instance
        hello = Hello(PROTOCOL_VERSION, own.instance_id, own.name, "replay")
        entrance = entrance_of(self.settings)
        self.server = RpcServer(ServedService("Replay", self), hello, self.settings.rpc, entrance=entrance)
        self.server.start()
        self.session = self.coordination.open_session("replay", self.server.address)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave."""
        self.session.close()
        self.server.stop(grace_ms=100)

    def status(self) -> dict[str, str]:
        """See the contract."""
        return {"state": "warm"}

    def warm(self) -> None:
        """See the contract."""

    def follow(self, tserver: str, cluster: str, run: str) -> None:
        """See the contract."""
        own = self.settings.instance
        hello = Hello(PROTOCOL_VERSION, own.instance_id, own.name, "replay")
        pool = RpcPool(hello, self.settings.rpc, credentials=process_credentials(self.settings))
        registry = self._systems if self.registry is None else self.registry()
        shipper = Shipper(Sessions(registry, self.settings), open_volume(self.settings), self.settings)
        calls = pool.tserver(tserver, POLL_MS + self.settings.rpc.timeout_ms)

        def ship(ranges: Sequence[Range]) -> list[RangeResult]:
            self.before(ranges)
            results = list(shipper.ship(ranges, self.budget_ms))
            with self._lock:
                self.results += results
            return results

        try:
            ended = follow(ship, lambda results: calls.follow(cluster, run, results, POLL_MS))
        finally:
            pool.close()
        if ended.error:
            raise UnavailableError(ended.error)

    def note(self, ranges: bytes, results: bytes) -> None:
        """See the contract."""
        followed = ranges_from_table(decode_table(ranges, RANGE_SCHEMA))
        rows = results_from_table(decode_table(results, RESULT_SCHEMA))
        self.noted += [(r, row) for r in followed for row in rows if row.range_id == r.range_id]

    def run(self, ranges: bytes) -> bytes:
        """See the contract."""
        wanted = ranges_from_table(decode_table(ranges, RANGE_SCHEMA))
        with self._lock:
            self.runs.append(wanted)
        self.before(wanted)
        registry = self._systems if self.registry is None else self.registry()
        shipper = Shipper(Sessions(registry, self.settings), open_volume(self.settings), self.settings)
        results = list(shipper.ship(wanted, self.budget_ms))
        with self._lock:
            self.results += results
        return encode_table([results_to_batch(results)], RESULT_SCHEMA)
