"""Accumulo's names for what ``definecluster`` and ``enablereplication`` write: pure, both ways.

``instance.replication.name`` is this cluster's name, ``instance.cluster.NAME.zookeepers`` the quorum of a peer, and
``table.replication.GROUP`` the peers of a locality group. Arrives: what is configured, and names with values as typed.
Leaves: values to show, or the changes that the commands make: a target begins at a moment and has an incarnation (rules
R5 and R14), which a value alone can't give it. Source: ACCUMULO-378, "Configuration".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bookkeeper.errors import InvalidInputError, NotFoundError, RefusedError
from bookkeeper.model import DEFAULT_GROUP
from bookkeeper.rpc.contract.messages import ClusterInfo, ReplicationConfig

SITE_PREFIX = "instance."
OWN_NAME = "instance.replication.name"
CLUSTER_PREFIX = "instance.cluster."
CLUSTER_SUFFIX = ".zookeepers"
GROUP_PREFIX = "table.replication."

CLUSTER_MEANING = "masters of a peer: definecluster, deletecluster"
GROUP_MEANING = "peers of a locality group: enablereplication, disablereplication"


@dataclass(frozen=True, slots=True)
class PeerChange:
    """Define a peer; without a quorum, forget it."""

    name: str
    quorum: str | None


@dataclass(frozen=True, slots=True)
class TargetChange:
    """Send these groups to a peer, or stop that. ``remote_table`` None: the table of the same name there."""

    cluster: str
    groups: tuple[str, ...]
    is_enabled: bool
    remote_table: str | None = None


def site_values(own_name: str, clusters: Iterable[ClusterInfo]) -> dict[str, str]:
    """The site's names with their values."""
    return {OWN_NAME: own_name, **{f"{CLUSTER_PREFIX}{one.name}{CLUSTER_SUFFIX}": one.quorum for one in clusters}}


def table_values(groups: Iterable[str], targets: Sequence[ReplicationConfig]) -> dict[str, str]:
    """``groups`` are those that the table names, ``targets`` the table's; a group that goes nowhere is left out."""
    found = {group: carriers(group, targets) for group in (*groups, DEFAULT_GROUP)}
    return {f"{GROUP_PREFIX}{group}": ",".join(clusters) for group, clusters in sorted(found.items()) if clusters}


def carriers(group: str, targets: Iterable[ReplicationConfig]) -> list[str]:
    """The peers that get a group; a target that names no group carries all of them."""
    return sorted({target.target.cluster for target in targets if not target.groups or group in target.groups})


def is_of_site(names: Sequence[str]) -> bool:
    """Whether these are the site's. Raises InvalidInputError when some are and others are a table's."""
    of_site = [name for name in names if name.startswith(SITE_PREFIX)]
    if of_site and len(of_site) < len(names):
        raise InvalidInputError(f"{', '.join(of_site)} are the site's, the others a table's; use two commands")
    return bool(of_site)


def is_of_target(name: str) -> bool:
    """Whether it says where a table's group goes."""
    return name.startswith(GROUP_PREFIX)


def peer_changes(changes: Mapping[str, str], removals: Iterable[str], known: Iterable[ClusterInfo]) -> list[PeerChange]:
    """What the site's names ask for. Raises InvalidInputError, NotFoundError, RefusedError for this cluster's name."""
    defined = {one.name for one in known}
    asked = [PeerChange(peer_of(name), quorum) for name, quorum in changes.items()]
    for name in map(peer_of, removals):
        if name not in defined:
            raise NotFoundError(f"no cluster {name}; clusters lists all clusters")
        asked.append(PeerChange(name, None))
    refuse_twice([change.name for change in asked])
    return asked


def peer_of(name: str) -> str:
    """The peer that a site's name is about."""
    if name == OWN_NAME:
        raise RefusedError(
            f"{OWN_NAME} is the setting instance.name: change it in this cluster's bookkeeper.toml and start it again"
        )
    peer = name.removeprefix(CLUSTER_PREFIX).removesuffix(CLUSTER_SUFFIX)
    if not peer or name != f"{CLUSTER_PREFIX}{peer}{CLUSTER_SUFFIX}":
        raise InvalidInputError(f"unknown property {name}; the site has {CLUSTER_PREFIX}NAME{CLUSTER_SUFFIX}")
    return peer


def target_changes(
    changes: Mapping[str, str],
    removals: Iterable[str],
    groups: Iterable[str],
    targets: Sequence[ReplicationConfig],
    known: Iterable[ClusterInfo],
) -> list[TargetChange]:
    """What a table's names ask for: one change for each peer that gets more groups, then for each that gets fewer.

    Raises NotFoundError for a group or peer that there is not, InvalidInputError for a name that comes twice.
    """
    asked = [(name.removeprefix(GROUP_PREFIX), peers_in(peers)) for name, peers in changes.items()]
    asked += [(name.removeprefix(GROUP_PREFIX), []) for name in removals]
    refuse_twice([group for group, _ in asked])
    has = sorted({*groups, DEFAULT_GROUP})
    defined = {one.name for one in known}
    more: dict[str, list[str]] = {}
    fewer: dict[str, list[str]] = {}
    for group, peers in asked:
        if group not in has:
            raise NotFoundError(f"there is no locality group {group}; the table has {', '.join(has)}")
        if missing := sorted(set(peers) - defined):
            raise NotFoundError(f"no cluster {', '.join(missing)}; definecluster NAME QUORUM")
        before = carriers(group, targets)
        for peer in sorted(set(peers) - set(before)):
            more.setdefault(peer, []).append(group)
        for peer in sorted(set(before) - set(peers)):
            fewer.setdefault(peer, []).append(group)
    return [
        *(TargetChange(peer, tuple(found), True, remote_table_of(peer, targets)) for peer, found in more.items()),
        *(TargetChange(peer, tuple(found), False) for peer, found in fewer.items()),
    ]


def peers_in(text: str) -> list[str]:
    """``cluster1,cluster2``; nothing at all is none. Raises InvalidInputError."""
    peers = [peer.strip() for peer in text.split(",")] if text.strip() else []
    if not all(peers):
        raise InvalidInputError(f"{text!r}: write CLUSTER,CLUSTER")
    return peers


def remote_table_of(peer: str, targets: Iterable[ReplicationConfig]) -> str | None:
    """Where other groups of the table go at a peer; None when that is nowhere, or not one table."""
    names = {target.remote_table for target in targets if target.target.cluster == peer}
    return names.pop() if len(names) == 1 else None


def refuse_twice(asked: Sequence[str]) -> None:
    """Raise InvalidInputError when something is set and deleted, or deleted twice."""
    twice = sorted({one for one in asked if asked.count(one) > 1})
    if twice:
        raise InvalidInputError(f"{', '.join(twice)} comes twice; say once what it shall be")
