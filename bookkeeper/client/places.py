"""What a client remembers of tables: where the tablets of a name are, so that a small scan is one call, of a tserver.

Arrives: names of tables, and doubts. Leaves: maps of tablets, mostly without a call of a master. What is remembered may
be wrong at any moment; then a tserver says that it does not serve the tablet, and whoever is turned away asks again.
That is enough: ids of tables are never used again, and a table's name is given back when no tserver serves it any more,
so under a name nobody is ever shown the cells of an earlier table. Nothing survives a crash.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from bookkeeper.client.locations import TableMap, table_map
from bookkeeper.client.tables import Tables
from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, IncompatibleError, TransientError
from bookkeeper.rpc.client import UNREACHED

REMEMBERED_MS = 5_000
"""How long an answer of the master is used without asking again: a tserver that is stopped turns nobody away."""

LOCATE_BUDGET_MS = 1_000
"""How long one look for tablets is tried for; those who look repeat it for longer."""


@dataclass(frozen=True, slots=True)
class _Known:
    """An answer of the master, and when it came (boot clock)."""

    found: TableMap
    since_ns: int


class Places:
    """The memory of one client. Thread-safe; it holds one answer for each name that was asked for."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}

    def of(self, table: str) -> TablePlaces:
        """Those of one table; raises NotFoundError when the master, asked if nothing is remembered, knows none."""
        places = TablePlaces(self, table)
        return places if places.remembered() is not None else TablePlaces(self, table, self._tables.get(table).table_id)

    def remembered(self, table: str) -> TableMap | None:
        """See :class:`TablePlaces`."""
        with self._lock:
            known = self._known.get(table)
        is_old = known is None or self._clock.boot_ns() - known.since_ns > REMEMBERED_MS * 1_000_000
        return None if known is None or is_old else known.found

    def ask(self, table: str, table_id: str | None) -> TableMap:
        """See :class:`TablePlaces`; ``table_id`` if it was asked for a moment ago."""
        since_ns = self._clock.boot_ns()
        table_id = table_id or self._tables.get(table, LOCATE_BUDGET_MS).table_id
        found = table_map(self._tables.locate(table_id, LOCATE_BUDGET_MS))
        with self._lock:
            self._known[table] = _Known(found, since_ns)
        return found

    def doubt(self, table: str, found: TableMap) -> None:
        """See :class:`TablePlaces`."""
        with self._lock:
            known = self._known.get(table)
            if known is not None and known.found is found:
                del self._known[table]


class TablePlaces:
    """The tablets of one table, by its name."""

    def __init__(self, places: Places, table: str, table_id: str | None = None) -> None:
        """``table_id``: what the master has just said."""
        self.table = table
        self._places = places
        self._table_id = table_id

    def remembered(self) -> TableMap | None:
        """What the master said a little while ago; None when that is forgotten, or too old."""
        return self._places.remembered(self.table)

    def ask(self) -> TableMap:
        """What the master says now, of the table that has the name now. Raises NotFoundError, TransientError."""
        table_id, self._table_id = self._table_id, None
        return self._places.ask(self.table, table_id)

    def doubt(self, found: TableMap) -> None:
        """Somebody was turned away: use this no more."""
        self._places.doubt(self.table, found)


def leads_astray(error: BookkeeperError) -> bool:
    """Whether a call failed in a way that says nothing against asking the master and trying again: what was remembered
    may be old, and the address belong to somebody else by now.
    """
    return isinstance(error, TransientError | IncompatibleError) or UNREACHED in error.details
