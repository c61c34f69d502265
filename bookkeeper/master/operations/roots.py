"""The end of what several paths bring, on both sides (rule R22; why it is one: ``root_waves``).

Arrives: logs of this cluster that are gone; the word that a log is over. Leaves: clusters that were told; no ``~root_``
rows and nothing held of it. Cut after any step: everybody is asked again, or told again, or forgets again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from bookkeeper.errors import PermanentError, TransientError
from bookkeeper.master import root_waves
from bookkeeper.master.fate import Args, Call, Done, Next, Outcome, Step, Wait
from bookkeeper.master.operations.context import Context, texts
from bookkeeper.master.root_books import RootRow, cells_of_row, is_long_gone, peer_on_route, read_root
from bookkeeper.master.root_waves import Route, in_order_of_telling
from bookkeeper.metadata import keys
from bookkeeper.metadata.values import Json
from bookkeeper.roots import RootLog
from bookkeeper.rpc.messages import RootStanding

LOG = logging.getLogger(__name__)

END_KIND = "end_roots"


def forget_roots_args(logs: Iterable[RootLog]) -> Args:
    """Arguments of ``forget_roots`` and of ``end_roots``."""
    encoded: list[Json] = [*sorted(log.encode() for log in logs)]
    return {"logs": encoded}


def logs_of(args: Args) -> list[RootLog]:
    """Inverse of :func:`forget_roots_args`."""
    return [RootLog.decode(encoded) for encoded in texts(args, "logs")]


@dataclass(frozen=True, slots=True)
class EndRoots:
    """At the cluster that wrote them: find out which are over, and say so. About what is not over yet another operation
    asks again. See :class:`bookkeeper.master.fate.Operation`.
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
        """Two rounds."""
        rows = {log: row for log in logs_of(call.args) if (row := read_root(self.context.table, log)) is not None}
        first = self._round(rows)
        likely = {log: row for log, row in rows.items() if root_waves.is_over(log, first, first, True)}
        second = self._round(likely)
        over = [log for log, row in likely.items() if self._is_over(row, first, second)]
        if not over:
            return Done()
        told: list[Json] = [
            [[*route], [log.encode() for log in logs]] for route, logs in in_order_of_telling(second, over)
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

    def _is_over(self, row: RootRow, first: root_waves.Round, second: root_waves.Round) -> bool:
        long_gone = is_long_gone(row, self.context.age_clock.wall_ms(), self.context.paths_apart_ms)
        if not root_waves.is_over(row.log, first, second, long_gone):
            return False
        for instance, reason in second.lost.get(row.log, {}).items():
            LOG.warning(
                "%s counts as over for %s, which could not be asked for tserver.paths_apart_ms: what it still hands on "
                "may be taken twice elsewhere (%s)", row.log.file, instance, reason,
            )  # fmt: skip
        return True

    def _round(self, rows: Mapping[RootLog, RootRow]) -> root_waves.Round:
        starts = {log: row.instances for log, row in rows.items()}
        return root_waves.ask_round(starts, self.context.own_instance_id, self._ask)

    def _ask(self, route: Route, logs: Sequence[RootLog]) -> Sequence[RootStanding]:
        peer = self._peer(route[0])
        return self.context.peers.root_standings(*peer, route[1:], logs)

    def _tell(self, route: Route, logs: Sequence[RootLog]) -> None:
        peer = self._peer(route[0])
        self.context.peers.roots_over(*peer, route[1:], logs)

    def _peer(self, instance_id: str) -> tuple[str, str, str]:
        peer = peer_on_route(self.context.config(), instance_id, self.context.own_instance_id)
        return peer.alias, peer.quorum, peer.instance_id


@dataclass(frozen=True, slots=True)
class ForgetRoots:
    """At whoever was told. See :class:`bookkeeper.master.fate.Operation`."""

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
        purge_rows(self.context, logs_of(call.args))
        return Next("forget", {})

    def forget(self, call: Call) -> Outcome:
        """Every live tserver forgets what the tablets that it serves, or is about to serve, hold of them."""
        logs = logs_of(call.args)
        problems = self.context.tservers.for_each_live(lambda tserver: tserver.forget_roots(logs))
        return Wait("; ".join(problems), 500) if problems else Done()


def purge_rows(context: Context, logs: Iterable[RootLog]) -> None:
    """For good: names of logs are never used again."""
    context.reign.check()
    rows = (context.table.get(keys.root_row(log), ("recv",)) for log in logs)
    context.table.purge([cell for row in rows if row is not None for cell in cells_of_row(row)])
