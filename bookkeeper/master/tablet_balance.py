"""Which tserver gets which tablet.

Arrives: all tablets with the sessions they are assigned to, live sessions, dead ones whose logs are all sealed.
Leaves: assignments of tablets that nobody holds, and single moves that even out the load. Pure; an assignment is a
cell first and a call afterwards, and either may be repeated. Sources: design section 5; rule R15.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from bookkeeper.master.snapshot import TabletView


@dataclass(frozen=True, slots=True)
class Assignment:
    """Give the tablet to a session. ``source`` is a live session that has to let go of it first."""

    tablet: TabletView
    session: str
    source: str | None = None


def is_free(tablet: TabletView, live: Collection[str], unsealed: Collection[str]) -> bool:
    """Nobody holds the tablet: it never had a tserver, was parked, or its tserver is dead; and that one's logs are all
    sealed if it is dead (rule R15).

    ``unsealed`` are dead sessions with a log that is not sealed yet: who loads before that, misses its tail.
    """
    return tablet.session not in live and not {tablet.session, tablet.parked_at} & set(unsealed)


def assign_free(tablets: Iterable[TabletView], live: Collection[str], unsealed: Collection[str]) -> list[Assignment]:
    """A live session for each free tablet: the one with the fewest tablets of that table, then of all."""
    if not live:
        return []
    free: list[TabletView] = []
    total: Counter[str] = Counter()
    by_table: Counter[tuple[str, str]] = Counter()
    for tablet in tablets:
        if is_free(tablet, live, unsealed):
            free.append(tablet)
        elif tablet.session is not None:
            _count(tablet, tablet.session, total, by_table)
    chosen = []
    for tablet in free:
        table_id = tablet.extent.table_id
        session = min(sorted(live), key=lambda s: (by_table[s, table_id], total[s]))
        _count(tablet, session, total, by_table)
        chosen.append(Assignment(tablet, session))
    return chosen


def even_out(tablets: Iterable[TabletView], live: Collection[str], moves_max: int) -> list[Assignment]:
    """Moves from the session with the most tablets to the one with the fewest, while they differ by two or more."""
    held: dict[str, list[TabletView]] = {session: [] for session in sorted(live)}
    for tablet in tablets:
        if tablet.session in held:
            held[tablet.session].append(tablet)
    moves: list[Assignment] = []
    while held and len(moves) < moves_max:
        most = max(held, key=lambda s: len(held[s]))
        least = min(held, key=lambda s: len(held[s]))
        if len(held[most]) - len(held[least]) < 2:
            break
        tablet = held[most].pop()
        held[least].append(tablet)
        moves.append(Assignment(tablet, least, most))
    return moves


def misplaced(
    tablets: Iterable[TabletView], held: Mapping[str, Collection[bytes]]
) -> tuple[list[TabletView], list[tuple[str, bytes]]]:
    """What tservers hold compared with what they were given: tablets to load, and (session, row) to let go of.

    ``held`` has the rows that each answering live session says it holds, read after the assignments were written.
    """
    wanted: dict[str, set[bytes]] = {session: set() for session in held}
    missing = []
    for tablet in tablets:
        if tablet.session in wanted:
            wanted[tablet.session].add(tablet.row)
            if tablet.row not in held[tablet.session]:
                missing.append(tablet)
    strays = [(session, row) for session, rows in held.items() for row in sorted(rows) if row not in wanted[session]]
    return missing, strays


def _count(tablet: TabletView, session: str, total: Counter[str], by_table: Counter[tuple[str, str]]) -> None:
    total[session] += 1
    by_table[session, tablet.extent.table_id] += 1
