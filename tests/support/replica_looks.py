"""Looks at the replicas of a table's tablets in a running cluster, each from one answer of the master."""

from __future__ import annotations

from collections.abc import Set

from bookkeeper.errors import TransientError
from bookkeeper.rpc.contract.messages import TabletReplicas
from tests.support.cluster import Cluster


def tablets(cluster: Cluster, table: str = "t") -> list[TabletReplicas]:
    """The replicas of each tablet; none while the master changes."""
    try:
        return [*cluster.client.hosts.replicas(cluster.client.tables.get(table).table_id)]
    except TransientError:
        return []


def voters(tablet: TabletReplicas) -> set[str]:
    """The hosts of a tablet that vote and hold the named state."""
    return {
        one.host
        for one in tablet.replicas
        if one.role == "voter" and one.held is not None and tablet.named in one.held.complete
    }


def wait_for_voters(cluster: Cluster, hosts: Set[str]) -> TabletReplicas:
    """The first tablet once exactly these hosts vote for it and hold its named state."""
    looks: list[TabletReplicas] = []

    def is_there() -> bool:
        looks[:] = tablets(cluster)[:1]
        return any(voters(one) == hosts for one in looks)

    cluster.wait_until(is_there, f"voters {sorted(hosts)}")
    return looks[0]


def wait_for_copies(cluster: Cluster, count: int) -> TabletReplicas:
    """The only tablet once so many hosts vote and hold its newest state, and the books name that. A flush returns
    before its state is named: a look at the state that is named until then, and another one behind it, differ.
    """
    looks: list[TabletReplicas] = []

    def is_settled() -> bool:
        looks[:] = tablets(cluster)
        return len(looks) == 1 and len(voters(looks[0])) == count and is_named(looks[0])

    cluster.wait_until(is_settled, f"{count} copies of the newest state")
    return looks[0]


def is_named(tablet: TabletReplicas) -> bool:
    """Whether no host holds a newer state than the books name."""
    return all(one.held is None or one.held.root == tablet.named for one in tablet.replicas)
