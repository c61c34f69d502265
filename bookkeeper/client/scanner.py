"""Scans: the cells in a range of rows as Arrow batches in row order, tablet after tablet, page after page.

The scanner fetches the next page while the caller uses one. The iterating thread fetches the first page itself, with
cached locations, so a small scan is one call and starts no thread. When a tablet moves or its tserver dies, the scanner
locates it again and goes on behind the last cell. A scan is no snapshot: it shows each tablet as it is when it gets
there.
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
from bookkeeper.client.location_cache import TableLocations
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
"""Size of the first page, bytes."""
PAGE_BYTES_MAX = 4 * PAGE_BYTES
"""Maximum size of a page, bytes. Pages grow, so that a long scan makes fewer calls."""

PLAIN_PAGE_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of a decompressed page, bytes: above the largest page that a tserver makes."""

BUDGET_MS = 120_000
"""Time for one page with all its tries, ms."""

PAGE_TIMEOUT_MS = 10_000
"""Time-out of one try, ms: about the time that replacing a stopped tserver takes."""


def admit_page(size: int) -> None:
    """Allow a page of ``size`` bytes to be decompressed, or raise CorruptionError."""
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
    """The user of the scan; None = ``root``."""
    authorizations: tuple[str, ...] | None = None
    """Authorizations of the scan, a subset of the user's; None = all of the user's."""


@dataclass(frozen=True, slots=True)
class _Position:
    """A scan's position: in the tablet of ``row``, behind the tserver's mark ``resume`` (None = from ``row`` on)."""

    row: bytes
    resume: bytes | None
    page_bytes: int
    table_id: str | None = None
    """The table of the earlier pages; None: this is the first page."""


def page_after(page_bytes: int) -> int:
    """Size of the page that follows one of ``page_bytes``."""
    return min(2 * page_bytes, PAGE_BYTES_MAX)


def is_of_another_table(scanned: str | None, table_id: str) -> bool:
    """Whether the earlier pages (None: there are none) came from an earlier table of the same name."""
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
        tablets: TableLocations,
        pool: RpcPool,
        clock: Clock,
        rng: random.Random,
        scan_range: ScanRange,
        reasons: Callable[[], str] = str,
    ) -> None:
        """For tests; users call :meth:`Client.scan`. ``reasons`` returns why tablets are not served, "" = unknown."""
        self._reasons = reasons
        self._locations = tablets
        self._pool = pool
        self._clock = clock
        self._rng = rng
        self._range = scan_range

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Record batches, none of them empty. Raises NotServingError when no tserver gives a page of a tablet for two
        minutes, CorruptionError when a tablet needs an operator's help, NotFoundError when the table is deleted.
        """
        ended = threading.Event()
        with ThreadPoolExecutor(1, thread_name_prefix="scan") as fetcher:
            try:
                batch, position = self._fetch(self._position_at(self._range.start_row or b"", None), ended)
                while position is not None:
                    fetching = fetcher.submit(self._fetch, position, ended)
                    if batch.num_rows:
                        yield batch
                    batch, position = fetching.result()
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

    def _fetch(self, position: _Position, ended: threading.Event) -> tuple[pa.RecordBatch, _Position | None]:
        """One page, and the position of the next one; None at the end."""
        extent, page = self._use_cached_tablets(position) or self._use_located_tablets(position, ended)
        batch = decode_batch(page.records, admit_page)
        if page.resume is not None:
            row = batch.column("row")[-1].as_py() if batch.num_rows else position.row
            page_bytes = self._range.page_bytes or page_after(position.page_bytes)
            return batch, _Position(row, page.resume, page_bytes, extent.table_id)
        stop_row = self._range.stop_row
        next_row = None if extent.end_row is None else extent.end_row + b"\x00"
        is_over = next_row is None or (stop_row is not None and stop_row <= next_row)
        return batch, None if is_over or next_row is None else self._position_at(next_row, extent.table_id)

    def _position_at(self, row: bytes, table_id: str | None) -> _Position:
        """The position of the first page from ``row`` on."""
        return _Position(row, None, self._range.page_bytes or PAGE_BYTES, table_id)

    def _use_cached_tablets(self, position: _Position) -> tuple[Extent, ScanPage] | None:
        """A page from the cached tserver; None: none is cached, or it does not serve the tablet."""
        located = self._locations.cached()
        if located is None:
            return None
        try:
            return self._page(position, located)
        except BookkeeperError as error:
            if not location_cache.is_stale_location(error):
                raise
            LOG.debug("locating table %s again: %s", self._locations.table, error)
            self._locations.invalidate(located.extents[located.index_of(position.row)])
            return None

    def _use_located_tablets(self, position: _Position, ended: threading.Event) -> tuple[Extent, ScanPage]:
        """A page from the tserver that the master names; repeated until it succeeds."""
        unservable = UnservableTracker(self._clock)
        attempts = count()

        def attempt() -> tuple[Extent, ScanPage]:
            located = self._locations.locate(position.row, again=next(attempts) > 0)
            try:
                return self._page(position, located, unservable)
            except TransientError:
                self._locations.invalidate(located.extents[located.index_of(position.row)])
                raise

        try:
            return retrying(self._clock, self._rng, ended, BUDGET_MS, "scan")(attempt)
        except NotServingError as error:
            reasons = self._reasons()
            raise NotServingError(f"{error.message}: {reasons}" if reasons else error.message) from error

    def _page(
        self, position: _Position, located: TableMap, unservable: UnservableTracker | None = None
    ) -> tuple[Extent, ScanPage]:
        index = located.index_of(position.row)
        extent, address = located.extents[index], located.addresses[index]
        if is_of_another_table(position.table_id, extent.table_id):
            raise NotFoundError(f"table {self._locations.table} was deleted and created again during the scan")
        if unservable is not None:
            unservable.check(located, (extent,))
        if address is None:
            raise NotServingError(f"no tserver serves tablet {extent} now")
        cells = self._range
        columns = tuple(part for column in cells.columns for part in column)
        start_row = cells.start_row if position.resume is not None else position.row or None
        request = ScanRequest(
            extent,
            start_row,
            cells.stop_row,
            cells.families,
            columns,
            position.resume,
            position.page_bytes,
            cells.versions,
            cells.from_ms,
            cells.to_ms,
            cells.user,
            cells.authorizations,
        )
        return extent, self._pool.tserver(address, PAGE_TIMEOUT_MS).scan(request)
