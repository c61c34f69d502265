"""Accumulo's property names for ``definecluster`` and ``enablereplication``: pure conversions in both directions.

``instance.replication.name`` is this cluster's name, ``instance.cluster.NAME.zookeepers`` the quorum of a peer, and
``table.replication.GROUP`` the peers of a locality group. A changed value becomes the change of a command, because a
target begins at a moment and has an incarnation (rules R5 and R14). Source: ACCUMULO-378, "Configuration".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from bookkeeper.errors import InvalidInputError, NotFoundError, RefusedError
from bookkeeper.model import DEFAULT_GROUP
from bookkeeper.rpc.contract.messages import ClusterInfo, ReplicationConfig

SITE_PREFIX = "instance."
OWN_NAME = "instance.replication.name"
CLUSTER_PREFIX = "instance.cluster."
CLUSTER_SUFFIX = ".zookeepers"
GROUP_PREFIX = "table.replication."

CLUSTER_MEANING = "quorum of a peer: definecluster, deletecluster"
GROUP_MEANING = "peers of a locality group: enablereplication, disablereplication"


class PeerChange(Struct, frozen=True):
    """Define a peer, or remove it if ``quorum`` is None."""

    name: str
    quorum: str | None


class TargetChange(Struct, frozen=True):
    """Start or stop to send groups to a peer. ``remote_table`` None: the table of the same name there."""

    cluster: str
    groups: tuple[str, ...]
    is_enabled: bool
    remote_table: str | None = None


def site_values(own_name: str, clusters: Iterable[ClusterInfo]) -> dict[str, str]:
    """The properties of the site."""
    return {OWN_NAME: own_name, **{f"{CLUSTER_PREFIX}{one.name}{CLUSTER_SUFFIX}": one.quorum for one in clusters}}


def table_values(groups: Iterable[str], targets: Sequence[ReplicationConfig]) -> dict[str, str]:
    """The properties of a table with these named groups and targets; a group without a peer has none."""
    found = {group: peers_of_group(group, targets) for group in (*groups, DEFAULT_GROUP)}
    return {f"{GROUP_PREFIX}{group}": ",".join(clusters) for group, clusters in sorted(found.items()) if clusters}


def peers_of_group(group: str, targets: Iterable[ReplicationConfig]) -> list[str]:
    """The peers that get a group; a target without groups gets all of them."""
    return sorted({target.target.cluster for target in targets if not target.groups or group in target.groups})


def are_site_properties(names: Sequence[str]) -> bool:
    """Whether these are properties of the site. Raises InvalidInputError if others are of a table."""
    of_site = [name for name in names if name.startswith(SITE_PREFIX)]
    if of_site and len(of_site) < len(names):
        raise InvalidInputError(f"{', '.join(of_site)} are of the site, the others of a table; use two commands")
    return bool(of_site)


def peer_changes(
    changes: Mapping[str, str], removals: Iterable[str], clusters: Iterable[ClusterInfo]
) -> list[PeerChange]:
    """Changes of peers for changed properties of the site.

    Raises NotFoundError for an unknown peer, RefusedError for this cluster's name, InvalidInputError for other errors.
    """
    defined = {one.name for one in clusters}
    requested = [PeerChange(peer_of(name), quorum) for name, quorum in changes.items()]
    for name in map(peer_of, removals):
        if name not in defined:
            raise NotFoundError(f"no cluster {name}; clusters lists all clusters")
        requested.append(PeerChange(name, None))
    refuse_duplicates([change.name for change in requested])
    return requested


def peer_of(name: str) -> str:
    """The peer of a property of the site. Raises RefusedError, InvalidInputError."""
    if name == OWN_NAME:
        raise RefusedError(
            f"{OWN_NAME} is the setting instance.name: change it in bookkeeper.toml and restart the cluster"
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
    clusters: Iterable[ClusterInfo],
) -> list[TargetChange]:
    """Changes of targets for changed properties of a table: one for each peer with more groups, then with fewer.

    Raises NotFoundError for an unknown group or peer, InvalidInputError for a repeated property.
    """
    requested = [(name.removeprefix(GROUP_PREFIX), peers_in(peers)) for name, peers in changes.items()]
    requested += [(name.removeprefix(GROUP_PREFIX), []) for name in removals]
    refuse_duplicates([group for group, _ in requested])
    table_groups = sorted({*groups, DEFAULT_GROUP})
    defined = {one.name for one in clusters}
    more: dict[str, list[str]] = {}
    fewer: dict[str, list[str]] = {}
    for group, peers in requested:
        if group not in table_groups:
            raise NotFoundError(f"no locality group {group}; the table has {', '.join(table_groups)}")
        if missing := sorted(set(peers) - defined):
            raise NotFoundError(f"no cluster {', '.join(missing)}; definecluster NAME QUORUM")
        before = peers_of_group(group, targets)
        for peer in sorted(set(peers) - set(before)):
            more.setdefault(peer, []).append(group)
        for peer in sorted(set(before) - set(peers)):
            fewer.setdefault(peer, []).append(group)
    return [
        *(TargetChange(peer, tuple(found), True, remote_table_of(peer, targets)) for peer, found in more.items()),
        *(TargetChange(peer, tuple(found), False) for peer, found in fewer.items()),
    ]


def peers_in(text: str) -> list[str]:
    """``cluster1,cluster2``: peers; an empty text has none. Raises InvalidInputError."""
    peers = [peer.strip() for peer in text.split(",")] if text.strip() else []
    if not all(peers):
        raise InvalidInputError(f"{text!r}: write CLUSTER,CLUSTER")
    return peers


def remote_table_of(peer: str, targets: Iterable[ReplicationConfig]) -> str | None:
    """The one table at a peer that gets other groups of the table; None without one, or with several."""
    names = {target.remote_table for target in targets if target.target.cluster == peer}
    return names.pop() if len(names) == 1 else None


def refuse_duplicates(requested: Sequence[str]) -> None:
    """Raise InvalidInputError if a property is set and deleted, or deleted twice."""
    twice = sorted({one for one in requested if requested.count(one) > 1})
    if twice:
        raise InvalidInputError(f"{', '.join(twice)} comes twice; set or delete it once")
