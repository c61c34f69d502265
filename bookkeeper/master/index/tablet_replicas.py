"""The replicas that a tablet's row names. Pure; a tablet with one replica, on the cluster's Volume, names none."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from msgspec import Struct

from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Row
from bookkeeper.metadata.values import VOTER, ReplicaCell


class TabletReplica(Struct, frozen=True):
    """A cell ``replica:<host>`` of a tablet's row."""

    host: str
    cell: ReplicaCell

    @property
    def is_voter(self) -> bool:
        """Whether it counts as a copy, and its host may lead."""
        return self.cell.role == VOTER


NO_REPLICAS: tuple[TabletReplica, ...] = ()


def replicas_of(row: Row) -> tuple[TabletReplica, ...]:
    """The replicas in a row that was read with the family ``replica``, by host. Raises CorruptionError.

    The names of hosts are shared between all tablets in memory.
    """
    found = [column for column in row.cells if column.family == keys.REPLICA_FAMILY]
    if not found:
        return NO_REPLICAS
    return tuple(
        TabletReplica(sys.intern(keys.parse_replica(column.qualifier)), ReplicaCell.decode(row.cells[column].value))
        for column in sorted(found)
    )


def voters(replicas: Sequence[TabletReplica]) -> list[TabletReplica]:
    """The replicas that count as copies."""
    return [replica for replica in replicas if replica.is_voter]


def replica_on(replicas: Sequence[TabletReplica], host: str) -> TabletReplica | None:
    """The replica on a host, None when the row names none."""
    return next((replica for replica in replicas if replica.host == host), None)
