"""What a cluster answers about the logs of others, and what it does when they are over (rule R22).

Arrives: questions of the cluster that wrote a log, straight or by way of others; the news that nothing of it is under
way. Leaves: standings; an operation that forgets. Survives a crash: that operation. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bookkeeper.clock import Clock
from bookkeeper.coordination.config_tree import ClusterConfig
from bookkeeper.errors import InvalidInputError
from bookkeeper.master.carried import Carried
from bookkeeper.master.fate import FateEngine
from bookkeeper.master.leader import Reign
from bookkeeper.master.operations.roots import forget_roots_args
from bookkeeper.master.peer_masters import PeerMasters
from bookkeeper.master.root_books import RootRow, instances_of, peer_on_route, read_root, standing
from bookkeeper.master.root_waves import ROUTE_MAX
from bookkeeper.master.tservers import TServers
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.table import MetadataTable, RowPut
from bookkeeper.roots import RootLog
from bookkeeper.rpc.messages import RootStanding

LOGS_MAX = 500
"""Most logs in one question."""

HEARD_SHARE = 8
"""That somebody asked is written down when the last word of it is older than this part of the time that counts."""


@dataclass(slots=True)
class RootDesk:
    """One reign's."""

    table: MetadataTable
    reign: Reign
    clock: Clock
    tservers: TServers
    peers: PeerMasters
    fate: FateEngine
    carried: Carried
    own_instance_id: str
    read_config: Callable[[], ClusterConfig]
    paths_apart_ms: float

    def standings(self, route: Sequence[str], logs: Sequence[RootLog]) -> list[RootStanding]:
        """Of each log, at the end of the route. Raises InvalidInputError, NotFoundError, what asking raises."""
        self._check(route, logs)
        if route:
            peer = peer_on_route(self.read_config(), route[0], self.own_instance_id)
            return list(self.peers.root_standings(peer.alias, peer.quorum, peer.instance_id, route[1:], logs))
        return self._here(logs)

    def over(self, route: Sequence[str], logs: Sequence[RootLog]) -> None:
        """Nothing of these is under way anywhere. It is in the books of whoever is meant when this returns."""
        self._check(route, logs)
        if route:
            peer = peer_on_route(self.read_config(), route[0], self.own_instance_id)
            self.peers.roots_over(peer.alias, peer.quorum, peer.instance_id, route[1:], logs)
        else:
            self.fate.submit("forget_roots", forget_roots_args(logs))

    def _here(self, logs: Sequence[RootLog]) -> list[RootStanding]:
        """Logs are looked at before rows: what goes in between has its row before it goes."""
        present = [log.uri for log in self.tservers.logs()]
        owed = {root for roots in self.carried.of(present).values() for root in (logs if roots is None else roots)}
        config = self.read_config()
        peers = instances_of((t.key for table in config.tables.values() for t in table.targets), config)
        rows = [read_root(self.table, log) for log in logs]
        self._note_heard([row for row in rows if row is not None])
        return [standing(row, log in owed, peers) for log, row in zip(logs, rows, strict=True)]

    def _note_heard(self, rows: Sequence[RootRow]) -> None:
        now_ms = self.clock.wall_ms()
        due = [r for r in rows if r.here_ms is not None and now_ms - r.here_ms > self.paths_apart_ms / HEARD_SHARE]
        if due:
            self.reign.check()
            self.table.put([RowPut(keys.root_row(row.log), {keys.ROOT_HERE: values.EMPTY}) for row in due], now_ms)

    def _check(self, route: Sequence[str], logs: Sequence[RootLog]) -> None:
        self.reign.check()
        if len(route) > ROUTE_MAX or len(logs) > LOGS_MAX:
            raise InvalidInputError(f"a route of {len(route)} clusters for {len(logs)} logs is too much for one call")
