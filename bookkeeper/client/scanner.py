"""Scans: the cells in a range of rows, tablet after tablet, page after page.

Arrives: a range and what to see of it. Leaves: Arrow batches in row order. The next page is fetched while one is used.
The first page is asked for by whoever iterates, as the client remembers the tablets: a small scan is one call, and
starts no thread. A tablet that moved, or whose tserver died, is located again and the scan goes on behind the last cell
it gave. A scan is no snapshot: it sees what is there when it gets there.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import pyarrow as pa

from bookkeeper.client import location_cache
from bookkeeper.client.location_cache import TablePlaces
from bookkeeper.client.retry import retrying
from bookkeeper.client.tablet_extents import TableMap, UnservableTracker
from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, CorruptionError, NotFoundError, NotServingError, TransientError
from bookkeeper.model import MUTATION_SCHEMA, Extent
from bookkeeper.rpc.contract.messages import ScanPage, ScanRequest
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.storage.wal import decode_batch

LOG = logging.getLogger(__name__)

PAGE_BYTES = 1024 * 1024
"""Of the first page."""
PAGE_BYTES_MAX = 4 * PAGE_BYTES
"""Pages grow up to this: a page has a price of its own, which a long scan then pays for ever more records."""

PLAIN_PAGE_BYTES_MAX = 64 * 1024 * 1024
"""Most bytes that a compressed page may take: above the largest one that a tserver makes."""

BUDGET_MS = 120_000
"""How long one page is tried for."""

PAGE_TIMEOUT_MS = 10_000
"""How long one try may take; about as long as it takes to replace a tserver that is stopped."""


def admit_page(size: int) -> None:
    """Let a compressed page that takes ``size`` bytes be decompressed, or raise CorruptionError."""
    if size > PLAIN_PAGE_BYTES_MAX:
        raise CorruptionError(f"a page of a scan takes {size} bytes, the limit is {PLAIN_PAGE_BYTES_MAX}")


class Cell(NamedTuple):
    """One cell. ``timestamp`` is in milliseconds since 1970, ``visibility`` an expression of authorizations."""

    row: bytes
    family: bytes
    qualifier: bytes
    visibility: bytes
    timestamp: int
    value: bytes


@dataclass(frozen=True, slots=True)
class ScanRange:
    """The cells that a scan shows: a cell has to satisfy every field."""

    start_row: bytes | None = None
    """First row, included; None = from the first row of the table on."""
    stop_row: bytes | None = None
    """Last row, excluded; None = to the end of the table."""
    families: tuple[bytes, ...] = ()
    """Families to show, beside ``columns``; both empty = all."""
    columns: tuple[tuple[bytes, bytes], ...] = ()
    """Pairs of family and qualifier to show, beside ``families``."""
    page_bytes: int | None = None
    """Bytes of each page that a tserver sends; None: the first page of a tablet is small, the next ones grow."""
    versions: int | None = None
    """Versions of a cell at most, newest first; None = as many as ``table.versions.max`` keeps."""
    from_ms: int | None = None
    """Least timestamp, included; milliseconds since 1970."""
    to_ms: int | None = None
    """Greatest timestamp, excluded; milliseconds since 1970."""
    user: str | None = None
    """The user who looks; None = ``root``."""
    authorizations: tuple[str, ...] | None = None
    """Authorizations to look with, each one that the user has; None = all of the user's."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a scan is: in the tablet of ``row``, behind the tserver's mark ``resume`` (None = from ``row`` on)."""

    row: bytes
    resume: bytes | None
    page_bytes: int
    table_id: str | None = None
    """Of the pages before; None: this is the first one."""


def page_after(page_bytes: int) -> int:
    """How large the page behind one of so many bytes is."""
    return min(2 * page_bytes, PAGE_BYTES_MAX)


def is_of_another_table(scanned: str | None, table_id: str) -> bool:
    """Whether the pages before (None: there are none) came from a table that had the name earlier."""
    return scanned is not None and scanned != table_id


class Scanner:
    """The result of :meth:`Client.scan`. Iterating gives Arrow record batches in the order of rows; each iteration is a
    new scan.

    A batch has the columns ``row``, ``family``, ``qualifier``, ``visibility`` (binary), ``timestamp`` (int64,
    milliseconds since 1970), ``delete`` (always false) and ``value`` (binary). A scan is no snapshot: a write that
    happens meanwhile is shown if the scan has not passed its row.
    """

    def __init__(
        self,
        tablets: TablePlaces,
        pool: RpcPool,
        clock: Clock,
        rng: random.Random,
        wanted: ScanRange,
        reasons: Callable[[], str] = str,
    ) -> None:
        """For tests; users call :meth:`Client.scan`. ``reasons`` tells why a tablet stays out of reach, "" when it is
        not known.
        """
        self._reasons = reasons
        self._places = tablets
        self._pool = pool
        self._clock = clock
        self._rng = rng
        self._wanted = wanted

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Record batches, none of them empty. Raises NotServingError when no tserver gives a page of a tablet for two
        minutes, CorruptionError when a tablet needs a person's help, NotFoundError when the table is deleted.
        """
        ended = threading.Event()
        with ThreadPoolExecutor(1, thread_name_prefix="scan") as fetcher:
            try:
                batch, place = self._fetch(self._at(self._wanted.start_row or b"", None), ended)
                while place is not None:
                    fetching = fetcher.submit(self._fetch, place, ended)
                    if batch.num_rows:
                        yield batch
                    batch, place = fetching.result()
                if batch.num_rows:
                    yield batch
            finally:
                ended.set()

    def cells(self) -> Iterator[Cell]:
        """The same cells one by one; slower than batches."""
        for batch in self:
            yield from map(Cell._make, zip(*(batch.column(name).to_pylist() for name in Cell._fields), strict=True))

    def table(self) -> pa.Table:
        """The same cells as one Arrow table, for ranges that fit in memory."""
        return pa.Table.from_batches(list(self), MUTATION_SCHEMA)

    def _fetch(self, place: _Place, ended: threading.Event) -> tuple[pa.RecordBatch, _Place | None]:
        """One page, and where to go on; None at the end."""
        extent, page = self._as_remembered(place) or self._as_asked(place, ended)
        batch = decode_batch(page.records, admit_page)
        if page.resume is not None:
            row = batch.column("row")[-1].as_py() if batch.num_rows else place.row
            page_bytes = self._wanted.page_bytes or page_after(place.page_bytes)
            return batch, _Place(row, page.resume, page_bytes, extent.table_id)
        stop_row = self._wanted.stop_row
        next_row = None if extent.end_row is None else extent.end_row + b"\x00"
        is_over = next_row is None or (stop_row is not None and stop_row <= next_row)
        return batch, None if is_over or next_row is None else self._at(next_row, extent.table_id)

    def _at(self, row: bytes, table_id: str | None) -> _Place:
        """The beginning of the part of a tablet that goes on at ``row``."""
        return _Place(row, None, self._wanted.page_bytes or PAGE_BYTES, table_id)

    def _as_remembered(self, place: _Place) -> tuple[Extent, ScanPage] | None:
        """A page of the tserver that is known, if there is one; None: nobody there gives it."""
        located = self._places.remembered()
        if located is None:
            return None
        try:
            return self._page(place, located)
        except BookkeeperError as error:
            if not location_cache.is_stale_location(error):
                raise
            LOG.debug("table %s is located again: %s", self._places.table, error)
            self._places.doubt(located.extents[located.index_of(place.row)])
            return None

    def _as_asked(self, place: _Place, ended: threading.Event) -> tuple[Extent, ScanPage]:
        """A page of the tserver that the master names, asked again and again."""
        unservable = UnservableTracker(self._clock)
        attempts = count()

        def attempt() -> tuple[Extent, ScanPage]:
            located = self._places.ask(place.row, again=next(attempts) > 0)
            try:
                return self._page(place, located, unservable)
            except TransientError:
                self._places.doubt(located.extents[located.index_of(place.row)])
                raise

        try:
            return retrying(self._clock, self._rng, ended, BUDGET_MS, "scan")(attempt)
        except NotServingError as error:
            reasons = self._reasons()
            raise NotServingError(f"{error.message}: {reasons}" if reasons else error.message) from error

    def _page(
        self, place: _Place, located: TableMap, unservable: UnservableTracker | None = None
    ) -> tuple[Extent, ScanPage]:
        index = located.index_of(place.row)
        extent, address = located.extents[index], located.addresses[index]
        if is_of_another_table(place.table_id, extent.table_id):
            raise NotFoundError(f"table {self._places.table} was deleted while it was scanned, and made again")
        if unservable is not None:
            unservable.note(located, (extent,))
        if address is None:
            raise NotServingError(f"nobody serves tablet {extent} now")
        wanted = self._wanted
        columns = tuple(part for column in wanted.columns for part in column)
        start_row = wanted.start_row if place.resume is not None else place.row or None
        request = ScanRequest(
            extent,
            start_row,
            wanted.stop_row,
            wanted.families,
            columns,
            place.resume,
            place.page_bytes,
            wanted.versions,
            wanted.from_ms,
            wanted.to_ms,
            wanted.user,
            wanted.authorizations,
        )
        return extent, self._pool.tserver(address, PAGE_TIMEOUT_MS).scan(request)
