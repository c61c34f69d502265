"""Scans: the cells in a range of rows as Arrow batches in row order, tablet after tablet, page after page.

The scanner fetches the next page while the caller uses one. The iterating thread fetches the first page itself, with
cached locations, so a small scan is one call and starts no thread. When a tablet moves or its tserver dies, the scanner
locates it again and goes on behind the last cell. A scan is no snapshot: it shows each tablet as it is when it gets
there. With ``stale_ms`` followers answer first, and the leader when none of them does.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import NamedTuple

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.client import location_cache
from bookkeeper.client.location_cache import TableLocations
from bookkeeper.client.retry import retrying
from bookkeeper.client.stale_choice import followers_to_ask, may_ask_followers
from bookkeeper.client.tablet_extents import TableMap, UnservableTracker
from bookkeeper.clock import Clock
from bookkeeper.errors import (
    BookkeeperError,
    CorruptionError,
    InvalidInputError,
    NotFoundError,
    NotServingError,
    TransientError,
)
from bookkeeper.model import MUTATION_SCHEMA, Extent
from bookkeeper.rpc.contract.messages import ScanPage, ScanRequest
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.storage.wal.blocks.block import decode_batch

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

FOLLOWER_TIMEOUT_MS = 2_000
"""Time-out of one try at a follower, ms: another host has the same cells, so a scan does not wait for a stopped one."""


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


class ScanRange(Struct, frozen=True):
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
    stale_ms: int | None = None
    """A follower may answer with cells that lack the writes of the last so many ms; None = leaders answer."""

    def __post_init__(self) -> None:
        """Raises InvalidInputError."""
        if self.stale_ms is not None and not self.stale_ms >= 0:
            raise InvalidInputError(f"stale_ms is a number of milliseconds from 0 on, not {self.stale_ms!r}")


class _Position(Struct, frozen=True):
    """A scan's position: in the tablet of ``row``, behind the tserver's mark ``resume`` (None = from ``row`` on)."""

    row: bytes
    resume: bytes | None
    page_bytes: int
    table_id: str | None = None
    """The table of the earlier pages; None: this is the first page."""
    follower: str | None = None
    """The follower that served the tablet's page before; None: the leader did, or there is none."""
    state_id: int | None = None
    """The state of that follower's page."""


class _Found(Struct, frozen=True):
    """A page of a tablet; ``follower`` served it, None = the leader did."""

    extent: Extent
    page: ScanPage
    follower: str | None


class _Fetched(Struct, frozen=True):
    """The records of a page, the position of the next one (None at the end), and the age of a follower's page."""

    batch: pa.RecordBatch
    position: _Position | None
    as_of_ms: int | None


def page_after(page_bytes: int) -> int:
    """Size of the page that follows one of ``page_bytes``."""
    return min(2 * page_bytes, PAGE_BYTES_MAX)


