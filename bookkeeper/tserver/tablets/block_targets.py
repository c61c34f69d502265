"""The configuration as the write path needs it: the targets and locality groups that each block header carries.

A :class:`ConfigView` is made from the cluster's configuration once for each generation, so that the commit thread only
copies references. Pure; the simulation calls the same functions. Rules: R13 and R14.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from msgspec import Struct, field

from bookkeeper.config.table_properties import DEFAULT_PROPERTIES, TableProperties, parse_properties
from bookkeeper.coordination.config_tree import ClusterConfig
from bookkeeper.errors import NotFoundError
from bookkeeper.model import TargetKey
from bookkeeper.peers.registry import BUILT_IN, split_quorum
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.wal.blocks import block_pb2 as pb
from bookkeeper.storage.wal.blocks.block_messages import block_target_to_pb
from bookkeeper.tserver.shipping.open_streams import Destination

ReadOnly = Literal["", "table", "cluster"]
"""Which setting refuses users' writes: none, that of the table, or that of the cluster."""


class TableView(Struct, frozen=True):
    """One table in one generation: its groups, the targets of each new block, and whether it is read-only."""

    table_id: str
    name: str
    online: bool
    groups: GroupMap
    block_targets: tuple[pb.BlockTarget, ...]
    peers: tuple[str, ...] = ()
    """The instance ids of the targets, in their order."""
    properties: TableProperties = DEFAULT_PROPERTIES
    read_only: ReadOnly = ""


class ConfigView(Struct, frozen=True):
    """One generation of the configuration."""

    generation: int
    tables: Mapping[str, TableView]
    users: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The authorizations of each user that has some."""
    destinations: Mapping[TargetKey, Destination] = field(default_factory=dict)
    """Of each configured target whose peer is defined."""

    def table(self, table_id: str) -> TableView:
        """A table that takes writes; raises NotFoundError when there is none or it is being deleted."""
        view = self.tables.get(table_id)
        if view is None or not view.online:
            raise NotFoundError(f"there is no table with id {table_id} here (any more); list the tables again")
        return view


def peers_of(config: ClusterConfig, table_id: str) -> tuple[str, ...]:
    """The instance ids of the targets in force, in the order of the targets."""
    return tuple(target.peer_instance_id for target in config.targets_of(table_id))


def view_of(config: ClusterConfig) -> ConfigView:
    """The view of one generation; raises InvalidInputError when two groups of a table share a family, or for a
    property that this software does not know.
    """
    return ConfigView(
        config.generation,
        {table_id: _table_view(config, table_id) for table_id in config.tables},
        {user: frozenset(granted) for user, granted in config.users.items()},
        destinations_of(config),
    )


def destinations_of(config: ClusterConfig) -> dict[TargetKey, Destination]:
    """Where the configured targets are."""
    found = {}
    for table in config.tables.values():
        for target in table.targets:
            peer = config.clusters.get(target.key.cluster)
            if peer is not None:
                system, _ = split_quorum(peer.quorum)
                found[target.key] = Destination(peer.quorum, target.peer_instance_id, system == BUILT_IN)
    return found


def _table_view(config: ClusterConfig, table_id: str) -> TableView:
    table = config.tables[table_id]
    properties = parse_properties(table.properties)
    # R13: every block carries all targets of the table, also those for which it has no record. So each log of a
    # tablet's chain is in the books of each target, as the order of R24 needs.
    block_targets = config.block_targets_of(table_id)
    return TableView(
        table_id,
        table.name,
        table.state != "deleting",  # a table that is being created has no location yet
        GroupMap({group.name: group.families for group in table.groups}),
        tuple(block_target_to_pb(block_target) for block_target in block_targets),
        peers_of(config, table_id),
        properties,
        read_only_by(config.read_only, properties),
    )


def read_only_by(cluster_is: bool, properties: TableProperties) -> ReadOnly:
    """The setting that refuses users' writes to a table; the cluster's setting comes before the table's."""
    if cluster_is:
        return "cluster"
    return "table" if properties.read_only == "true" else ""


def groups_present(families: Collection[bytes], groups: GroupMap) -> list[pb.Group]:
    """The groups that have a family in a block, with those families, as its header lists them."""
    return [pb.Group(name=name, families=found) for name, found in groups.by_group(families).items()]
