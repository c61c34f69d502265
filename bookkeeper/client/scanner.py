"""Scans: the cells in a range of rows, tablet after tablet, page after page.

Arrives: a range and what to see of it. Leaves: Arrow batches in row order. The next page is fetched while one is used.
A tablet that moved, or whose tserver died, is located again and the scan goes on behind the last cell it gave. A scan
is no snapshot: it sees what is there when it gets there.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from bookkeeper.client.locations import Helpless, TableMap
from bookkeeper.client.retry import retrying
from bookkeeper.clock import Clock
from bookkeeper.errors import NotServingError
from bookkeeper.model import MUTATION_SCHEMA, Extent
from bookkeeper.rpc.client import RpcPool
from bookkeeper.rpc.messages import ScanPage, ScanRequest
from bookkeeper.storage.wal import decode_batch

PAGE_BYTES = 1024 * 1024
"""Of the first page."""
PAGE_BYTES_MAX = 4 * PAGE_BYTES
"""Pages grow up to this: a page has a price of its own, which a long scan then pays for ever more records."""

BUDGET_MS = 120_000
"""How long one page is tried for."""

PAGE_TIMEOUT_MS = 10_000
"""How long one try may take; about as long as it takes to replace a tserver that is stopped."""


class Cell(NamedTuple):
    """One cell as a scan shows it; ``timestamp`` in milliseconds."""

    row: bytes
    family: bytes
    qualifier: bytes
    visibility: bytes
    timestamp: int
    value: bytes


@dataclass(frozen=True, slots=True)
class ScanRange:
    """What to see: rows from ``start_row`` (included) to ``stop_row`` (excluded), None = no end; families; columns.

    Of each cell, newest first, at most ``versions`` (None = as many as the table's ``table.versions.max`` keeps) with
    timestamps from ``from_ms`` (included) to ``to_ms`` (excluded), milliseconds. Labelled cells are shown as far as
    ``authorizations`` go, which are of those that ``user`` has (None = all of them; the user then is root).
    """

    start_row: bytes | None = None
    stop_row: bytes | None = None
    families: tuple[bytes, ...] = ()
    columns: tuple[tuple[bytes, bytes], ...] = ()
    page_bytes: int | None = None
    """Of each page; None: the first of a tablet is small, those behind it grow."""
    versions: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    user: str | None = None
    authorizations: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a scan is: in the tablet of ``row``, behind the tserver's mark ``resume`` (None = from ``row`` on)."""

    row: bytes
    resume: bytes | None
    page_bytes: int


def page_after(page_bytes: int) -> int:
    """How large the page behind one of so many bytes is."""
    return min(2 * page_bytes, PAGE_BYTES_MAX)


class Scanner:
    """Iterates Arrow batches of ``MUTATION_SCHEMA``; each iteration is a scan of its own."""

    def __init__(
        self,
        locate: Callable[[], TableMap],
        pool: RpcPool,
        clock: Clock,
        rng: random.Random,
        wanted: ScanRange,
        reasons: Callable[[], str] = str,
    ) -> None:
        """``reasons`` tells why a tablet stays out of reach, "" when nobody knows."""
        self._reasons = reasons
        self._locate = locate
        self._pool = pool
        self._clock = clock
        self._rng = rng
        self._wanted = wanted
        self._map: TableMap | None = None
        self._helpless = Helpless(clock)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Batches that are not empty; raises NotServingError when a tablet stays out of reach, CorruptionError when it
        does so until a person helps.
        """
        ended = threading.Event()
        with ThreadPoolExecutor(1, thread_name_prefix="scan") as fetcher:
            try:
                fetching = fetcher.submit(self._fetch, self._at(self._wanted.start_row or b""), ended)
                while True:
                    batch, place = fetching.result()
                    if place is not None:
                        fetching = fetcher.submit(self._fetch, place, ended)
                    if batch.num_rows:
                        yield batch
                    if place is None:
                        return
            finally:
                ended.set()

    def cells(self) -> Iterator[Cell]:
        """The same, cell by cell."""
        for batch in self:
            yield from map(Cell._make, zip(*(batch.column(name).to_pylist() for name in Cell._fields), strict=True))

    def table(self) -> pa.Table:
        """Everything at once; for ranges that fit in memory."""
        return pa.Table.from_batches(list(self), MUTATION_SCHEMA)

    def _fetch(self, place: _Place, ended: threading.Event) -> tuple[pa.RecordBatch, _Place | None]:
        """One page, and where to go on; None at the end."""
        try:
            extent, page = retrying(self._clock, self._rng, ended, BUDGET_MS, "scan")(self._page, place)
        except NotServingError as error:
            reasons = self._reasons()
            raise NotServingError(f"{error.message}: {reasons}" if reasons else error.message) from error
        batch = decode_batch(page.records)
        if page.resume is not None:
            row = batch.column("row")[-1].as_py() if batch.num_rows else place.row
            return batch, _Place(row, page.resume, self._wanted.page_bytes or page_after(place.page_bytes))
        stop_row = self._wanted.stop_row
        next_row = None if extent.end_row is None else extent.end_row + b"\x00"
        is_over = next_row is None or (stop_row is not None and stop_row <= next_row)
        return batch, None if is_over or next_row is None else self._at(next_row)

    def _at(self, row: bytes) -> _Place:
        """The beginning of the part of a tablet that goes on at ``row``."""
        return _Place(row, None, self._wanted.page_bytes or PAGE_BYTES)

    def _page(self, place: _Place) -> tuple[Extent, ScanPage]:
        located = self._map or self._locate()
        self._map = None  # until the page came, nobody knows whether it is still right
        index = located.index_of(place.row)
        extent, address = located.extents[index], located.addresses[index]
        self._helpless.note(located, (extent,))
        if address is None:
            raise NotServingError(f"nobody serves tablet {extent} now")
        wanted = self._wanted
        columns = tuple(part for column in wanted.columns for part in column)
        start_row = wanted.start_row if place.resume is not None else place.row or None
        page = self._pool.tserver(address, PAGE_TIMEOUT_MS).scan(
            ScanRequest(
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
        )
        self._map, self._helpless = located, Helpless(self._clock)
        return extent, page
