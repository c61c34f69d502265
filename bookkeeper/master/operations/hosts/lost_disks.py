"""The operation by which an operator accepts that the logs on a disk are lost for ever.

Arrives: the sessions whose logs lay on the disk. Leaves: no cell of a tablet needs one of these logs, so the tablets go
on from the states that the books name; no home says where they are, so the collector finds them missing and ends what
peers lack of them, after longer than any write is in flight (R4). The names are never used again, so the cells are
purged, and each step may be repeated. Rules: R4 and R17.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.errors import NotFoundError, RefusedError
from bookkeeper.master.calls.tservers import session_of_log
from bookkeeper.master.fate.engine import Args, Call, Done, Next, Outcome, Step
from bookkeeper.master.operations.context import Context, text, texts
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, Row
from bookkeeper.metadata.values import Json, LogHome

LOG = logging.getLogger(__name__)

FORGET_HOST_KIND = "forget_host"


def forget_host_args(host: str, homes: Mapping[str, LogHome], sessions: Collection[SessionInfo]) -> Args:
    """Arguments of ``forget_host``. Raises NotFoundError when the books know no log on the host, RefusedError when the
    host lives with the disk that has them.
    """
    there = {session: home for session, home in homes.items() if home.host == host}
    if not there:
        raise NotFoundError(f"the books know no log on host {host}: nothing of it can be lost")
    live = {info.host.incarnation for info in sessions if info.alive and info.host is not None}
    alive = {info.session_id for info in sessions if info.alive}
    lost = sorted(session for session, home in there.items() if home.incarnation not in live and session not in alive)
    if not lost:
        raise RefusedError(f"host {host} is alive with the disk that has its logs: nothing of them is lost")
    found: list[Json] = [*lost]
    return {"host": host, "sessions": found}


def needed_cells(rows: Iterable[Row], sessions: Collection[str]) -> Iterator[CellKey]:
    """The cells of tablets that need a log of these sessions for recovery, or say that one was given up."""
    for row in rows:
        for column in row.cells:
            if keys.is_lost(column):
                log = keys.parse_lost(column)
            elif column.family == "log":
                log = keys.parse_file(column.qualifier)
            else:
                continue
            if session_of_log(log) in sessions:
                yield CellKey(row.key, column)


class ForgetHost(Struct, frozen=True):
    """Accepts the loss of the logs of some dead sessions."""

    context: Context
    first: str = "purge"

    def locks(self, args: Args) -> Collection[str]:
        """One at a time for a host."""
        return (f"host {text(args, 'host')}",)

    @property
    def steps(self) -> Mapping[str, Step]:
        """purge, forget."""
        return {"purge": self.purge, "forget": self.forget}

    def purge(self, call: Call) -> Outcome:
        """Let all tablets go on without the logs."""
        table, sessions = self.context.stores.table, frozenset(texts(call.args, "sessions"))
        rows = table.scan(keys.TABLETS_START, keys.TABLETS_STOP, ("tablet", "log"))
        cells = list(needed_cells(rows, sessions))
        for cell in cells:
            LOG.warning("tablet %s goes on without %s, which is lost", cell.key, cell.column.qualifier)
        self.context.stores.reign.check()
        if cells:
            table.purge(cells)
        return Next("forget", {})

    def forget(self, call: Call) -> Outcome:
        """Forget where the logs were."""
        self.context.stores.reign.check()
        for session in texts(call.args, "sessions"):
            self.context.tservers.forget_home(session)
        self.context.hooks.wake()
        return Done()
