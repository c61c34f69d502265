"""The operations that end root logs, at the cluster that wrote them and at its peers (rule R22).

Arrives: deleted logs of this cluster; messages that a root log is over. Leaves: notified clusters; no ``~root_`` rows
and no origin intervals of the log. Every step may be repeated. ``origin_termination`` proves the decision.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast

from msgspec import Struct

from bookkeeper.errors import PermanentError, TransientError
from bookkeeper.master.fate.engine import Args, Call, Done, Next, Outcome, Step, Wait
from bookkeeper.master.operations.context import Context, texts
from bookkeeper.master.origins import origin_termination
from bookkeeper.master.origins.origin_books import (
    RootRow,
    cells_to_purge,
    is_long_gone,
    peer_on_route,
    read_root,
    unnotified_logs,
)
from bookkeeper.master.origins.origin_termination import Route, farthest_first
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey
from bookkeeper.metadata.values import Json
from bookkeeper.origins import RootLog
from bookkeeper.rpc.contract.messages import RootQuestion, RootStanding

LOG = logging.getLogger(__name__)

END_KIND = "end_roots"


def forget_roots_args(logs: Iterable[RootLog]) -> Args:
    """Arguments of ``forget_roots`` and of ``end_roots``."""
    encoded: list[Json] = [*sorted(log.encode() for log in logs)]
    return {"logs": encoded}


def forget_by_time_args(logs: Iterable[RootLog]) -> Args:
    """Arguments of ``forget_roots`` for logs without news for ``tserver.paths_apart_ms``; they may not be over."""
    return {**forget_roots_args(logs), "unheard": True}


def logs_of(args: Args) -> list[RootLog]:
    """Inverse of :func:`forget_roots_args`."""
    return [RootLog.decode(encoded) for encoded in texts(args, "logs")]


class EndRoots(Struct, frozen=True):
    """Finds the logs of this cluster that are over, and notifies the other clusters. A later operation asks again about
    the remaining logs. See :class:`bookkeeper.master.fate.engine.Operation`.
    """

    context: Context
    first: str = "ask"

    def locks(self, _args: Args) -> Collection[str]:
        """One lock for all: a cluster that does not answer must not occupy every thread."""
        return ("roots",)

    @property
    def steps(self) -> Mapping[str, Step]:
        """ask, tell, purge."""
        return {"ask": self.ask, "tell": self.tell, "purge": self.purge}

    def ask(self, call: Call) -> Outcome:
        """Ask every cluster in one round; go on with the logs that are over."""
        rows = {log: row for log in logs_of(call.args) if (row := self._row(log)) is not None}
        starts = {log: row.handed_on for log, row in rows.items()}
        said = origin_termination.ask_round(starts, self.context.settings.own_instance_id, self._ask)
        over = [log for log, row in rows.items() if origin_termination.is_over(log, said, self._is_long_gone(row))]
        if not over:
            return Done()
        self._log_unresolved(said, over)
        told: list[Json] = [[[*route], [log.encode() for log in logs]] for route, logs in farthest_first(said, over)]
        return Next("tell", {"told": told, **forget_roots_args(over)})

    def tell(self, call: Call) -> Outcome:
        """Notify the farthest clusters first. When one does not answer now, a later operation repeats all of it."""
        for route, encoded in cast("list[tuple[list[str], list[str]]]", call.state["told"]):
            try:
                self._tell(tuple(route), [RootLog.decode(raw) for raw in encoded])
            except TransientError as error:
                LOG.info("rows of logs that are over stay until the next try: %s", error.message)
                return Done()
            except PermanentError as error:
                LOG.warning(
                    "instance %s can't learn that logs are over, and drops them by time: %s", route[-1], error.message
                )
        return Next("purge", {"logs": call.state["logs"]})

    def purge(self, call: Call) -> Outcome:
        """Purge the rows last: until here they name the clusters to ask."""
        purge_rows(self.context, logs_of(call.state))
        return Done()

    def _row(self, log: RootLog) -> RootRow | None:
        """The row of a log; None while a target was not notified that the log's stream is over."""
        row = read_root(self.context.stores.table, log)
        if row is None or (unnotified_logs(self.context.stores.table, row.files) and not self._is_long_gone(row)):
            return None
        return row

    def _is_long_gone(self, row: RootRow) -> bool:
        return is_long_gone(row, self.context.age_clock.wall_ms(), self.context.settings.paths_apart_ms)

    def _log_unresolved(self, said: origin_termination.Round, over: Iterable[RootLog]) -> None:
        for log in over:
            for instance, reason in said.lost.get(log, {}).items():
                LOG.warning(
                    "%s counts as over for instance %s, which could not be asked for tserver.paths_apart_ms: records "
                    "that it still forwards may be stored twice elsewhere (%s)", log.file, instance, reason,
                )  # fmt: skip
            if log in said.under_way:
                LOG.warning(
                    "%s counts as over for instance %s, where a stream with records of it stayed open for "
                    "tserver.paths_apart_ms: later records may be stored twice", log.file, said.under_way[log],
                )  # fmt: skip

    def _ask(self, route: Route, questions: Sequence[RootQuestion]) -> Sequence[RootStanding]:
        peer = self._peer(route[0])
        return self.context.peers.root_standings(*peer, route[1:], questions)

    def _tell(self, route: Route, logs: Sequence[RootLog]) -> None:
        """Notify a cluster that is defined here directly: it trusts the writer of a log more than a relay."""
        if any(peer.instance_id == route[-1] for peer in self.context.config().clusters.values()):
            route = route[-1:]
        peer = self._peer(route[0])
        self.context.peers.roots_over(*peer, route[1:], logs)

    def _peer(self, instance_id: str) -> tuple[str, str, str]:
        peer = peer_on_route(self.context.config(), instance_id, self.context.settings.own_instance_id)
        return peer.alias, peer.quorum, peer.instance_id


