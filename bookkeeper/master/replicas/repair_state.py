"""The input of the plans of repair and balance: hosts, tablets, and the limits of the plan. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct, field

from bookkeeper.master.index.tablet_replicas import TabletReplica
from bookkeeper.master.replicas.held_states import HeldState

LEAD_MIN_MS = 10_000
"""ms for which a tablet has a leader at least before another one leads it for the balance alone."""


class HostState(Struct, frozen=True):
    """A host: the incarnation of its disk while it lives, else None, and for how long it has been away."""

    name: str
    incarnation: str | None
    away_ms: float = 0
    is_draining: bool = False
    replicas: int = 0
    size_bytes: int = 0
    zone: str = ""

    @property
    def zone_key(self) -> str:
        """The zone; a host without one is a zone of its own."""
        return f"zone {self.zone}" if self.zone else f"host {self.name}"

    @property
    def is_alive(self) -> bool:
        """Whether a session of it lives."""
        return self.incarnation is not None


class TabletState(Struct, frozen=True):
    """A tablet with several replicas, its row read just now.

    ``named``: the state that the books name, 0 = none; ``leader``: the host that leads it, None while nobody does;
    ``held``: by host, what it holds of the placement of the row; ``joining_ms``: by host, how long this master has
    known that a replica is joining; ``led_ms``: how long it has known the leader; ``chosen``: the hosts on which an
    operation wants it, empty without one.
    """

    row: bytes
    replicas: tuple[TabletReplica, ...]
    wanted: int
    copies_needed: int
    named: int = 0
    leader: str | None = None
    held: Mapping[str, HeldState] = field(default_factory=dict)
    joining_ms: Mapping[str, float] = field(default_factory=dict)
    led_ms: float = 0
    chosen: frozenset[str] = frozenset()

    @property
    def size_bytes(self) -> int:
        """The size of one replica."""
        return max((held.size_bytes for held in self.held.values()), default=0)


class RepairLimits(Struct, frozen=True):
    """``repair_after_ms``: a host that is away for longer is replaced; ``joins_max``: replicas that join at once;
    ``flight_ms``: a write of the books arrives within it (R4); ``lead_min_ms``: a leader moves for the balance only
    after it.
    """

    repair_after_ms: float
    joins_max: int
    flight_ms: float
    lead_min_ms: float = LEAD_MIN_MS


# ---- steps: each but the last is the write of one cell


class Join(Struct, frozen=True):
    """The host gets a replica under a new placement; a replica that it lost is forgotten by this. ``in_place_of``: the
    placement that leaves in the end, for a join of the balance.
    """

    row: bytes
    host: str
    incarnation: str
    reason: str
    in_place_of: str = ""


class Finalize(Struct, frozen=True):
    """The joining replica votes from now on (E-54)."""

    row: bytes
    replica: TabletReplica
    reason: str


class Demote(Struct, frozen=True):
    """The replica votes no more, and still gets all segments, until it may leave."""

    row: bytes
    replica: TabletReplica
    reason: str


class Leave(Struct, frozen=True):
    """The row no longer names the replica; its host deletes it."""

    row: bytes
    replica: TabletReplica
    reason: str


class Lead(Struct, frozen=True):
    """The tablet moves to this voter."""

    row: bytes
    host: str
    reason: str


Step: TypeAlias = Join | Finalize | Demote | Leave | Lead
