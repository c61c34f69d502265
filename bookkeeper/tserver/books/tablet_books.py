"""The rows of this tserver's tablets in the metadata table: each write checks first that the session is not over.

A put of one row survives a crash wholly or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from bookkeeper.metadata.chosen_rows import chosen_rows
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable, Row, RowPut
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.tserver.books.wal_cells import log_deletes
from bookkeeper.tserver.shipping.unnamed_records import TabletKey
from bookkeeper.tserver.tablets.tablet import ServedTablet


class TabletBooks:
    """Reads and writes tablets' rows."""

    def __init__(
        self,
        metadata: MetadataTable,
        persistence: SessionRetries,
        note_named: Callable[[TabletKey, Mapping[str, int]], None] = lambda _key, _logs: None,
    ) -> None:
        """``note_named`` hears, by the key of a tablet, which records in logs its named state has."""
        self._metadata = metadata
        self._persistence = persistence
        self._note_named = note_named

    def get(self, row: bytes, families: Sequence[str]) -> Row | None:
        """The families of a row; None when there is no such row. Raises TransientError."""
        return self._metadata.get(row, families)

    def get_many(self, rows: Iterable[bytes], families: Sequence[str]) -> Mapping[bytes, Row]:
        """The families of those of these rows that are there. Raises TransientError, CorruptionError."""
        return chosen_rows(self._metadata, rows, families)

    def confirm(self) -> None:
        """See :meth:`SessionRetries.confirm`."""
        self._persistence.confirm()

    def put(self, puts: Sequence[RowPut], rank: int) -> None:
        """Try once. Raises TransientError: the books may have the rows, or get them later."""
        self._persistence.check()
        self._metadata.put(puts, rank)

    def put_surely(self, work: str, put: RowPut, rank: int) -> None:
        """Try until the books have the row. Raises BookkeeperError: the books may have it or not."""
        self._persistence.retry(work, lambda: self._metadata.put([put], rank))

    def delete(self, cells: Sequence[CellKey], rank: int) -> None:
        """Delete cells up to a rank. Raises TransientError."""
        self._persistence.check()
        self._metadata.delete(cells, rank)

    def let_logs_go(self, tablet: ServedTablet, logs: Mapping[str, int]) -> None:
        """The books name a state with the tablet's records in these logs, each up to an offset: delete the ``log:``
        cells. Raises TransientError.
        """
        self._note_named(tablet.key, logs)
        for cell, rank in log_deletes(tablet.row, logs):
            self.delete([cell], rank)
