"""Facts in a tablet's row about its replicas: which ones count, where to send, whether this host may lead. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bookkeeper.errors import RefusedError
from bookkeeper.model import Extent, HostIdentity
from bookkeeper.replicas.placements import Role, RowReplica, TabletRow, targets_of, voters_of
from bookkeeper.replicas.rules import CORRECTED
from bookkeeper.replicas.values import Placement, Target


def voters_in(replicas: Sequence[RowReplica]) -> tuple[Placement, ...]:
    """The placements that count as copies (N3)."""
    return voters_of(TabletRow("", tuple(replicas)))


def targets_on(replicas: Sequence[RowReplica], extent: Extent, host: str) -> tuple[Target, ...]:
    """Where a leader on this host sends: all other replicas, joining ones too."""
    return targets_of(TabletRow(str(extent), tuple(replicas)), (), host, CORRECTED)


def own_replica(replicas: Sequence[RowReplica], extent: Extent, host: HostIdentity) -> RowReplica:
    """The replica of this host, which may lead. Raises RefusedError."""
    own = next((one for one in replicas if one.host == host.name), None)
    if own is None:
        hosts = ", ".join(sorted(one.host for one in replicas))
        raise RefusedError(f"tablet {extent} has no replica on host {host.name}: assign it to one of {hosts}")
    if own.placement.incarnation != host.incarnation:
        raise RefusedError(
            f"the replica {own.placement.id} of tablet {extent} was placed on another disk of host {host.name} "
            f"({own.placement.incarnation}, now {host.incarnation}): assign it to another replica, and give this host "
            "a new one"
        )
    if own.role is not Role.VOTER:
        raise RefusedError(f"the replica of tablet {extent} on host {host.name} is joining: assign it to a voter")
    return own


def check_complete(named: Sequence[str], held: Collection[str], extent: Extent, host: str) -> None:
    """Raise RefusedError unless the host holds each file of the named state."""
    lacking = [name for name in named if name not in held]
    if lacking:
        raise RefusedError(
            f"host {host} lacks {lacking[0]} of the named state of tablet {extent} ({len(lacking)} of {len(named)} "
            "files): assign it to a replica that has them"
        )
