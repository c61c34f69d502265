"""Tables whose tablets move between the Volume and hosts, because ``table.replicas`` left 1 or became 1. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bookkeeper.config.table_properties import TableProperties
from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.operations.replica_hosts import is_elsewhere


def tables_elsewhere(
    views: Iterable[TabletView], properties: Mapping[str, TableProperties], able_hosts: int
) -> set[str]:
    """The ids of tables with a tablet that is not where its table has it; not of those with more replicas than there
    are hosts for them.
    """
    return {
        view.extent.table_id
        for view in views
        if (known := properties.get(view.extent.table_id)) is not None
        and known.replicas <= max(able_hosts, 1)
        and is_elsewhere(view, known.replicas)
    }
