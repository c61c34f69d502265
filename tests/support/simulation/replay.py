"""A replay process without Spark: the product's ship loop, and its own way to the peer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from bookkeeper.config.sections import Settings
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import UnavailableError
from bookkeeper.peers.bookkeeper import BookkeeperSystem
from bookkeeper.peers.registry import Registry
from bookkeeper.replay.ranges import (
    RANGE_SCHEMA,
    RESULT_SCHEMA,
    Range,
    RangeResult,
    decode_table,
    encode_table,
    ranges_from_table,
    results_to_batch,
)
from bookkeeper.replay.stream.following import POLL_MS, follow
from bookkeeper.replay.stream.range_logs import volume_of
from bookkeeper.replay.stream.range_shipping import Sessions, Shipper
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.dispatch import ServedService
from bookkeeper.storage.volume.opening import open_volume
from tests.support.simulation.network import SimPool, SimServer
from tests.support.simulation.primitives import SimClock, kernel


class SimReplay:
    """Registers itself and answers runs. Two runs at once have sessions of their own."""

    def __init__(self, settings: Settings, coordination: Coordination, clock: SimClock) -> None:
        own = settings.instance
        self._settings = settings
        self._clock = clock
        hello = Hello(PROTOCOL_VERSION, own.instance_id, own.name, "replay")
        self._pool = SimPool(hello)
        self._server = SimServer(ServedService("Replay", self), hello, None)
        self._server.start()
        self._session = coordination.open_session("replay", self._server.address)
        self._system = BookkeeperSystem(settings, self._clock, kernel().rng)

    def follow(self, tserver: str, cluster: str, run: str) -> None:
        """See the contract."""
        calls = self._pool.tserver(tserver, POLL_MS + self._settings.rpc.timeout_ms)
        ship = partial(self._ship, self._sessions())
        ended = follow(ship, lambda results: calls.follow(cluster, run, results, POLL_MS))
        if ended.error:
            raise UnavailableError(ended.error)

    def note(self, ranges: bytes, results: bytes) -> None:
        """See the contract. Nobody reads the journal of a simulation."""

    def _sessions(self) -> Sessions:
        return Sessions(Registry({"bookkeeper": lambda: self._system}), self._settings)

    def run(self, ranges: bytes) -> bytes:
        """See the contract."""
        wanted = ranges_from_table(decode_table(ranges, RANGE_SCHEMA))
        return encode_table([results_to_batch(list(self._ship(self._sessions(), wanted)))], RESULT_SCHEMA)

    def _ship(self, sessions: Sessions, ranges: Sequence[Range]) -> Iterator[RangeResult]:
        volume = volume_of(ranges, open_volume(self._settings), self._pool.tserver, self._clock)
        shipper = Shipper(sessions, volume, self._settings, self._clock)
        return shipper.ship(ranges, self._settings.replay.run_budget_ms)
