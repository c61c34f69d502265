"""The end of what several paths bring, on both sides (rule R22; why it is one: ``origin_termination``).

Arrives: logs of this cluster that are gone; the word that a log is over. Leaves: clusters that were told; no ``~root_``
rows and nothing held of it. Cut after any step: everybody is asked again, or told again, or forgets again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

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
    untold_logs,
)
from bookkeeper.master.origins.origin_termination import Route, in_order_of_telling
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey
from bookkeeper.metadata.values import Json
from bookkeeper.origins import RootLog
from bookkeeper.rpc.contract.origin_messages import RootQuestion, RootStanding

LOG = logging.getLogger(__name__)

END_KIND = "end_roots"


def forget_roots_args(logs: Iterable[RootLog]) -> Args:
    """Arguments of ``forget_roots`` and of ``end_roots``."""
    encoded: list[Json] = [*sorted(log.encode() for log in logs)]
    return {"logs": encoded}


def forget_by_time_args(logs: Iterable[RootLog]) -> Args:
    """Arguments of ``forget_roots`` for logs of which nobody has spoken for long, though they may not be over."""
    return {**forget_roots_args(logs), "unheard": True}


def logs_of(args: Args) -> list[RootLog]:
    """Inverse of :func:`forget_roots_args`."""
    return [RootLog.decode(encoded) for encoded in texts(args, "logs")]


@dataclass(frozen=True, slots=True)
class EndRoots:
    """At the cluster that wrote them: find out which are over, and say so. About what is not over yet another operation
    asks again. See :class:`bookkeeper.master.fate.engine.Operation`.
    """

    context: Context
    first: str = "ask"

    def locks(self, _args: Args) -> Collection[str]:
        """One at a time: a cluster that does not answer must not occupy every thread."""
        return ("roots",)

    @property
    def steps(self) -> Mapping[str, Step]:
        """ask, tell, purge."""
        return {"ask": self.ask, "tell": self.tell, "purge": self.purge}

    def ask(self, call: Call) -> Outcome:
        """A round."""
        rows = {log: row for log in logs_of(call.args) if (row := self._row(log)) is not None}
        starts = {log: row.handed_on for log, row in rows.items()}
        said = origin_termination.ask_round(starts, self.context.settings.own_instance_id, self._ask)
        over = [log for log, row in rows.items() if origin_termination.is_over(log, said, self._is_long_gone(row))]
        if not over:
            return Done()
        self._say_what_was_given_up(said, over)
        told: list[Json] = [
            [[*route], [log.encode() for log in logs]] for route, logs in in_order_of_telling(said, over)
        ]
        return Next("tell", {"told": told, **forget_roots_args(over)})

    def tell(self, call: Call) -> Outcome:
        """The farthest first. Who does not answer now is asked again later, with all others."""
        for route, encoded in cast("list[tuple[list[str], list[str]]]", call.state["told"]):
            try:
                self._tell(tuple(route), [RootLog.decode(raw) for raw in encoded])
            except TransientError as error:
                LOG.info("logs that are over stay for now: %s", error.message)
                return Done()
            except PermanentError as error:
                LOG.warning(
                    "%s can't be told that logs are over, and forgets them by time: %s", route[-1], error.message
                )
        return Next("purge", {"logs": call.state["logs"]})

    def purge(self, call: Call) -> Outcome:
        """Only now: whom else should be asked was known from these."""
        purge_rows(self.context, logs_of(call.state))
        return Done()

    def _row(self, log: RootLog) -> RootRow | None:
        """The row of a log when nobody here sends it any more: every target was told that its stream is over."""
        row = read_root(self.context.stores.table, log)
        if row is None or (untold_logs(self.context.stores.table, row.files) and not self._is_long_gone(row)):
            return None
        return row

    def _is_long_gone(self, row: RootRow) -> bool:
        return is_long_gone(row, self.context.age_clock.wall_ms(), self.context.settings.paths_apart_ms)

    def _say_what_was_given_up(self, said: origin_termination.Round, over: Iterable[RootLog]) -> None:
        for log in over:
            for instance, reason in said.lost.get(log, {}).items():
                LOG.warning(
                    "%s counts as over for %s, which could not be asked for tserver.paths_apart_ms: what it still "
                    "hands on may be taken twice elsewhere (%s)", log.file, instance, reason,
                )  # fmt: skip
            if log in said.under_way:
                LOG.warning(
                    "%s counts as over for %s, where a stream that brought some of it was not over for "
                    "tserver.paths_apart_ms: what still comes may be taken twice", log.file, said.under_way[log],
                )  # fmt: skip

    def _ask(self, route: Route, questions: Sequence[RootQuestion]) -> Sequence[RootStanding]:
        peer = self._peer(route[0])
        return self.context.peers.root_standings(*peer, route[1:], questions)

    def _tell(self, route: Route, logs: Sequence[RootLog]) -> None:
        """Straight, where the cluster is defined here: it believes the one that wrote the logs before it believes a
        relay.
        """
        if any(peer.instance_id == route[-1] for peer in self.context.config().clusters.values()):
            route = route[-1:]
        peer = self._peer(route[0])
        self.context.peers.roots_over(*peer, route[1:], logs)

    def _peer(self, instance_id: str) -> tuple[str, str, str]:
        peer = peer_on_route(self.context.config(), instance_id, self.context.settings.own_instance_id)
        return peer.alias, peer.quorum, peer.instance_id


@dataclass(frozen=True, slots=True)
class ForgetRoots:
    """At whoever was told. See :class:`bookkeeper.master.fate.engine.Operation`."""

    context: Context
    first: str = "purge"

    def locks(self, _args: Args) -> Collection[str]:
        """None: logs are independent."""
        return ()

    @property
    def steps(self) -> Mapping[str, Step]:
        """purge, forget."""
        return {"purge": self.purge, "forget": self.forget}

    def purge(self, call: Call) -> Outcome:
        """The cells go first: whoever loads a tablet from here on finds them gone and forgets by itself."""
        if call.args.get("unheard"):
            hide_rows(self.context, logs_of(call.args))
        else:
            purge_rows(self.context, logs_of(call.args))
        return Next("forget", {})

    def forget(self, call: Call) -> Outcome:
        """Every live tserver forgets what the tablets that it serves, or is about to serve, hold of them."""
        logs = logs_of(call.args)
        problems = self.context.tservers.for_each_live(lambda tserver: tserver.forget_roots(logs))
        return Wait("; ".join(problems), 500) if problems else Done()


def hide_rows(context: Context, logs: Iterable[RootLog]) -> None:
    """As they are now: a log that was forgotten by time may be announced again, for a slow path may still bring it."""
    context.stores.reign.check()
    for log in logs:
        row = context.stores.table.get(keys.root_row(log), ("recv",))
        for column, cell in ({} if row is None else row.cells).items():
            context.stores.table.delete([CellKey(keys.root_row(log), column)], cell.rank)


def purge_rows(context: Context, logs: Iterable[RootLog]) -> None:
    """For good: names of logs are never used again."""
    context.stores.reign.check()
    rows = ((log, context.stores.table.get(keys.root_row(log), ("recv",))) for log in logs)
    context.stores.table.purge([cell for log, row in rows for cell in cells_to_purge(log, row)])
