"""The messages about hosts and replicas for operators. Field names are those of the contract, which describes them."""

from __future__ import annotations

from msgspec import Struct

from bookkeeper.model import Extent
from bookkeeper.rpc.contract.replica_messages import HeldReplicaInfo


class HostInfo(Struct, frozen=True):
    """A host of the cluster. ``incarnation``, ``address`` and ``zone``: None while it is away; ``bytes``: of what it
    holds, None when it does not answer. ``away_since_ms``: wall clock when a master noticed that it was away; None
    while it lives.

    ``lacking``: what leaders on other hosts have for it; ``unsent``: what other hosts lack of the tablets that it
    leads; ``joined_bytes`` of ``joining_bytes``: the part of the joining replicas that is here; ``lost_logs``: how many
    logs on it tablets go on without.
    """

    name: str
    incarnation: str | None
    address: str | None
    draining: bool
    replicas: int
    joining: int
    leads: int
    bytes: int | None  # the name in the contract
    problem: str = ""
    lacking_segments: int = 0
    lacking_bytes: int = 0
    unsent_segments: int = 0
    unsent_bytes: int = 0
    joining_bytes: int = 0
    joined_bytes: int = 0
    zone: str | None = None
    away_since_ms: int | None = None
    lost_logs: int = 0


class WaitingFiles(Struct, frozen=True):
    """Files on a host that its newest state does not list, and the reason why they are still there."""

    reason: str
    names: tuple[str, ...]
    bytes: int  # the name in the contract


class ReplicaStanding(Struct, frozen=True):
    """One replica that a tablet's row names, and what its host says; ``held``: None while the host is away, or holds
    another placement.
    """

    host: str
    placement: str
    role: str
    leads: bool
    held: HeldReplicaInfo | None = None
    problem: str = ""
    waiting: tuple[WaitingFiles, ...] = ()


class SegmentStanding(Struct, frozen=True):
    """A segment that any host of a tablet has. ``files`` and ``bytes``: those that it brings; ``held_by``: hosts with
    each file of the state after it; ``acked_by``: hosts that told the leader so; ``waits_for``: in words.
    """

    segment_id: int
    base: int | None
    is_major: bool
    files: int
    bytes: int  # the name in the contract
    retained: int
    held_by: tuple[str, ...]
    acked_by: tuple[str, ...]
    waits_for: str


class TabletReplicas(Struct, frozen=True):
    """The replicas of a tablet. ``named``: the state that the books name, 0 = none; ``directory``: the tablet's, which
    it keeps; ``wanted``: ``table.replicas``; ``problem``: why no host leads it; ``segments``: old to new, empty unless
    they were asked for; ``lost_logs``: those that it is served without.
    """

    extent: Extent
    named: int
    copies_needed: int
    replicas: tuple[ReplicaStanding, ...]
    directory: str = ""
    wanted: int = 0
    problem: str = ""
    segments: tuple[SegmentStanding, ...] = ()
    lost_logs: tuple[str, ...] = ()

    @property
    def leader(self) -> str | None:
        """The host that leads it."""
        return next((one.host for one in self.replicas if one.leads), None)
