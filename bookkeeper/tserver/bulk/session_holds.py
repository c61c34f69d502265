"""Holds of this session: files that arrive from other clusters, and files that a tablet is about to name.

A hold that can't be ended stays until the session is over; then the collector ends it. Rules: R4 and R17.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from bookkeeper.bulk.file_holds import end_holds, put_holds, unheld
from bookkeeper.errors import BookkeeperError, UnavailableError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Column, MetadataTable
from bookkeeper.runtime.session_retries import SessionRetries

LOG = logging.getLogger(__name__)


class Taking(Struct):
    """Files that a tablet is about to name."""

    is_in_doubt: bool = False
    """Whether a put that names them may be on its way."""

    def begin_put(self) -> None:
        """A put that names them is about to begin."""
        self.is_in_doubt = True

    def put_done(self) -> None:
        """The books have the put."""
        self.is_in_doubt = False


class SessionHolds:
    """Thread-safe."""

    def __init__(self, table: MetadataTable, retries: SessionRetries, session_id: str) -> None:
        self._table = table
        self._retries = retries
        self._session_id = session_id

    def arrives(self, file: str) -> None:
        """Hold a file of another cluster before it exists. Raises TransientError."""
        self._retries.check()
        put_holds(self._table, keys.arrival_column(self._session_id), [file])

    def arrived(self, files: Sequence[str]) -> None:
        """The files are deleted, or tablets decide about them."""
        self._end(keys.arrival_column(self._session_id), files)

    def beside(self, log: str, files: Collection[str]) -> None:
        """Hold files with the records of a log for as long as the log exists. Raises TransientError."""
        put_holds(self._table, keys.log_hold_column(log), files)

    @contextmanager
    def taking(self, files: Sequence[str]) -> Iterator[Taking]:
        """Rule R17: hold files while a tablet takes them. Raises UnavailableError when one of them has no other holder
        any more, TransientError.
        """
        column = keys.taking_column(self._session_id, uuid.uuid4().hex)
        taking = Taking()
        try:
            put_holds(self._table, column, files, self._retries.check)
            gone = unheld(self._table, files)
            if gone:
                raise UnavailableError(f"nothing holds {gone[0]} any more, so it may be deleted: ask again")
            yield taking
        finally:
            if not taking.is_in_doubt:
                self._end(column, files)

    def _end(self, column: Column, files: Sequence[str]) -> None:
        try:
            self._retries.retry("the end of a hold", lambda: end_holds(self._table, column, files))
        except BookkeeperError as error:
            LOG.warning("%d files are held until this session is over: %s", len(files), error.message)
