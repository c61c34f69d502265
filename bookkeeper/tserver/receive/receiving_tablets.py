"""Where the tablets of a table are, as the metadata table says it; read again when an answer proves it wrong.

Arrives: table ids, and the news that a location was stale. Leaves: the extents of a table with their addresses.
Survives a crash: nothing; it is a cache.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from bookkeeper.errors import NotFoundError, NotServingError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import MetadataTable, Row
from bookkeeper.model import Extent, chain_break

LOCATION_FAMILIES = ("tablet", "location")


@dataclass(frozen=True, slots=True)
class Located:
    """A tablet and the address of the tserver that it is assigned to; None while it is to nobody."""

    extent: Extent
    session: str | None
    address: str | None


def located(row: Row) -> Located | None:
    """A tablet row read with :data:`LOCATION_FAMILIES`; None for a remnant. Raises CorruptionError."""
    if not keys.is_tablet(row):
        return None
    location = row.cells.get(keys.LOCATION)
    table_id, end_row = keys.parse_tablet_row(row.key)
    extent = Extent(table_id, end_row, values.decode_prev_row(row.cells[keys.PREV_ROW].value))
    assigned = None if location is None else values.Location.decode(location.value)
    if assigned is None or assigned.is_parked:
        return Located(extent, None, None)
    return Located(extent, assigned.session, assigned.address)


def check_chain(table_id: str, tablets: list[Located]) -> None:
    """Rule R16: the tablets join up from the first row to the last; raises NotServingError when a scan met a change."""
    if not tablets:
        raise NotFoundError(f"table {table_id} has no tablets here")
    extents = [tablet.extent for tablet in tablets]
    at = chain_break(extents)
    if at == len(extents):
        raise NotServingError(f"the last tablet of table {table_id} is missing: read them again")
    if at is not None:
        raise NotServingError(f"the tablets of table {table_id} do not join up at {extents[at]}: read them again")


class Locations:
    """A cache of the tablets of each table. Thread-safe."""

    def __init__(self, metadata: MetadataTable) -> None:
        self._metadata = metadata
        self._lock = threading.Lock()
        self._tables: dict[str, list[Located]] = {}

    def of_table(self, table_id: str) -> list[Located]:
        """The tablets of a table in row order. Raises NotFoundError, NotServingError, TransientError."""
        with self._lock:
            known = self._tables.get(table_id)
        if known is None:
            start, stop = keys.table_section(table_id)
            known = [
                tablet
                for row in self._metadata.scan(start, stop, LOCATION_FAMILIES)
                if (tablet := located(row)) is not None
            ]
            check_chain(table_id, known)
            with self._lock:
                self._tables[table_id] = known
        return known

    def forget(self, table_id: str) -> None:
        """What was known of a table proved wrong."""
        with self._lock:
            self._tables.pop(table_id, None)
