"""The ``~root_`` rows: the root logs whose records this cluster received or sent on (rule R22).

- ``recv:here``: this cluster has received records of the root log. A tserver puts it before it stores the first one.
- ``recv:by:<instance>``: that cluster sent them. A tserver puts it together with ``recv:here``.
- ``recv:to:<instance>:<log>``: a log of this cluster sent records of the root log to that instance. The collector puts
  it before it deletes that log.

The rank of a cell is its time in ms. The row is purged when no record of the root log is under way anywhere. The
collector also puts a row for an own log with recipients, before it deletes that log. Pure, except for reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field

from bookkeeper.coordination.config_tree import ClusterConfig, PeerCluster
from bookkeeper.errors import NotFoundError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable, Row, RowPut
from bookkeeper.model import TargetKey
from bookkeeper.origins import RootLog
from bookkeeper.peers.registry import BUILT_IN, split_quorum
from bookkeeper.rpc.contract.messages import HandedOn, RootStanding


class RootRow(Struct, frozen=True):
    """A parsed row. ``here_ms``: the latest announcement of records, None = none. ``handed``: from (instance, log) to
    the time just before the log's deletion. ``senders``: the clusters that sent records here, and the time of their
    announcement.
    """

    log: RootLog
    here_ms: int | None
    handed: Mapping[tuple[str, str], int]
    senders: Mapping[str, int] = field(default_factory=dict)

    @property
    def handed_on(self) -> frozenset[HandedOn]:
        """The instances to which records were sent on, and the logs that brought them there."""
        return frozenset(HandedOn(instance, file) for instance, file in self.handed)

    @property
    def files(self) -> frozenset[str]:
        """Deleted logs of this cluster that sent records on."""
        return frozenset(file for _, file in self.handed)


def parse_root(row: Row) -> RootRow:
    """A row, read with the family ``recv``. Raises CorruptionError."""
    here = row.cells.get(keys.ROOT_HERE)
    cells = {column: cell.rank for column, cell in row.cells.items() if column != keys.ROOT_HERE}
    senders = {keys.parse_sender(column): rank for column, rank in cells.items() if keys.is_sender(column)}
    handed = {
        keys.parse_destination(column.qualifier): rank for column, rank in cells.items() if not keys.is_sender(column)
    }
    return RootRow(keys.parse_root_row(row.key), None if here is None else here.rank, handed, senders)


def read_root(table: MetadataTable, log: RootLog) -> RootRow | None:
    """The present row of a log, None when it has none. Raises TransientError, CorruptionError."""
    found = table.get(keys.root_row(log), ("recv",))
    return None if found is None else parse_root(found)


def may_ask_about(log: RootLog, row: RootRow | None, asking: str, own_instance_id: str) -> bool:
    """Whether a cluster may ask about a log here and send its end. This cluster may always ask; about its own logs no
    other one may. About another log its writer, its senders and, while no records are here, any cluster may ask: that
    cluster may lie on the only route, and the answer reveals nothing.
    """
    if own_instance_id in (log.instance_id, asking):
        return asking == own_instance_id
    return asking == log.instance_id or not is_here(row) or has_brought(row, asking)


def may_end(log: RootLog, row: RootRow | None, asking: str) -> bool:
    """Whether this cluster removes the row of a log when a cluster that may ask about it says that it is over. The
    cluster that wrote the log ends it always. A relay ends it only where it sent records and the writer sent none.
    """
    return asking == log.instance_id or (has_brought(row, asking) and not has_brought(row, log.instance_id))


def is_here(row: RootRow | None) -> bool:
    """Whether records of a log came here, and the log is not over."""
    return row is not None and row.here_ms is not None


def has_brought(row: RootRow | None, instance_id: str) -> bool:
    """Whether a cluster has announced records of a log here."""
    return row is not None and instance_id in row.senders


def unnotified_logs(table: MetadataTable, files: Collection[str]) -> set[str]:
    """The logs among these with a done cell: a target does not know yet that its stream is over, and a paused sender
    may still start it. Rule R3: done cells stay until the notification. Raises TransientError.
    """
    return {file for file in sorted(files) if table.get(keys.repl_row(file), ("done",)) is not None}


def cells_to_purge(log: RootLog, row: Row | None) -> list[CellKey]:
    """All cells of the row of a log that is over. They always include those that a stream from its writer puts, so that
    the purge also hides a late put by a paused process. A late put of a stream from a relay leaves a cell, which
    ``tserver.paths_apart_ms`` removes.
    """
    columns = {keys.ROOT_HERE, keys.sender_column(log.instance_id), *(() if row is None else row.cells)}
    return [CellKey(keys.root_row(log), column) for column in sorted(columns)]


def instances_of(targets: Iterable[TargetKey], config: ClusterConfig) -> frozenset[str]:
    """The clusters of this replica system behind targets, also behind former ones. An undefined cluster without a
    configured target is represented by its name, and can't be asked. Other replica systems forward no records.
    """
    configured = {t.key: t.peer_instance_id for table in config.tables.values() for t in table.targets}
    found = set()
    for target in targets:
        peer = config.clusters.get(target.cluster)
        if peer is None:
            found.add(configured.get(target, target.cluster))
        elif split_quorum(peer.quorum)[0] == BUILT_IN:
            found.add(configured.get(target, peer.instance_id))
    return frozenset(found)


def peer_on_route(config: ClusterConfig, instance_id: str, own_instance_id: str) -> PeerCluster:
    """The next cluster on a route, by its instance. Raises NotFoundError when it is not defined here."""
    for peer in config.clusters.values():
        if peer.instance_id == instance_id:
            return peer
    raise NotFoundError(f"instance {instance_id} is not defined at {own_instance_id}: define its cluster there")


def recipient_puts(
    own: RootLog, origin_index: Collection[RootLog], instances: Iterable[str], rows: Collection[RootLog]
) -> list[RowPut]:
    """The puts before the deletion of a log of this cluster: for the log itself, and for each open root log in ``rows``
    whose records it holds.
    """
    recipients = sorted(instances)
    return [
        RowPut(
            keys.root_row(log),
            {keys.destination_cell(log, instance, own.file).column: values.EMPTY for instance in recipients},
        )
        for log in (own, *sorted(set(origin_index) & set(rows)))
        if recipients
    ]


def standing(row: RootRow | None, owed: bool, under_way: bool, peers: Collection[str]) -> RootStanding:
    """The answer of this cluster about a log. While the cluster owes records, it may hand them on to any peer."""
    handed = frozenset(() if row is None else row.handed_on)
    if owed or under_way:
        handed |= {HandedOn(peer, "") for peer in peers}
    return RootStanding(owed, under_way, tuple(sorted(handed)))


def is_forgotten_by_time(row: RootRow, now_ms: int, paths_apart_ms: float) -> bool:
    """Whether the latest announcement of a log's records, or question about it, is so old that its row may go. The rank
    of a sender counts where ``recv:here`` is missing: a paused process put it after the log was over.
    """
    heard_ms = max(row.senders.values(), default=None) if row.here_ms is None else row.here_ms
    return heard_ms is not None and now_ms - heard_ms > paths_apart_ms


def is_long_gone(row: RootRow, now_ms: int, paths_apart_ms: float) -> bool:
    """Whether a log of this cluster was deleted so long ago that lost clusters no longer delay its end."""
    return now_ms - max(row.handed.values(), default=now_ms) > paths_apart_ms
