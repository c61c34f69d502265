"""Answers about hosts and replicas: the rows of the books, beside what each live host says at this moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from bookkeeper.config.table_properties import parse_properties
from bookkeeper.coordination.config_tree import ClusterConfig
from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.errors import BookkeeperError, NotFoundError
from bookkeeper.master.calls.tservers import TServers
from bookkeeper.master.index.snapshot import TabletView, tablet_view
from bookkeeper.master.index.tablet_replicas import TabletReplica
from bookkeeper.master.replicas.leader_choice import named_state
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.rpc.contract.host_messages import HostInfo, ReplicaStanding, TabletReplicas
from bookkeeper.rpc.contract.replica_messages import HeldReplicaInfo, HeldReplicas

FAMILIES = ("tablet", "location", keys.REPLICA_FAMILY)

AWAY = "the host is away"


@dataclass(frozen=True, slots=True)
class HostQueries:
    """The queries of one reign. Thread-safe."""

    table: MetadataTable
    tservers: TServers
    read_config: Callable[[], ClusterConfig]

    def hosts(self) -> list[HostInfo]:
        """Every host that has joined, has a session or is named by a row; by name."""
        config, live = self.read_config(), self._live()
        replicas: Counter[str] = Counter()
        joining: Counter[str] = Counter()
        leads: Counter[str] = Counter()
        of_session = {info.session_id: name for name, info in live.items()}
        for row in self.table.scan(keys.TABLETS_START, keys.TABLETS_STOP, FAMILIES):
            if not keys.is_tablet(row):
                continue
            view = tablet_view(row)
            replicas.update(one.host for one in view.replicas)
            joining.update(one.host for one in view.replicas if not one.is_voter)
            if view.session in of_session:
                leads[of_session[view.session]] += 1
        found = []
        for name in sorted({*config.hosts, *live, *replicas}):
            held, problem = self._ask(live.get(name), "", False)
            info = live.get(name)
            found.append(
                HostInfo(
                    name,
                    None if info is None or info.host is None else info.host.incarnation,
                    None if info is None else info.address,
                    name in config.draining,
                    replicas[name],
                    joining[name],
                    leads[name],
                    None if held is None else sum(one.bytes for one in held.replicas),
                    problem,
                )
            )
        return found

    def check_host(self, name: str) -> None:
        """Raises NotFoundError for a name that no host of the cluster has."""
        known = {*self.read_config().hosts, *self._live()}
        if name not in known:
            raise NotFoundError(f"no host {name}; the hosts are {', '.join(sorted(known))}")

    def replicas(self, table_id: str, with_segments: bool) -> list[TabletReplicas]:
        """The replicas of each tablet of a table, in order; none of a tablet with one. Raises NotFoundError."""
        table, live = self.read_config().table(table_id), self._live()
        copies_needed = parse_properties(table.properties).copies_needed
        rows = [row for row in self.table.scan(*keys.table_section(table_id), FAMILIES) if keys.is_tablet(row)]
        views = [tablet_view(row) for row in rows]
        names = {one.host for view in views for one in view.replicas}
        answers = {name: self._ask(live.get(name), table_id, with_segments) for name in sorted(names)}
        sessions = {name: info.session_id for name, info in live.items()}
        return [
            TabletReplicas(
                view.extent,
                named_state(row),
                copies_needed,
                tuple(standing(view, one, sessions, answers[one.host]) for one in view.replicas),
            )
            for view, row in zip(views, rows, strict=True)
        ]

    def _live(self) -> dict[str, SessionInfo]:
        return {info.host.name: info for info in self.tservers.sessions() if info.alive and info.host is not None}

    def _ask(self, info: SessionInfo | None, table_id: str, with_segments: bool) -> tuple[HeldReplicas | None, str]:
        """The answer of a host, or the reason why there is none."""
        if info is None:
            return None, AWAY
        try:
            held = self.tservers.at(info.address).replicas(table_id, with_segments)
        except BookkeeperError as error:
            return None, error.message
        files = sum(len(one.damaged) for one in held.replicas)
        problems = [f"{files} damaged files, which other hosts are asked for"] if files else []
        return held, "; ".join([*held.damaged.values(), *problems])


def standing(
    view: TabletView,
    replica: TabletReplica,
    sessions: Mapping[str, str],
    answer: tuple[HeldReplicas | None, str],
) -> ReplicaStanding:
    """A replica of a row, beside what its host says."""
    held, problem = answer
    leads = view.session is not None and sessions.get(replica.host) == view.session
    cell = replica.cell
    found = None if held is None else held_in(view, replica, held.replicas)
    if held is not None and found is None and not problem:
        problem = "the host holds nothing of it"
    return ReplicaStanding(replica.host, cell.placement, cell.role, leads, found, problem)


def held_in(view: TabletView, replica: TabletReplica, held: Collection[HeldReplicaInfo]) -> HeldReplicaInfo | None:
    """The state of the row's placement on a host; None for nothing, or for another placement or disk."""
    for info in held:
        placed = info.placement
        if (info.extent.table_id, info.directory) == (view.extent.table_id, view.directory) and (
            placed.placement,
            placed.incarnation,
        ) == (replica.cell.placement, replica.cell.incarnation):
            return info
    return None
