"""Promises to operators: from when on a table's records travel to a target, and from when on no more (R14).

Arrives: answers to commands. Leaves: the lanes that every record gets from now on, and those that none gets. This is
independent of stamps and of the books: it knows what commands returned, and when.

An answer counts only while no other change of targets is under way in the cluster: it tells the configuration, and may
show a change that another command has written and that is not in force yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from bookkeeper.coordination.config_tree import TableConfig
from bookkeeper.metadata import keys
from bookkeeper.model import DEFAULT_GROUP, TargetKey
from bookkeeper.rpc.contract.messages import ReplicationConfig
from tests.support.simulation.cluster import Cluster

Lane = tuple[TargetKey, str]
"""A target, and one of the groups that it gets. Once ended it never comes back: a new one has a new incarnation."""


@dataclass(eq=False)
class Promises:
    """Lanes of one cluster by what was promised of them."""

    open: set[Lane] = field(default_factory=set)
    ended: set[Lane] = field(default_factory=set)

    def answered(self, cluster: Cluster, name: str, configs: Iterable[ReplicationConfig]) -> None:
        """A command that changes the targets of a table has returned them."""
        table = next((found for found in cluster.config().tables.values() if found.name == name), None)
        if table is None or changes_under_way(cluster):
            return
        lanes = {(c.target, group) for c in configs for group in c.groups or table.group_names()}
        known = {lane for lane in self.open if lane[0].source_table_id == table.table_id}
        self.open |= lanes
        self.open -= known - lanes
        self.ended |= known - lanes

    def of(self, lanes: set[Lane], table: TableConfig, family: bytes) -> frozenset[Lane]:
        """Those of ``lanes`` that a record of a table is for."""
        group = group_of(table, family)
        return frozenset(lane for lane in lanes if lane[0].source_table_id == table.table_id and lane[1] == group)


def group_of(table: TableConfig, family: bytes) -> str:
    """The locality group of a family."""
    return next((group.name for group in table.groups if family in group.families), DEFAULT_GROUP)


def changes_under_way(cluster: Cluster) -> bool:
    """Some operation of a master changes targets, or waits until a change is in force."""
    return any(
        json.loads(cell.value)["type"] in ("enable_replication", "disable_replication", "delete_table")
        for _, column, cell in cluster.table.names()
        if column == keys.FATE_OP
    )


def lanes_in_force(cluster: Cluster) -> set[Lane]:
    """The configured targets now."""
    return {
        (target.key, group)
        for table in cluster.config().tables.values()
        for target in table.targets
        for group in target.groups or table.group_names()
    }