class Scanner:
    """The result of :meth:`Client.scan`. Iterating gives Arrow record batches in the order of rows; each iteration is a
    new scan.

    A batch has the columns ``row``, ``family``, ``qualifier``, ``visibility`` (binary), ``timestamp`` (int64,
    milliseconds since 1970), ``delete`` (always false) and ``value`` (binary). A scan is no snapshot: a write that
    happens meanwhile is shown if the scan has not passed its row. With ``stale_ms`` it may lack the newest writes, and
    ``as_of_ms`` says up to when it has all; the pages of a tablet never go back to an older state.
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
        self._away: set[str] = set()
        self._as_of_ms: int | None = None

    @property
    def as_of_ms(self) -> int | None:
        """The time, ms since 1970, until which the cells so far have every acknowledged write, by the clocks of the
        leaders; None = leaders served all pages. It is that of the oldest page.
        """
        return self._as_of_ms

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Record batches, none of them empty. Raises NotServingError when no tserver gives a page of a tablet for two
        minutes, CorruptionError when a tablet needs an operator's help, NotFoundError when the table is deleted.
        """
        ended = threading.Event()
        self._as_of_ms = None
        with ThreadPoolExecutor(1, thread_name_prefix="scan") as fetcher:
            try:
                fetched = self._fetch(self._position_at(self._range.start_row or b"", None), ended)
                self._note_age(fetched)
                while fetched.position is not None:
                    fetching = fetcher.submit(self._fetch, fetched.position, ended)
                    if fetched.batch.num_rows:
                        yield fetched.batch
                    fetched = fetching.result()
                    self._note_age(fetched)
                if fetched.batch.num_rows:
                    yield fetched.batch
            finally:
                ended.set()

    def cells(self) -> Iterator[Cell]:
        """The same cells one by one; slower than batches."""
        for batch in self:
            yield from map(Cell._make, zip(*(batch.column(name).to_pylist() for name in Cell._fields), strict=True))

    def table(self) -> pa.Table:
        """The same cells as one Arrow table, for ranges that fit in memory."""
        return pa.Table.from_batches(list(self), MUTATION_SCHEMA)

    def _note_age(self, fetched: _Fetched) -> None:
        if fetched.as_of_ms is not None and (self._as_of_ms is None or fetched.as_of_ms < self._as_of_ms):
            self._as_of_ms = fetched.as_of_ms

    def _fetch(self, position: _Position, ended: threading.Event) -> _Fetched:
        """One page."""
        found = self._use_cached_tablets(position) or self._use_located_tablets(position, ended)
        extent, page = found.extent, found.page
        batch = decode_batch(page.records, admit_page)
        if page.resume is not None:
            row = batch.column("row")[-1].as_py() if batch.num_rows else position.row
            page_bytes = self._range.page_bytes or page_after(position.page_bytes)
            following = _Position(row, page.resume, page_bytes, extent.table_id, found.follower, page.state_id)
            return _Fetched(batch, following, page.as_of_ms)
        stop_row = self._range.stop_row
        next_row = None if extent.end_row is None else extent.end_row + b"\x00"
        is_over = next_row is None or (stop_row is not None and stop_row <= next_row)
        next_tablet = None if is_over or next_row is None else self._position_at(next_row, extent.table_id)
        return _Fetched(batch, next_tablet, page.as_of_ms)

    def _position_at(self, row: bytes, table_id: str | None) -> _Position:
        """The position of the first page from ``row`` on."""
        return _Position(row, None, self._range.page_bytes or PAGE_BYTES, table_id)

    def _use_cached_tablets(self, position: _Position) -> _Found | None:
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

    def _use_located_tablets(self, position: _Position, ended: threading.Event) -> _Found:
        """A page from the tserver that the master names; repeated until it succeeds."""
        unservable = UnservableTracker(self._clock)
        attempts = count()

        def attempt() -> _Found:
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

    def _page(self, position: _Position, located: TableMap, unservable: UnservableTracker | None = None) -> _Found:
        index = located.index_of(position.row)
        extent, address = located.extents[index], located.addresses[index]
        if position.table_id not in (None, extent.table_id):  # None: this is the first page
            raise NotFoundError(f"table {self._locations.table} was deleted and created again during the scan")
        request = self._request(extent, position)
        if may_ask_followers(self._range.stale_ms, position.resume is None, position.state_id):
            found = self._follower_page(position, located.replicas.get(extent, ()), address, request)
            if found is not None:
                return found
        if unservable is not None:
            unservable.check(located, (extent,))
        if address is None:
            raise NotServingError(f"no tserver serves tablet {extent} now")
        return _Found(extent, self._pool.tserver(address, PAGE_TIMEOUT_MS).scan(request), None)

    def _follower_page(
        self, position: _Position, replicas: Sequence[str], leader: str | None, request: ScanRequest
    ) -> _Found | None:
        """A page from a follower; None: the leader has to answer."""
        asked = replace(request, stale_ms=self._range.stale_ms, least_state=position.state_id)
        for address in followers_to_ask(replicas, leader, position.follower, self._away, self._rng):
            try:
                page = self._pool.tserver(address, FOLLOWER_TIMEOUT_MS).scan(asked)
            except BookkeeperError as error:
                if not location_cache.is_stale_location(error) and not isinstance(error, CorruptionError):
                    raise
                LOG.debug("asking another host than %s: %s", address, error)
                if not isinstance(error, NotServingError):
                    self._away.add(address)
                continue
            return _Found(request.extent, page, None if page.state_id is None else address)
        return None

    def _request(self, extent: Extent, position: _Position) -> ScanRequest:
        cells = self._range
        columns = tuple(part for column in cells.columns for part in column)
        start_row = cells.start_row if position.resume is not None else position.row or None
        return ScanRequest(
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
