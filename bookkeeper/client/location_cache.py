"""A client's cache of tablet locations by table name, so that a small scan is one call of a tserver.

A cached location may be wrong at any moment. Then a tserver answers that it does not serve the tablet, and the caller
invalidates and locates this tablet only, so the cost of a moved tablet does not grow with its table. This is safe: ids
of tables are never used again, and a table's name becomes free only when no tserver serves the table any more, so no
scan shows the cells of an earlier table under its name.
"""

from __future__ import annotations

import threading

from msgspec import Struct

from bookkeeper.client.table_admin import Tables
from bookkeeper.client.tablet_extents import TableMap, table_map
from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, IncompatibleError, NotFoundError, TransientError
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import TabletLocation
from bookkeeper.rpc.rpc_pool import UNREACHED

CACHED_MS = 5_000
"""Milliseconds for which a cached answer is used: a stopped tserver does not answer that it serves a tablet no more."""

LOCATE_BUDGET_MS = 1_000
"""Budget of one call that locates tablets, ms; callers repeat it for longer."""


class _CachedTablets(Struct, frozen=True):
    """An answer of the master, and the boot clock when the client asked for it."""

    tablets: TableMap
    since_ns: int


class LocationCache:
    """The cache of one client, one entry for each table name. Thread-safe."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock
        self._lock = threading.Lock()
        self._cached: dict[str, _CachedTablets] = {}

    def of(self, table: str) -> TableLocations:
        """The locations of one table. Asks the master if none is cached; raises NotFoundError for an unknown table."""
        locations = TableLocations(self, table)
        if locations.cached() is not None:
            return locations
        return TableLocations(self, table, self._tables.get(table).table_id)

    def cached(self, table: str) -> TableMap | None:
        """See :class:`TableLocations`."""
        with self._lock:
            entry = self._cached.get(table)
        is_old = entry is None or self._clock.boot_ns() - entry.since_ns > CACHED_MS * 1_000_000
        return None if entry is None or is_old else entry.tablets

    def locate(self, table: str, table_id: str | None = None) -> TableMap:
        """Ask the master for all tablets of the table with this name; ``table_id`` if the caller has just read it.
        Raises NotFoundError, TransientError.
        """
        since_ns = self._clock.boot_ns()
        table_id = table_id or self._tables.get(table, LOCATE_BUDGET_MS).table_id
        tablets = table_map(self._tables.locate(table_id, LOCATE_BUDGET_MS))
        with self._lock:
            self._cached[table] = _CachedTablets(tablets, since_ns)
        return tablets

    def locate_tablet(self, table: str, row: bytes, table_id: str | None) -> TableMap:
        """See :meth:`TableLocations.locate`."""
        with self._lock:
            entry = self._cached.get(table)
        if entry is None:
            return self.locate(table, table_id)
        try:
            answer = self._tables.locate_tablet(entry.tablets.extents[0].table_id, row, LOCATE_BUDGET_MS)
        except NotFoundError:  # deleted; there may be another table of this name
            return self.locate(table)
        tablets = entry.tablets.with_tablet(answer)
        if tablets is None:
            return self.locate(table)
        with self._lock:
            if self._cached.get(table) is entry:
                self._cached[table] = _CachedTablets(tablets, entry.since_ns)
        return tablets

    def invalidate(self, table: str, extent: Extent) -> None:
        """See :class:`TableLocations`."""
        with self._lock:
            entry = self._cached.get(table)
            tablets = None
            if entry is not None:
                replicas = entry.tablets.replicas.get(extent, ())
                tablets = entry.tablets.with_tablet(TabletLocation(extent, None, replicas=replicas))
            if entry is not None and tablets is not None:
                self._cached[table] = _CachedTablets(tablets, entry.since_ns)
            else:
                self._cached.pop(table, None)


class TableLocations:
    """The tablets of the table with one name."""

    def __init__(self, cache: LocationCache, table: str, table_id: str | None = None) -> None:
        """``table_id``: the master's fresh answer, if there is one."""
        self.table = table
        self._cache = cache
        self._table_id = table_id

    def cached(self) -> TableMap | None:
        """The master's last answer; None when there is none or it is too old."""
        return self._cache.cached(self.table)

    def locate(self, row: bytes, again: bool = False) -> TableMap:
        """Ask the master for the tablet that holds a row, and for all other tablets if none is cached. ``again``: the
        caller repeats the question for this tablet, so the others are not asked for. Raises NotFoundError,
        TransientError.
        """
        table_id, self._table_id = self._table_id, None
        if again or self.cached() is not None:
            return self._cache.locate_tablet(self.table, row, table_id)
        return self._cache.locate(self.table, table_id)

    def invalidate(self, extent: Extent) -> None:
        """Forget the location of this tablet: its tserver refused a call."""
        self._cache.invalidate(self.table, extent)


def is_stale_location(error: BookkeeperError) -> bool:
    """Whether a call may have failed because the location is old, so that the caller asks the master and tries again.
    Another process may listen at the old address by now.
    """
    return isinstance(error, TransientError | IncompatibleError) or UNREACHED in error.details
