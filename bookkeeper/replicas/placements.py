"""A tablet's row names its replicas: the role and the targets of a host follow from it; so do joins and leaves.

The operations change a row and may be repeated: a second time they change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.replicas.instructions import Name
from bookkeeper.replicas.rules import Rules
from bookkeeper.replicas.values import (
    EVERYTHING,
    KeyRange,
    Placement,
    ProtocolError,
    Replica,
    Segment,
    Stage,
    Target,
    is_acked,
)


class Role(Enum):
    """What a host is to a tablet: a cell ``replica:<host>`` of its row."""

    VOTER = "voter"
    JOINING = "joining"


class Phase(Enum):
    """Where a tablet's life stands."""

    LOADING = "loading"
    """A child of a split that is not finalized."""
    SERVING = "serving"
    SPLITTING = "splitting"
    SPLIT = "split"
    """The children serve; old replicas hand over the rest."""


class RowReplica(Struct, frozen=True):
    """A host in a tablet's row."""

    host: str
    placement: Placement
    role: Role = Role.VOTER


class TabletRow(Struct, frozen=True):
    """What the books say about a tablet's replicas."""

    tablet: str
    replicas: tuple[RowReplica, ...]
    leader: str | None = None
    key_range: KeyRange = EVERYTHING
    phase: Phase = Phase.SERVING
    split_head: int | None = None
    """The root when the split began: the children need it before the split ends (E-62)."""

    parent: str | None = None
    """The tablet that still hands its data to this one. Till then this one neither splits nor merges."""
    term: int = 0
    """The newest term. While a tablet splits, it and its children take their terms from one counter, so the ids of
    their states are unique.
    """

    def replica(self, host: str) -> RowReplica | None:
        """The replica on a host."""
        return next((one for one in self.replicas if one.host == host), None)


def voters_of(row: TabletRow) -> tuple[Placement, ...]:
    """The placements that count as copies and that may lead."""
    return tuple(one.placement for one in row.replicas if one.role is Role.VOTER)


def stage_of(row: TabletRow, host: str, rules: Rules) -> Stage | None:
    """The role of a host: the stage of its replica; None where the row does not name it."""
    found = row.replica(host)
    if found is None:
        return None
    if found.role is Role.JOINING:
        return Stage.JOINING if rules.p8_joining_stage else Stage.LOADING
    by_phase = {Phase.LOADING: Stage.LOADING, Phase.SPLIT: Stage.UNLOAD}
    return by_phase.get(row.phase, Stage.LIVE)


def targets_of(row: TabletRow, children: tuple[TabletRow, ...], host: str, rules: Rules) -> tuple[Target, ...]:
    """Where a host has to send: the other replicas; while the tablet splits, also the leaders of the children with
    their ranges (E-58); after it has split, the children alone (E-65).

    In UNLOAD, to the letter, each replica of a child is a target; the corrected rules name its leader only (P7).
    """
    others = tuple(Target(one.host, one.placement) for one in row.replicas if one.host != host)
    if row.phase is Phase.SPLITTING:
        return others + tuple(_leader_of(child) for child in children)
    if row.phase is not Phase.SPLIT:
        return others
    if rules.p7_unload_to_leader:
        return tuple(_leader_of(child) for child in children)
    return tuple(Target(one.host, one.placement, child.key_range) for child in children for one in child.replicas)


def _leader_of(child: TabletRow) -> Target:
    found = child.replica(child.leader) if child.leader is not None else None
    if found is None:
        raise ProtocolError(f"tablet {child.tablet} has no leader: elect one, then go on with the split")
    return Target(found.host, found.placement, child.key_range, child.term)


def may_lead(replica: Replica) -> bool:
    """Whether an election may choose a replica: any but a joiner or an unloading one (E-22, E-23, E-64)."""
    return replica.stage in (Stage.LIVE, Stage.LOADING)


def start_of(replica: Replica, named: Name | None, rules: Rules) -> Segment | None:
    """The state from which a host leads: the one that the books name; None: an empty tablet. To the letter, its root.

    Segments that the host holds beyond the named state are covered by the logs that the term replays (N6). Raises
    ProtocolError if the host lacks a file of the named state.
    """
    if not rules.n6_named_start:
        root = replica.entry(replica.root)
        return None if root is None else root.segment
    if named is None:
        return None
    lacking = sorted(set(named.files) - replica.files)
    if lacking:
        raise ProtocolError(f"{replica.host} lacks file {lacking[0]} of the named state: elect a replica that has it")
    entry = replica.entry(named.state_id)
    if entry is not None:
        return entry.segment
    return Segment(named.state_id, None, is_major=True, retained=named.files, logs=named.logs)


def join(row: TabletRow, host: str, placement: Placement) -> TabletRow:
    """JOIN: the row names a new follower (E-53)."""
    found = row.replica(host)
    if found is not None and found.placement == placement:
        return row
    if found is not None:
        raise ProtocolError(f"{host} is a replica of tablet {row.tablet} already: let it leave before it joins anew")
    return replace(row, replicas=(*row.replicas, RowReplica(host, placement, Role.JOINING)))


def may_finalize_join(
    leader: Replica,
    placement: Placement,
    named: Name | None,
    voters: Sequence[Placement],
    copies_min: int,
    rules: Rules,
) -> bool:
    """Whether a joiner has the leader's latest segment (E-54). If it lacks the named state, from which it would have to
    lead, it waits while the voters can name the latest state without it.
    """
    entry = leader.entry(leader.root)
    if entry is None:
        return True
    if not is_acked(entry, placement, rules.p10_incarnation):
        return False
    copies = sum(one == leader.placement or is_acked(entry, one, rules.p10_incarnation) for one in voters)
    return _has_named(leader, placement, named, rules) or copies < copies_min or not rules.n6_named_start


def _has_named(leader: Replica, placement: Placement, named: Name | None, rules: Rules) -> bool:
    if named is None:
        return True
    entry = leader.entry(named.state_id)
    return entry is not None and is_acked(entry, placement, rules.p10_incarnation)


def join_finalized(row: TabletRow, host: str, placement: Placement) -> TabletRow:
    """JOIN_FINALIZE: the joiner becomes a voter. ProtocolError: the row has another placement of this host."""
    found = row.replica(host)
    if found is None or found.placement.id != placement.id:
        raise ProtocolError(f"placement {placement.id} of {host} is not joining tablet {row.tablet}: begin with a join")
    voter = replace(found, role=Role.VOTER)
    return replace(row, replicas=tuple(voter if one.host == host else one for one in row.replicas))


def left(row: TabletRow, host: str, copies_min: int) -> TabletRow:
    """LEAVE: the row no longer names a host. ProtocolError: it leads, or too few voters would be left."""
    if row.leader == host:
        raise ProtocolError(f"{host} leads tablet {row.tablet}: elect another leader before it leaves")
    found = row.replica(host)
    if found is None:
        return row
    after = replace(row, replicas=tuple(one for one in row.replicas if one.host != host))
    if found.role is Role.VOTER and len(voters_of(after)) < copies_min:
        raise ProtocolError(f"tablet {row.tablet} needs {copies_min} voters: let another host join first")
    return after
