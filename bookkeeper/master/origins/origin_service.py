"""The calls of other clusters about root logs: questions, and messages that logs are over (rule R22).

Arrives: questions of the cluster that wrote a log, direct or relayed; messages that logs are over. Leaves: standings;
an operation that removes logs. No call here waits for an operation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.errors import InvalidInputError, UnauthorizedError
from bookkeeper.master.calls.peer_masters import PeerMasters
from bookkeeper.master.calls.tservers import TServers
from bookkeeper.master.fate.engine import FateEngine
from bookkeeper.master.operations.streams import logs_being_forgotten
from bookkeeper.master.origins.end_origins import forget_roots_args
from bookkeeper.master.origins.origin_books import (
    RootRow,
    instances_of,
    is_here,
    may_ask_about,
    may_end,
    peer_on_route,
    read_root,
    standing,
    unnotified_logs,
)
from bookkeeper.master.origins.origin_index import OriginMemory
from bookkeeper.master.origins.origin_termination import ROUTE_MAX, STREAMS_OF_CALL_MAX
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.origins import RootLog
from bookkeeper.rpc.contract.messages import RootQuestion, RootStanding

LOGS_MAX = 500
"""Most logs in one question."""

REFUSED = RootStanding(False, False, (), True)
"""The answer to a cluster that may not ask about a log."""

REFRESH_SHARE = 8
"""Refresh the time of the last question after this fraction (1/8) of ``tserver.paths_apart_ms``."""


class OriginService(Struct):
    """The answers of one reign."""

    stores: ReignStores
    clock: Clock
    tservers: TServers
    peers: PeerMasters
    fate: FateEngine
    memory: OriginMemory

    def standings(
        self, route: Sequence[str], questions: Sequence[RootQuestion], asking: str | None = None
    ) -> list[RootStanding]:
        """The standing of each log at the end of the route; refused where the instance ``asking`` may not ask (None:
        this cluster asks). Raises InvalidInputError, NotFoundError, and the errors of the next cluster.
        """
        self._check(route, questions)
        if sum(len(question.streams) for question in questions) > STREAMS_OF_CALL_MAX:
            raise InvalidInputError(f"one call may name {STREAMS_OF_CALL_MAX} streams at most: divide the questions")
        refused = self._refused([question.log for question in questions], asking)
        allowed = [question for question in questions if question.log not in refused]
        answers = iter(self._answered(route, allowed) if allowed else ())
        return [REFUSED if question.log in refused else next(answers) for question in questions]

    def _answered(self, route: Sequence[str], questions: Sequence[RootQuestion]) -> Sequence[RootStanding]:
        if route:
            peer = peer_on_route(self.stores.config(), route[0], self.memory.own_instance_id)
            return self.peers.root_standings(peer.alias, peer.quorum, peer.instance_id, route[1:], questions)
        return self._here(questions)

    def over(self, route: Sequence[str], logs: Sequence[RootLog], asking: str | None = None) -> None:
        """End logs: no record of them is under way anywhere. Returns once the destination has persisted it. A log of
        a third cluster without records here is ignored. Raises UnauthorizedError if ``asking`` may not end some; the
        others end all the same.
        """
        self._check(route, logs)
        rows = {log: None if log.instance_id == asking else read_root(self.stores.table, log) for log in logs}
        refused = [] if asking is None else [log for log in logs if self._refuses_end(log, rows[log], asking)]
        told = [log for log in logs if log not in refused and (asking in (None, log.instance_id) or is_here(rows[log]))]
        if told and route:
            peer = peer_on_route(self.stores.config(), route[0], self.memory.own_instance_id)
            self.peers.roots_over(peer.alias, peer.quorum, peer.instance_id, route[1:], told)
        elif told:
            self.fate.submit("forget_roots", forget_roots_args(told))
        if refused:
            raise UnauthorizedError(
                f"instance {asking} can't end {min(refused).file}: it did not write it and sent no records of it here, "
                f"or instance {min(refused).instance_id} sends here and ends it itself"
            )

    def _refuses_end(self, log: RootLog, row: RootRow | None, asking: str) -> bool:
        """Whether a cluster may not end this log here."""
        if not may_ask_about(log, row, asking, self.memory.own_instance_id):
            return True
        return is_here(row) and not may_end(log, row, asking)

    def _refused(self, logs: Collection[RootLog], asking: str | None) -> set[RootLog]:
        """The logs about which ``asking`` may not ask."""
        if asking is None:
            return set()
        own = self.memory.own_instance_id
        known = sorted(set(logs))
        rows = {log: None if log.instance_id == asking else read_root(self.stores.table, log) for log in known}
        return {log for log, row in rows.items() if not may_ask_about(log, row, asking, own)}

    def _here(self, questions: Sequence[RootQuestion]) -> list[RootStanding]:
        """The standings at this cluster. It reads streams before logs: a message that comes in between is in a log by
        then. It reads logs before rows: a log that is deleted in between has its row before.
        """
        open_here = self._open_streams({stream for question in questions for stream in question.streams})
        logs = [question.log for question in questions]
        present = [log.name for log in self.tservers.logs()]
        owed = {root for roots in self.memory.index.of(present).values() for root in (logs if roots is None else roots)}
        config = self.stores.config()
        peers = instances_of((t.key for table in config.tables.values() for t in table.targets), config)
        rows = [read_root(self.stores.table, log) for log in logs]
        self._record_question([row for row in rows if row is not None])
        sent = [() if row is None else row.files for row in rows]
        untold = unnotified_logs(self.stores.table, {file for files in sent for file in files})
        return [
            standing(row, q.log in owed, not (open_here.isdisjoint(q.streams) and untold.isdisjoint(files)), peers)
            for q, row, files in zip(questions, rows, sent, strict=True)
        ]

    def _open_streams(self, streams: Collection[RootLog]) -> set[RootLog]:
        """The streams whose messages may still be accepted here. A stream is over when its cells are purged and every
        tserver has dropped it. The cells are read first: the operation that purged them is then running or done.
        """
        found = {
            s
            for s in sorted(set(streams))
            if self.stores.table.get(keys.recv_row(s.instance_id, s.file), ("recv",)) is not None
        }
        return found | (set(streams) & logs_being_forgotten(self.fate.pending()))

    def _record_question(self, rows: Sequence[RootRow]) -> None:
        now_ms = self.clock.wall_ms()
        due = [
            r for r in rows if r.here_ms is not None and now_ms - r.here_ms > self.memory.paths_apart_ms / REFRESH_SHARE
        ]
        if due:
            self.stores.reign.check()
            self.stores.table.put(
                [RowPut(keys.root_row(row.log), {keys.ROOT_HERE: values.EMPTY}) for row in due], now_ms
            )

    def _check(self, route: Sequence[str], logs: Sequence[RootLog | RootQuestion]) -> None:
        self.stores.reign.check()
        if len(route) > ROUTE_MAX or len(logs) > LOGS_MAX:
            raise InvalidInputError(
                f"one call may have a route of {ROUTE_MAX} clusters and {LOGS_MAX} logs at most, and this one has "
                f"{len(route)} and {len(logs)}: divide the logs, or shorten the route"
            )
