"""What a client remembers of tables: where the tablets of a name are, so that a small scan is one call, of a tserver.

Arrives: names of tables, and doubts. Leaves: maps of tablets, mostly without a call of a master. What is remembered may
be wrong at any moment; then a tserver says that it does not serve the tablet, and whoever is turned away asks again,
for this tablet only: the price of a tablet that moved does not grow with its table.
That is enough: ids of tables are never used again, and a table's name is given back when no tserver serves it any more,
so under a name nobody is ever shown the cells of an earlier table. Nothing survives a crash.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from bookkeeper.client.table_admin import Tables
from bookkeeper.client.tablet_extents import TableMap, table_map
from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, IncompatibleError, NotFoundError, TransientError
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import TabletLocation
from bookkeeper.rpc.rpc_pool import UNREACHED

REMEMBERED_MS = 5_000
"""How long an answer of the master is used without asking again: a tserver that is stopped turns nobody away."""

LOCATE_BUDGET_MS = 1_000
"""How long one look for tablets is tried for; those who look repeat it for longer."""


@dataclass(frozen=True, slots=True)
class _Known:
    """An answer of the master, and when it came (boot clock)."""

    found: TableMap
    since_ns: int


class LocationCache:
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

    def ask(self, table: str, table_id: str | None = None) -> TableMap:
        """What the master says now of all tablets of the table that has the name now; ``table_id`` if it was asked for
        a moment ago. Raises NotFoundError, TransientError.
        """
        since_ns = self._clock.boot_ns()
        table_id = table_id or self._tables.get(table, LOCATE_BUDGET_MS).table_id
        found = table_map(self._tables.locate(table_id, LOCATE_BUDGET_MS))
        with self._lock:
            self._known[table] = _Known(found, since_ns)
        return found

    def ask_for_tablet(self, table: str, row: bytes, table_id: str | None) -> TableMap:
        """See :meth:`TablePlaces.ask`."""
        with self._lock:
            known = self._known.get(table)
        if known is None:
            return self.ask(table, table_id)
        try:
            answer = self._tables.locate_tablet(known.found.extents[0].table_id, row, LOCATE_BUDGET_MS)
        except NotFoundError:  # deleted; there may be another one of this name
            return self.ask(table)
        found = known.found.with_tablet(answer)
        if found is None:
            return self.ask(table)
        with self._lock:
            if self._known.get(table) is known:
                self._known[table] = _Known(found, known.since_ns)
        return found

    def doubt(self, table: str, extent: Extent) -> None:
        """See :class:`TablePlaces`."""
        with self._lock:
            known = self._known.get(table)
            found = None if known is None else known.found.with_tablet(TabletLocation(extent, None))
            if known is not None and found is not None:
                self._known[table] = _Known(found, known.since_ns)
            else:
                self._known.pop(table, None)


class TablePlaces:
    """The tablets of one table, by its name."""

    def __init__(self, places: LocationCache, table: str, table_id: str | None = None) -> None:
        """``table_id``: what the master has just said."""
        self.table = table
        self._places = places
        self._table_id = table_id

    def remembered(self) -> TableMap | None:
        """What the master said a little while ago; None when that is forgotten, or too old."""
        return self._places.remembered(self.table)

    def ask(self, row: bytes, again: bool = False) -> TableMap:
        """What the master says now of the tablet that holds a row, and of all others when nothing recent is known of
        them. ``again``: somebody waits for this tablet, and knows the others. Raises NotFoundError, TransientError.
        """
        table_id, self._table_id = self._table_id, None
        if again or self.remembered() is not None:
            return self._places.ask_for_tablet(self.table, row, table_id)
        return self._places.ask(self.table, table_id)

    def doubt(self, extent: Extent) -> None:
        """Somebody was turned away: use what is known of this tablet no more."""
        self._places.doubt(self.table, extent)


def is_stale_location(error: BookkeeperError) -> bool:
    """Whether a call failed in a way that says nothing against asking the master and trying again: what was remembered
    may be old, and the address belong to somebody else by now.
    """
    return isinstance(error, TransientError | IncompatibleError) or UNREACHED in error.details
