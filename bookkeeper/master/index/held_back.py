"""Rule R15 for logs on hosts' disks: up to which offset peers may have their records. Pure.

Arrives: the row of a tablet with its ``log:`` cells. Leaves: logs, each with the last offset that the tablet allows. A
record on one disk alone is less durable than a table with replicas asks for: a peer must not have what the cluster can
lose. The records of a tablet up to the offset in its named state are in segments on enough hosts (N3), and a tablet
without a ``log:`` cell has no others, because that cell comes before its first record (R12) and goes after the name.
Logs on the cluster's Volume hold back nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct, field

from bookkeeper.config.table_properties import DEFAULT_PROPERTIES, TableProperties, copies_needed
from bookkeeper.master.index.tablet_replicas import TabletReplica, voters
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Row
from bookkeeper.metadata.values import FlushState
from bookkeeper.replicas.naming import UNLIMITED, shippable
from bookkeeper.storage.volume.names import session_of_numbered


class HeldBack(Struct, frozen=True):
    """The offset up to which peers may have a log, and the row of the tablet that asks for it."""

    until: int
    row: bytes


class LogsOnHosts(Struct, frozen=True):
    """The input of the rule beside a row. ``sessions``: those with logs on hosts' disks, read before the row. A session
    that began later has no record that an earlier read knew. ``properties``: of each table, by its id.
    """

    sessions: Collection[str] = ()
    properties: Mapping[str, TableProperties] = field(default_factory=dict)

    def held_back_by(self, row: Row, replicas: Sequence[TabletReplica]) -> dict[bytes, HeldBack]:
        """The logs that the tablet of a row holds back; the row was read with the families ``tablet`` and ``log``.
        Raises CorruptionError.
        """
        table_id, _ = keys.parse_tablet_row(row.key)
        if is_one_copy_enough(replicas, self.properties.get(table_id, DEFAULT_PROPERTIES)):
            return {}
        logs = [column.qualifier for column in row.cells if column.family == "log"]
        on_hosts = [log for log in logs if session_of_numbered(log.decode()) in self.sessions]
        flush = row.cells.get(keys.FLUSH)
        named = {} if flush is None or not on_hosts else FlushState.decode(flush.value).through
        return {
            log: HeldBack(shippable(UNLIMITED, named.get(log.decode(), 0), is_on_host=True), row.key)
            for log in on_hosts
        }


NO_LOGS_ON_HOSTS = LogsOnHosts()


def is_one_copy_enough(replicas: Sequence[TabletReplica], properties: TableProperties) -> bool:
    """Whether a record on one disk is as durable as the table asks."""
    return not replicas or copies_needed(properties, len(voters(replicas))) <= 1
