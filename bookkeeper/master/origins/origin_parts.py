"""The entrance of this room: the objects of one reign that other rooms call (rule R22)."""

from __future__ import annotations

from typing import Self

from msgspec import Struct

from bookkeeper.clock import Clock, SteadyWall
from bookkeeper.master.calls.peer_masters import PeerMasters
from bookkeeper.master.calls.tservers import TServers
from bookkeeper.master.fate.engine import FateEngine
from bookkeeper.master.origins.origin_gc import OriginGc
from bookkeeper.master.origins.origin_index import OriginIndex, OriginMemory
from bookkeeper.master.origins.origin_service import OriginService
from bookkeeper.master.reign.reign_stores import ReignStores


class OriginParts(Struct, frozen=True):
    """``gc`` works in the collector's thread, ``service`` answers other clusters."""

    gc: OriginGc
    service: OriginService

    @classmethod
    def of(
        cls,
        stores: ReignStores,
        clock: Clock,
        age_clock: SteadyWall,
        tservers: TServers,
        peers: PeerMasters,
        fate: FateEngine,
        own_instance_id: str,
        paths_apart_ms: float,
    ) -> Self:
        """The parts of a reign. ``paths_apart_ms``: the setting ``tserver.paths_apart_ms``."""
        memory = OriginMemory(OriginIndex(tservers.volume), own_instance_id, paths_apart_ms)
        return cls(
            OriginGc(stores, clock, age_clock, fate, memory),
            OriginService(stores, clock, tservers, peers, fate, memory),
        )
