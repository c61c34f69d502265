"""The logs that a tablet gives up, because the host that has them stays away (``table.failover``). Pure.

A tablet of a table with ``table.failover = wait`` gives nothing up. Of another one the logs on a host are given up when
the host, with this disk, has had no live session for the time that the table allows: those that its row names for
recovery, and those that peers still lack, because the next holder's records would wait for their order (R24). A cell
goes again when its host is back and the tablet lacks nothing of the log; a cell with a tail goes when its leader has
named the tail. A void cell goes at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from bookkeeper.metadata import keys, lost_logs
from bookkeeper.metadata.metadata_table import CellKey, Row, RowPut
from bookkeeper.metadata.values import LogHome
from bookkeeper.storage.volume.names import LOGS

ROW_FAMILIES = ("tablet", "location", "log", "repl", keys.REPLICA_FAMILY)


NO_HOME = LogHome("", "")
"""The home of a session whose logs lie on the cluster's Volume: it is never away."""


class AwayHomes(Struct, frozen=True):
    """The homes of logs that can't be read now. ``homes``: of each session whose logs lie on a host; ``away_ms``: how
    long each home that is not here has been away; ``replaced``: those whose host lives with another disk.
    """

    homes: Mapping[str, LogHome]
    away_ms: Mapping[LogHome, float]
    replaced: frozenset[LogHome] = frozenset()

    def home_of(self, log: str) -> LogHome | None:
        """The home of a log; None for one on the cluster's Volume."""
        return self.homes.get(session_of(log))


class Failover(Struct, frozen=True):
    """The writes for one tablet: ``put`` and ``rank``, and cells with the ranks to delete them at. ``is_released``: its
    last holder's logs lie on a host that was given up, so the tablet goes to a next holder.
    """

    put: RowPut | None
    rank: int
    deletes: tuple[tuple[CellKey, int], ...]
    is_released: bool


def session_of(log: str) -> str:
    """The session that wrote a log: the directory that it is in."""
    return log.removeprefix(LOGS).partition("/")[0]


def is_overdue(away_ms: float, failover_ms: int | None) -> bool:
    """Whether a host has been away for as long as its table waits."""
    return failover_ms is not None and away_ms >= failover_ms


def plan_failover(row: Row, failover_ms: int | None, away: AwayHomes, holder: str | None) -> Failover:
    """The plan of one tablet with several replicas, from its row with :data:`ROW_FAMILIES`. ``holder``: its last
    session, which is over; None while a live session has the tablet, so no log stands in its way.
    """
    serial = row.cells.get(keys.SERIAL)
    known = lost_logs.given_up(row)
    needed = {keys.parse_file(log) for log in row.family("log")}
    owed = {keys.parse_file(log) for log in row.family("repl")}
    unread = {log for log in needed | owed if away.home_of(log) in away.away_ms}
    late = {log for log in unread if is_overdue(away.away_ms[away.homes[session_of(log)]], failover_ms)}
    may_go_on = holder is not None and serial is not None and needed & unread <= late | known.keys()
    fresh = late - known.keys() if may_go_on else set()
    cells = {keys.lost_column(log): away.homes[session_of(log)].encode() for log in sorted(fresh)}
    over = [
        (CellKey(row.key, keys.lost_column(log)), cell.rank)
        for log, cell in known.items()
        if log not in needed and log not in unread
    ]
    return Failover(
        RowPut(row.key, cells) if cells else None,
        0 if serial is None else serial.rank,
        (*lost_logs.void_cells(row), *over),
        may_go_on and is_overdue(away.away_ms.get(away.homes.get(holder or "", NO_HOME), -1.0), failover_ms),
    )


def homes_away(homes: Mapping[str, LogHome], live: Mapping[str, str]) -> tuple[frozenset[LogHome], frozenset[LogHome]]:
    """The homes without a live session on the same disk, and those of them whose host lives with another disk.
    ``live``: host to the incarnation of its disk.
    """
    away = frozenset(home for home in homes.values() if live.get(home.host) != home.incarnation)
    return away, frozenset(home for home in away if home.host in live)
