"""The messages about hosts and replicas for operators. Field names are those of the contract, which describes them."""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.model import Extent
from bookkeeper.rpc.contract.replica_messages import HeldReplicaInfo


@dataclass(frozen=True, slots=True)
class HostInfo:
    """A host of the cluster. ``incarnation``, ``address`` and ``zone``: None while it is away; ``bytes``: of what it
    holds, None when it does not answer. ``away_since_ms``: wall clock when a master noticed that it was away; None
    while it lives.
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
    zone: str | None = None
    away_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ReplicaStanding:
    """One replica that a tablet's row names, and what its host says; ``held``: None while the host is away, or holds
    another placement.
    """

    host: str
    placement: str
    role: str
    leads: bool
    held: HeldReplicaInfo | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TabletReplicas:
    """The replicas of a tablet. ``named``: the state that the books name, 0 = none."""

    extent: Extent
    named: int
    copies_needed: int
    replicas: tuple[ReplicaStanding, ...]
