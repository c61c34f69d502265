"""The hosts of the cluster for administrators: names from the configuration, the rest from sessions and the books."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.master.index.snapshot import tablet_view
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.rpc.contract.messages import HostInfo


def host_infos(names: Iterable[str], sessions: Iterable[SessionInfo], tablets: Mapping[str, int]) -> list[HostInfo]:
    """All hosts by name, ``host2`` before ``host10``. ``sessions`` are those of tservers, ``tablets`` the number of
    tablets of each session. A session without a host counts for none.
    """
    live = [session for session in sessions if session.alive and session.host is not None]
    known = {*names, *(session.host.name for session in live if session.host is not None)}
    return [_info(name, live, tablets) for name in sorted(known, key=lambda name: (len(name), name))]


def _info(name: str, live: Iterable[SessionInfo], tablets: Mapping[str, int]) -> HostInfo:
    own = [session for session in live if session.host is not None and session.host.name == name]
    incarnations = [session.host.incarnation for session in own if session.host is not None]
    return HostInfo(
        name,
        incarnations[-1] if incarnations else None,
        tuple(session.address for session in own),
        sum(tablets.get(session.session_id, 0) for session in own),
    )


def tablets_of_sessions(table: MetadataTable, table_ids: Iterable[str]) -> Mapping[str, int]:
    """The number of tablets that the books give to each session. Raises TransientError, CorruptionError."""
    counts: Counter[str] = Counter()
    for table_id in table_ids:
        rows = table.scan(*keys.table_section(table_id), ("tablet", "location"))
        counts.update(view.session for view in map(tablet_view, filter(keys.is_tablet, rows)) if view.session)
    return counts
