"""The ``~root_`` rows: of which logs this cluster has to do with others, and what it knows of them (rule R22).

``recv:here`` says that records of a log have come to this cluster; a tserver puts it before it takes the first one, and
beside it ``recv:by:<instance>``, which cluster brings them.
``recv:to:<instance>:<log>`` says that a log of this cluster, which is gone, took records of it there; the collector
puts it before that log goes. The rank of either is when that was, in ms. Both go for good when nothing of the log is
under way anywhere. A log that this cluster itself wrote has a row, too, when it is gone.

Arrives: rows, logs that are about to go. Leaves: parsed rows, puts. Pure, but for reading a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from bookkeeper.coordination.config_tree import ClusterConfig, PeerCluster
from bookkeeper.errors import NotFoundError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable, Row, RowPut
from bookkeeper.model import TargetKey
from bookkeeper.origins import RootLog
from bookkeeper.peers.registry import BUILT_IN, split_quorum
from bookkeeper.rpc.contract.origin_messages import HandedOn, RootStanding


@dataclass(frozen=True, slots=True)
class RootRow:
    """``here_ms``: when records were announced last, None = none came. ``handed``: by instance and log, when.
    ``senders``: the clusters that brought some, and when they began.
    """

    log: RootLog
    here_ms: int | None
    handed: Mapping[tuple[str, str], int]
    senders: Mapping[str, int] = field(default_factory=dict)

    @property
    def handed_on(self) -> frozenset[HandedOn]:
        """Whom records were handed on to, and by which logs."""
        return frozenset(HandedOn(instance, file) for instance, file in self.handed)

    @property
    def files(self) -> frozenset[str]:
        """Logs of this cluster that are gone and handed records on."""
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
    """The row of a log as it is now, None when there is none. Raises TransientError, CorruptionError."""
    found = table.get(keys.root_row(log), ("recv",))
    return None if found is None else parse_root(found)


def may_speak_of(log: RootLog, row: RootRow | None, asking: str, own_instance_id: str) -> bool:
    """Whether another cluster may ask how it stands with a log here, and say that it is over: the one that wrote it,
    and those that have brought records of it. Of one of which nothing is here there is nothing to tell and nothing to
    end, so anybody may ask: a cluster that was to bring some, and had none for this one, is on the only way here.
    """
    if own_instance_id in (log.instance_id, asking):
        return asking == own_instance_id
    return asking == log.instance_id or not is_here(row) or has_brought(row, asking)


def may_end(log: RootLog, row: RootRow | None, asking: str) -> bool:
    """Whether another cluster, which may speak of a log, is believed that it is over. The one that wrote it is; a relay
    only where that one brings nothing of it itself: what a relay says to have brought is its word alone.
    """
    return asking == log.instance_id or (has_brought(row, asking) and not has_brought(row, log.instance_id))


def is_here(row: RootRow | None) -> bool:
    """Whether records of a log have come here, and it is not over."""
    return row is not None and row.here_ms is not None


def has_brought(row: RootRow | None, instance_id: str) -> bool:
    """Whether a cluster is known to have brought records of a log."""
    return row is not None and instance_id in row.senders


def untold_logs(table: MetadataTable, files: Collection[str]) -> set[str]:
    """Those of these logs, which are gone, of which a target was not told yet that the stream is over: a sender that
    was stopped may still begin it. Finished cells go when the peer was told (R3). Raises TransientError.
    """
    return {file for file in files if table.get(keys.repl_row(file), ("done",)) is not None}


def cells_to_purge(log: RootLog, row: Row | None) -> list[CellKey]:
    """Everything in the row of a log that is over, and the announcement even if there is none: one that comes late, out
    of a process that was stopped, is hidden.
    """
    columns = {keys.ROOT_HERE, *(() if row is None else row.cells)}
    return [CellKey(keys.root_row(log), column) for column in sorted(columns)]


def instances_of(targets: Iterable[TargetKey], config: ClusterConfig) -> frozenset[str]:
    """The clusters of ours behind targets, configured still or not. Of a cluster that is defined no more only the name
    is known, which stands for it: it can't be asked. Other systems hand nothing on.
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
    """The cluster of that instance, which a route goes on to from here. Raises NotFoundError."""
    for peer in config.clusters.values():
        if peer.instance_id == instance_id:
            return peer
    raise NotFoundError(f"instance {instance_id} is not defined at {own_instance_id} (any more)")


def hand_down(
    own: RootLog, origin_index: Collection[RootLog], instances: Iterable[str], rows: Collection[RootLog]
) -> list[RowPut]:
    """What is put before a log of ours goes: of itself, and of each log of others that is not over (in ``rows``)."""
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
    """Nobody has brought or asked about a log for so long that its own cluster, or the way from there, must be gone. Of
    one that is over a mark of a sender may be left, which a process that was stopped has put late.
    """
    heard_ms = max(row.senders.values(), default=None) if row.here_ms is None else row.here_ms
    return heard_ms is not None and now_ms - heard_ms > paths_apart_ms


def is_long_gone(row: RootRow, now_ms: int, paths_apart_ms: float) -> bool:
    """A log of ours went so long ago that those that can't be asked about it need not be waited for any more."""
    return now_ms - max(row.handed.values(), default=now_ms) > paths_apart_ms
