"""First uses of logs that reach the books when a tablet needs nothing of the log: their `log:` cells go (R4).

A tserver may stand still in its put of a first use until its session is over and the next holder has loaded the tablet.
Or the put gets no answer and is repeated, and a flush ends the use; HBase may drop the tombstone of that at once. Then
the first put arrives, before the collector marks the log. The row names a log of which the tablet needs nothing, and no
flush ends this use: the log, its finished cells and the peers' high-waters would stay until the tablet is loaded again.
So a thread looks for such cells now and then, and deletes them at the rank of a sealed log. The `repl:` cell of the
same put goes by itself, because the master closes it from the log. Rules: R4, R12.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, LeaseLostError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, Row
from bookkeeper.runtime.threads import SELDOM_MS, BackgroundThread, Die
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.writing.seal import read_seal
from bookkeeper.tserver.books.tablet_books import TabletBooks
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.tablets.tablet_registry import Registry

LOG = logging.getLogger(__name__)


def is_needed(log: str, needed: Collection[str]) -> bool:
    """Whether recovery of a tablet may read a log: the row named it when the tablet was loaded, and no flush has its
    records yet.
    """
    return log in needed


class LateUses:
    """Looks at the rows of all tablets that are served here, once a minute, in a thread of its own."""

    def __init__(self, registry: Registry, books: TabletBooks, volume: Volume, clock: Clock, die: Die) -> None:
        self._registry = registry
        self._books = books
        self._volume = volume
        self._thread = BackgroundThread("late-uses", clock, die)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start(self.run_once, SELDOM_MS)

    def close(self) -> None:
        """End the thread."""
        self._thread.close()

    def run_once(self) -> None:
        """Look at each row once."""
        tablets = {tablet.row: tablet for tablet in self._registry.all() if tablet.accepting}
        try:
            for key, row in self._books.get_many(tablets, ("log",)).items():
                self._end(tablets[key], row)
        except LeaseLostError:
            raise
        except BookkeeperError as error:
            LOG.info("late uses of logs are looked for again later: %s", error.message)

    def _end(self, tablet: ServedTablet, row: Row) -> None:
        """Delete the row's cells of late uses; ``row`` was read before."""
        late = [name for name in map(keys.parse_file, row.family("log")) if self._is_late(tablet, name)]
        if not late:
            return
        with tablet.flushes.lock:
            if self._registry.holds(tablet):
                cells = [CellKey(tablet.row, keys.log_column(name)) for name in late]
                self._books.delete(cells, keys.log_delete_rank(keys.OFFSET_MAX))
                LOG.info("tablet %s ends late uses of %s: it needs nothing of them", tablet.extent, ", ".join(late))

    def _is_late(self, tablet: ServedTablet, log: str) -> bool:
        """Whether the tablet needs nothing of a log, and nothing can follow in it. Raises CorruptionError,
        TransientError.
        """
        if tablet.given_up.awaits(log) or read_seal(self._volume, log) is None:
            return False
        # After the seal: all records of an own log are applied before it is sealed, and no later one needs it.
        flushes = tablet.flushes
        return not is_needed(log, flushes.logs_in_row(flushes.needed_logs()))