class ForgetRoots(Struct, frozen=True):
    """Removes root logs that are over, at a notified cluster. See :class:`bookkeeper.master.fate.engine.Operation`."""

    context: Context
    first: str = "purge"

    def locks(self, _args: Args) -> Collection[str]:
        """No lock: logs are independent."""
        return ()

    @property
    def steps(self) -> Mapping[str, Step]:
        """purge, forget."""
        return {"purge": self.purge, "forget": self.forget}

    def purge(self, call: Call) -> Outcome:
        """Purge the cells first: a tserver that loads a tablet later finds none, and drops the log's intervals."""
        if call.args.get("unheard"):
            hide_rows(self.context, logs_of(call.args))
        else:
            purge_rows(self.context, logs_of(call.args))
        return Next("forget", {})

    def forget(self, call: Call) -> Outcome:
        """Make every live tserver drop the logs' intervals from the tablets that it serves or loads."""
        logs = logs_of(call.args)
        problems = self.context.tservers.for_each_live(lambda tserver: tserver.forget_roots(logs))
        return Wait("; ".join(problems), 500) if problems else Done()


def hide_rows(context: Context, logs: Iterable[RootLog]) -> None:
    """Delete the rows at their present ranks: a slow path may announce a log again after it was dropped by time."""
    context.stores.reign.check()
    for log in logs:
        row = context.stores.table.get(keys.root_row(log), ("recv",))
        for column, cell in ({} if row is None else row.cells).items():
            context.stores.table.delete([CellKey(keys.root_row(log), column)], cell.rank)


def purge_rows(context: Context, logs: Iterable[RootLog]) -> None:
    """Delete the rows at every rank: names of logs are never used again."""
    context.stores.reign.check()
    rows = ((log, context.stores.table.get(keys.root_row(log), ("recv",))) for log in logs)
    context.stores.table.purge([cell for log, row in rows for cell in cells_to_purge(log, row)])
