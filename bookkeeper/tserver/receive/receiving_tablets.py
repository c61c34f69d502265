"""The tablets of a table, and the calls to the tservers that have them.

The addresses are a cache of the metadata table, which is read again when an answer proves the cache wrong.
"""

from __future__ import annotations

import threading

from msgspec import Struct

from bookkeeper.errors import NotFoundError, NotServingError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import MetadataTable, Row
from bookkeeper.model import Extent, chain_break
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.rpc.rpc_pool import RpcPool

LOCATION_FAMILIES = ("tablet", "location")


class Located(Struct, frozen=True):
    """A tablet and the address of the tserver that it is assigned to; None while it is assigned to none."""

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


class ReceivingTablets:
    """The tablets of each table and their tservers. Thread-safe."""

    def __init__(self, metadata: MetadataTable, own_address: str, pool: RpcPool, timeout_ms: float) -> None:
        self._metadata = metadata
        self._own_address = own_address
        self._pool = pool
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        self._tables: dict[str, dict[Extent, Located]] = {}

    def of_table(self, table_id: str) -> dict[Extent, Located]:
        """The tablets of a table in row order. Raises NotFoundError, NotServingError, TransientError."""
        with self._lock:
            cached = self._tables.get(table_id)
        if cached is not None:
            return cached
        start, stop = keys.table_section(table_id)
        rows = self._metadata.scan(start, stop, LOCATION_FAMILIES)
        tablets = [tablet for row in rows if (tablet := located(row)) is not None]
        check_chain(table_id, tablets)
        by_extent = {tablet.extent: tablet for tablet in tablets}
        with self._lock:
            self._tables[table_id] = by_extent
        return by_extent

    def forget(self, table_id: str) -> None:
        """The cached tablets of a table proved wrong."""
        with self._lock:
            self._tables.pop(table_id, None)

    def is_own(self, tablet: Located) -> bool:
        """Whether the tablet is assigned to this server."""
        return tablet.address == self._own_address

    def is_here(self, tablet: Located) -> bool:
        """:meth:`is_own`, for a tablet that is called next. Raises NotServingError when no server has it."""
        if tablet.address is None:
            raise NotServingError(f"tablet {tablet.extent} is assigned to no tserver now: try again")
        return self.is_own(tablet)

    def tserver(self, tablet: Located) -> TServer:
        """The server of a tablet that is not here. Raises NotServingError when there is none."""
        if tablet.address is None:
            raise NotServingError(f"tablet {tablet.extent} is assigned to no tserver now: try again")
        return self._pool.tserver(tablet.address, self._timeout_ms)
