"""The choice of a tserver for each tablet.

Arrives: tablets with their sessions, live sessions, dead ones with unsealed logs. Leaves: assignments of free tablets,
and moves that even out the load. Pure; an assignment may be repeated. Rule: R15.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.index.tablet_index import TabletCounts, TabletIndex

SLACK = 0.05
"""A tserver may have this share more or fewer tablets than the mean before any are moved."""


class Assignment(Struct, frozen=True):
    """A tablet and its next session. ``source`` is a live session that has to unload it first."""

    tablet: TabletView
    session: str
    source: str | None = None


def is_free(tablet: TabletView, live: Collection[str], unsealed: Collection[str]) -> bool:
    """Whether the tablet is free: it never had a tserver, or its tserver is dead or parked it, and has no unsealed log
    (rule R15).

    ``unsealed`` are dead sessions with an unsealed log: a tserver that loads the tablet now misses the log's end.
    """
    return tablet.session not in live and not {tablet.session, tablet.parked_at} & set(unsealed)


def assign_free(
    tablets: Iterable[TabletView],
    live: Collection[str],
    unsealed: Collection[str],
    counts: TabletCounts,
    tablets_max: int | None = None,
) -> list[Assignment]:
    """A live session for each free tablet: the one with the fewest tablets of that table, then of all. ``counts``: the
    present tablets of sessions. No session gets more than ``tablets_max``; the other tablets wait.
    """
    added, sessions = TabletCounts(), sorted(live)
    chosen = []
    for tablet in tablets:
        if not is_free(tablet, live, unsealed):
            continue
        able = [s for s in sessions if tablets_max is None or counts.total[s] + added.total[s] < tablets_max]
        if not able:
            break
        table_id = tablet.extent.table_id
        session = min(able, key=lambda s: (_sum(s, table_id, counts, added), counts.total[s] + added.total[s]))
        added.add(session, table_id)
        chosen.append(Assignment(tablet, session))
    return chosen


def _sum(session: str, table_id: str, counts: TabletCounts, added: TabletCounts) -> int:
    return counts.by_table[session, table_id] + added.by_table[session, table_id]


def missing_sessions(tablets: TabletIndex, live: Collection[str]) -> int:
    """The number of former tservers of the tablets; 0 while any tablet is assigned to a live one."""
    if any(tablets.rows_of(session) for session in live):
        return 0
    return len(tablets.sessions())


def fair_share(tablets: int, sessions: int) -> int:
    """The most tablets of one of so many tservers when the load is even."""
    return -(-tablets // max(sessions, 1))


def is_uneven(tablets: TabletIndex, live: Collection[str]) -> bool:
    """Whether some tserver has so many more or fewer tablets than the mean that moves pay."""
    counts = [tablets.counts.total[session] for session in live]
    if not counts or max(counts) - min(counts) < 2:
        return False
    mean = sum(counts) / len(counts)
    return max(max(counts) - mean, mean - min(counts)) > SLACK * mean


def even_out(
    tablets: TabletIndex,
    live: Collection[str],
    moves_max: int,
    leaving: Mapping[bytes, Assignment],
    may_move: Callable[[TabletView], bool],
) -> list[Assignment]:
    """Moves from the session with the most tablets to the one with the fewest, while they differ by two or more; the
    tablets that it got last move first. ``leaving``: running moves that are not in the books yet.
    """
    load = Counter({session: tablets.counts.total[session] for session in sorted(live)})
    for move in leaving.values():
        load[move.source or ""] -= 1
        load[move.session] += 1
    load = Counter({session: load[session] for session in sorted(live)})
    movable = {session: _movable(tablets, session, leaving, may_move) for session in load}
    moves: list[Assignment] = []
    while load and len(moves) < moves_max:
        most = max(load, key=lambda s: load[s])
        least = min(load, key=lambda s: load[s])
        tablet = next(movable[most], None) if load[most] - load[least] >= 2 else None
        if tablet is None:
            break
        load[most] -= 1
        load[least] += 1
        moves.append(Assignment(tablet, least, most))
    return moves


def _movable(
    tablets: TabletIndex, session: str, leaving: Mapping[bytes, Assignment], may_move: Callable[[TabletView], bool]
) -> Iterator[TabletView]:
    for row in reversed(tablets.rows_of(session)):
        tablet = tablets[row]
        if row not in leaving and tablet.session == session and may_move(tablet):
            yield tablet


def misplaced(
    tablets: Iterable[TabletView], reported: Mapping[str, Collection[bytes]]
) -> tuple[list[TabletView], list[tuple[str, bytes]]]:
    """The difference between the tablets that tservers report and their assignments: tablets to load, and (session,
    row) to unload.

    ``reported`` has the rows that each answering live session reports, read after the assignments were written; for a
    few tablets, only their rows.
    """
    wanted: dict[str, set[bytes]] = {session: set() for session in reported}
    missing = []
    for tablet in tablets:
        if tablet.session in wanted:
            wanted[tablet.session].add(tablet.row)
            if tablet.row not in reported[tablet.session]:
                missing.append(tablet)
    surplus = [
        (session, row) for session, rows in reported.items() for row in sorted(rows) if row not in wanted[session]
    ]
    return missing, surplus
