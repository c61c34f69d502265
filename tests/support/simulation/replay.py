"""A replay process without Spark: the product's ship loop, and its own way to the peer."""

from __future__ import annotations

from bookkeeper.config.sections import Settings
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.peers.bookkeeper import BookkeeperSystem
from bookkeeper.peers.registry import Registry
from bookkeeper.replay.ranges import (
    RANGE_SCHEMA,
    RESULT_SCHEMA,
    decode_table,
    encode_table,
    ranges_from_table,
    results_to_batch,
)
from bookkeeper.replay.stream.range_logs import volume_of
from bookkeeper.replay.stream.range_shipping import Sessions, Shipper
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.dispatch import ServedService
from bookkeeper.storage.volume.opening import open_volume
from tests.support.simulation.network import SimPool, SimServer
from tests.support.simulation.primitives import SimClock, kernel


class SimReplay:
    """Registers itself and answers runs. Two runs at once have sessions of their own."""

    def __init__(self, settings: Settings, coordination: Coordination) -> None:
        own = settings.instance
        self._settings = settings
        self._clock = SimClock()
        hello = Hello(PROTOCOL_VERSION, own.instance_id, own.name, "replay")
        self._pool = SimPool(hello)
        self._server = SimServer(ServedService("Replay", self), hello, None)
        self._server.start()
        self._session = coordination.open_session("replay", self._server.address)
        self._system = BookkeeperSystem(settings, self._clock, kernel().rng)

    def run(self, ranges: bytes) -> bytes:
        """See the contract."""
        wanted = ranges_from_table(decode_table(ranges, RANGE_SCHEMA))
        sessions = Sessions(Registry({"bookkeeper": lambda: self._system}), self._settings)
        volume = volume_of(wanted, open_volume(self._settings), self._pool.tserver, self._clock)
        shipper = Shipper(sessions, volume, self._settings, self._clock)
        results = list(shipper.ship(wanted, self._settings.replay.run_budget_ms))
        return encode_table([results_to_batch(results)], RESULT_SCHEMA)
