"""The tablets that this tserver serves, by extent and by table. Thread-safe."""

from __future__ import annotations

import threading

from bookkeeper.errors import NotServingError
from bookkeeper.metadata import keys
from bookkeeper.model import Extent
from bookkeeper.tserver.tablets.tablet import ServedTablet


class Registry:
    """Served tablets by row."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tablets: dict[bytes, ServedTablet] = {}

    def add(self, tablet: ServedTablet) -> None:
        """Serve a tablet."""
        with self._lock:
            self._tablets[tablet.row] = tablet

    def remove(self, tablet: ServedTablet) -> None:
        """Stop serving a tablet."""
        with self._lock:
            if self._tablets.get(tablet.row) is tablet:
                del self._tablets[tablet.row]

    def find(self, extent: Extent) -> ServedTablet | None:
        """The tablet with exactly this extent, whether it takes writes or not."""
        tablet = self._tablets.get(keys.tablet_row(extent.table_id, extent.end_row))
        return tablet if tablet is not None and tablet.extent == extent else None

    def holds(self, tablet: ServedTablet) -> bool:
        """Whether this server still serves the tablet, and so may write its row; under the lock of its flushes."""
        return self.find(tablet.extent) is tablet

    def serving(self, extent: Extent) -> ServedTablet:
        """The tablet with exactly this extent; raises NotServingError when it is not here or on its way out."""
        tablet = self.find(extent)
        if tablet is None or not tablet.accepting:
            raise NotServingError(f"tablet {extent} is not served here: locate it again")
        return tablet

    def all(self) -> list[ServedTablet]:
        """All of them, in order of their extents' rows."""
        with self._lock:
            return [tablet for _, tablet in sorted(self._tablets.items())]

    def of_table(self, table_id: str) -> list[ServedTablet]:
        """Those of one table."""
        return [tablet for tablet in self.all() if tablet.extent.table_id == table_id]
