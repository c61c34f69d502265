"""The metadata table in HBase, through its Thrift server: one table per cluster, one family per kind of cell.

Arrives: puts, deletes and purges. Leaves: rows in key order. Survives a crash: every call that returned, in HBase's
own log. A rank is the cell's timestamp and the families keep one version, so HBase does the merge: the newest
version wins whatever the order of arrival, a delete is a DeleteColumn marker at its rank, a purge one at PURGE_RANK.
Nothing is read before it is written. Of two values at one rank the last write stays (rule R1: it never comes to
that). The marker of a delete or purge works until a compaction takes all files of its family, which HBase starts by
itself: weekly unless configured otherwise, and whenever a minor one happens to take all (rule R4). Folding through
``combiners`` is the reader's (design section 4).

All writes are idempotent, so whatever failed on the way (a connection dropped because it was idle, a server that
restarts) is repeated whole on a new connection, for a bounded time. Facts of HBase 2.6 used here: one mutateRowsTs
has one timestamp and applies deletes after puts (so a call holds one kind only); the puts of one row in one
BatchMutation are atomic; ``family:`` is a column with an empty qualifier.
"""

from __future__ import annotations

import importlib
import logging
import random
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

import happybase
import tenacity
from happybase.pool import TException

from bookkeeper.errors import (
    IncompatibleError,
    InvalidInputError,
    OverloadedError,
    PermanentError,
    UnavailableError,
)
from bookkeeper.metadata.hbase_cells import bytes_of, column_name, column_range, family_names, rows_of
from bookkeeper.metadata.limits import check_cells, check_families, check_key, check_puts, check_rank
from bookkeeper.metadata.table import FAMILIES, PURGE_RANK, CellKey, Row, RowPut

_thrift: Any = importlib.import_module("Hbase_thrift")
"""HBase's messages; happybase makes this module when it is imported."""

_P = ParamSpec("_P")
_T = TypeVar("_T")
_log = logging.getLogger(__name__)

BATCH_CELLS, BATCH_BYTES = 2_000, 2 * 1024 * 1024
"""A request is sent with the first whole row that reaches one of these."""

PAGE_ROWS_FIRST, PAGE_ROWS_MAX, PAGE_BYTES = 64, 2_000, 2 * 1024 * 1024
"""A scan starts with small pages; later ones aim at PAGE_BYTES, judged by the page before."""

PART_CELLS, PARTS_MAX = 1_000, 64
"""Cells in a part of a long row, rows of fewer come whole; parts or rows in an answer while parts are read."""

_PREFIX = re.compile(r"(?:[A-Za-z0-9_]+:)?[A-Za-z0-9_][A-Za-z0-9_.-]*")
_REFUSALS = (b"NoSuchColumnFamilyException", b"IllegalArgumentException", b"AccessDeniedException")


class HBaseMetadataTable:
    """:class:`~bookkeeper.metadata.table.MetadataTable` in the HBase table ``<prefix>_metadata``, made when missing.

    ``prefix`` may start with ``namespace:`` (the namespace has to exist); clusters with different prefixes share one
    HBase. ``timeout_ms`` bounds each request on its socket, ``retry_for_ms`` all tries of one call, ``connections_max``
    the requests in flight. ``sleep`` (seconds) and ``rng`` space the tries.
    """

    def __init__(
        self,
        host: str,
        port: int,
        prefix: str,
        *,
        timeout_ms: int = 15_000,
        retry_for_ms: int = 30_000,
        connections_max: int = 16,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        if _PREFIX.fullmatch(prefix) is None:
            raise InvalidInputError(f"{prefix!r} can't start the name of an HBase table: letters, digits and _ . - can")
        rng = rng or random.Random()
        self._name = f"{prefix}_metadata".encode()
        self._pool = _ConnectionPool(host, port, timeout_ms, connections_max)
        self._retry = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(UnavailableError),
            stop=tenacity.stop_after_delay(retry_for_ms / 1000),
            wait=lambda state: _wait_s(state.attempt_number, rng),
            sleep=sleep,
            reraise=True,
            before_sleep=_tell,
        )
        self._call(self._ensure_table)

    # ---- the protocol

    def put(self, rows: Sequence[RowPut], rank: int) -> None:
        """See :class:`~bookkeeper.metadata.table.MetadataTable`."""
        check_puts(rows, rank)
        self._mutate((_row_of_puts(row) for row in rows if row.values), rank)

    def delete(self, cells: Sequence[CellKey], rank: int) -> None:
        """See :class:`~bookkeeper.metadata.table.MetadataTable`."""
        check_rank(rank)
        check_cells(cells)
        self._mutate(_rows_of_deletes(cells), rank)

    def purge(self, cells: Sequence[CellKey]) -> None:
        """See :class:`~bookkeeper.metadata.table.MetadataTable`."""
        check_cells(cells)
        self._mutate(_rows_of_deletes(cells), PURGE_RANK)

    def get(self, key: bytes, families: Collection[str] | None = None) -> Row | None:
        """See :class:`~bookkeeper.metadata.table.MetadataTable`."""
        check_key(key)
        columns = family_names(check_families(families))
        if not columns:
            return None
        rows = self._call(lambda client: rows_of(client.getRowWithColumns(self._name, key, columns, {})))
        return rows[0] if rows else None

    def get_slice(self, key: bytes, family: str, start: bytes, stop: bytes) -> Row | None:
        """See :class:`~bookkeeper.metadata.table.SliceReader`. The servers cut the row (ColumnRangeFilter)."""
        check_key(key)
        columns = family_names(check_families((family,)))
        if start >= stop:
            return None
        rows = self._call(self._page, key, key + b"\x00", columns, 1, column_range(start, stop))
        return rows[0] if rows else None

    def scan(
        self, start: bytes = b"", stop: bytes | None = None, families: Collection[str] | None = None
    ) -> Iterator[Row]:
        """See :class:`~bookkeeper.metadata.table.MetadataTable`."""
        return self._scan(start, stop, family_names(check_families(families)))

    def scan_parts(self, start: bytes, stop: bytes | None, families: Collection[str]) -> Iterator[Row]:
        """See :class:`~bookkeeper.metadata.table.PartReader`. What fails within a long row is not tried again, because
        a second scanner would read at another moment: raises UnavailableError. A long row keeps a connection while it
        is read.
        """
        return self._scan_parts(start, stop, family_names(check_families(families)))

    def compact(self) -> None:
        """See :class:`~bookkeeper.metadata.table.MetadataTable`. Asks for a compaction and does not wait for it.

        Nothing depends on it. Tried on 2.6.1: its Thrift server serves ``majorCompact`` as a minor compaction, which
        HBase declines below three files, and has no flush; to drop hidden versions at once, run ``flush`` and
        ``major_compact`` in HBase's shell.
        """
        self._call(lambda client: client.majorCompact(self._name))

    def close(self) -> None:
        """See :class:`~bookkeeper.metadata.table.MetadataTable`."""
        self._pool.close()

    # ---- requests

    def _mutate(self, rows: Iterable[tuple[Any, int, int]], rank: int) -> None:
        """Send rows, given with their cells and bytes, in batches of whole rows."""
        batch: list[Any] = []
        cells = size = 0
        for row, row_cells, row_size in rows:
            batch.append(row)
            cells += row_cells
            size += row_size
            if cells >= BATCH_CELLS or size >= BATCH_BYTES:
                self._send(batch, rank)
                batch, cells, size = [], 0, 0
        if batch:
            self._send(batch, rank)

    def _send(self, batch: list[Any], rank: int) -> None:
        self._call(lambda client: client.mutateRowsTs(self._name, batch, rank, {}))

    def _scan(self, start: bytes, stop: bytes | None, columns: list[bytes]) -> Iterator[Row]:
        """Short scans in a row: no scanner stays open while the reader works, and each page may be repeated."""
        at, page_rows = start, PAGE_ROWS_FIRST
        while columns and (stop is None or at < stop):
            rows = self._call(self._page, at, stop, columns, page_rows)
            yield from rows
            if len(rows) < page_rows:
                return
            at = rows[-1].key + b"\x00"
            page_rows = _next_page_rows(rows, page_rows)

    def _page(
        self,
        client: Any,
        start: bytes,
        stop: bytes | None,
        columns: list[bytes],
        rows: int,
        cells: bytes | None = None,
    ) -> list[Row]:
        limits = {"caching": rows} if cells is None else {"caching": rows, "filterString": cells}
        scanner = self._open(client, start, stop, columns, limits)
        found = client.scannerGetList(scanner, rows)
        client.scannerClose(scanner)
        return rows_of(found)

    def _scan_parts(self, start: bytes, stop: bytes | None, columns: list[bytes]) -> Iterator[Row]:
        """Pages of whole rows as in :meth:`_scan`; one scanner that stays open for each long row."""
        at = start
        while columns and (stop is None or at < stop):
            rows, is_cut, is_last = self._call(self._page_of_parts, at, stop, columns)
            yield from rows[:-1] if is_cut else rows
            if is_cut:
                yield from self._long_row(rows[-1].key, columns)
            if is_last:
                return
            at = rows[-1].key + b"\x00"

    def _page_of_parts(
        self, client: Any, start: bytes, stop: bytes | None, columns: list[bytes]
    ) -> tuple[list[Row], bool, bool]:
        """Rows, whether the last of them is the first part of a long one, and whether no others follow."""
        scanner = self._open_parts(client, start, stop, columns)
        rows: list[Row] = []
        size, asked, is_cut, is_last = 0, 1, False, False
        while size < PAGE_BYTES and not is_cut and not is_last:
            found = rows_of(client.scannerGetList(scanner, asked))
            is_last = len(found) < asked
            place = next((at for at, row in enumerate(found) if may_go_on(row)), None)
            if place is not None:
                found, is_cut, is_last = found[: place + 1], True, False
            rows += found
            size += bytes_of(found)
            asked = min(4 * asked, PARTS_MAX)
        client.scannerClose(scanner)
        return rows, is_cut, is_last

    def _long_row(self, key: bytes, columns: list[bytes]) -> Iterator[Row]:
        with self._client() as client:
            scanner = self._open_parts(client, key, key + b"\x00", columns)
            while found := client.scannerGetList(scanner, 1):
                yield from rows_of(found)
            client.scannerClose(scanner)

    def _open_parts(self, client: Any, start: bytes, stop: bytes | None, columns: list[bytes]) -> Any:
        return self._open(client, start, stop, columns, {"caching": PARTS_MAX, "batchSize": PART_CELLS})

    def _open(self, client: Any, start: bytes, stop: bytes | None, columns: list[bytes], limits: dict[str, Any]) -> Any:
        """A scanner's number; each connection has its own, for there may be several Thrift servers."""
        rows = {"startRow": start} if stop is None else {"startRow": start, "stopRow": stop}
        return client.scannerOpenWithScan(self._name, _thrift.TScan(columns=columns, **rows, **limits), {})

    def _call(self, request: Callable[Concatenate[Any, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run ``request(client, ...)``, again on another connection while the failure may pass."""
        answer: _T = self._retry(self._once, request, *args, **kwargs)
        return answer

    def _once(self, request: Callable[Concatenate[Any, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self._client() as client:
            return request(client, *args, **kwargs)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        with self._pool.client() as client:
            try:
                yield client
            except _thrift.IllegalArgument as error:
                raise InvalidInputError(f"HBase refuses: {_first_line(error)}") from error
            except _thrift.IOError as error:
                if any(reason in error.message for reason in _REFUSALS):
                    raise PermanentError(f"HBase refuses: {_first_line(error)}") from error
                raise UnavailableError(f"HBase table {self._name.decode()}: {_first_line(error)}") from error

    # ---- the table

    def _ensure_table(self, client: Any) -> None:
        """Make the table unless it is there, alone or in a race, and check that it is ours; repeated until it is."""
        if self._name not in client.getTableNames():
            try:
                client.createTable(self._name, [_family(name) for name in FAMILIES])
            except _thrift.AlreadyExists:
                _log.info("HBase table %s was created by another process", self._name.decode())
        client.getRow(self._name, b"~", {})
        found = client.getColumnDescriptors(self._name)
        versions = {name.rstrip(b":").decode(): family.maxVersions for name, family in found.items()}
        if versions != dict.fromkeys(FAMILIES, 1):
            raise IncompatibleError(
                f"HBase table {self._name.decode()} has families and versions {versions}; a metadata table has one "
                f"version of {', '.join(FAMILIES)}: choose another prefix"
            )


class _ConnectionPool:
    """Up to ``connections_max`` connections, each used by one thread at a time and dropped at the first fault."""

    def __init__(self, host: str, port: int, timeout_ms: int, connections_max: int) -> None:
        self._host, self._port, self._timeout_ms = host, port, timeout_ms
        self._idle: list[happybase.Connection] = []
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(connections_max)
        self._closed = False

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A Thrift client; raises UnavailableError when the connection fails, OverloadedError when none gets free."""
        if not self._free.acquire(timeout=self._timeout_ms / 1000):
            raise OverloadedError(f"all connections to HBase at {self._host}:{self._port} are in use")
        try:
            connection = self._take()
            try:
                yield connection.client
            except (PermanentError, UnavailableError):
                self._give(connection)  # HBase answered: the connection is sound
                raise
            except BaseException:
                connection.close()
                raise
            self._give(connection)
        except (TException, OSError) as error:
            self._drop_idle()  # what ended this connection has likely ended those that waited beside it
            raise UnavailableError(f"HBase at {self._host}:{self._port} does not answer: {error!r}") from error
        finally:
            self._free.release()

    def close(self) -> None:
        """Close idle connections now and those in use when they come back."""
        with self._lock:
            self._closed = True
        self._drop_idle()

    def _take(self) -> happybase.Connection:
        with self._lock:
            if self._closed:
                raise InvalidInputError(f"the metadata table in HBase at {self._host}:{self._port} was closed")
            if self._idle:
                return self._idle.pop()
        return happybase.Connection(self._host, self._port, timeout=self._timeout_ms)

    def _give(self, connection: happybase.Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def may_go_on(part: Row) -> bool:
    """Whether this may not be all of a row, read in parts."""
    return len(part.cells) >= PART_CELLS


def _wait_s(attempt: int, rng: random.Random) -> float:
    """At once after the first failure (most likely an idle connection was dropped), then 0.05 s to 2 s with jitter."""
    return 0.0 if attempt == 1 else min(2.0, 0.05 * 2.0 ** min(attempt, 10)) * rng.uniform(0.5, 1.0)


def _tell(state: tenacity.RetryCallState) -> None:
    if state.attempt_number > 1 and state.outcome is not None:
        _log.warning("try %d failed, going on: %s", state.attempt_number, state.outcome.exception())


def _first_line(error: Any) -> str:
    text: str = error.message.decode(errors="replace")
    return text.split("\n", 1)[0][:500]


def _family(name: str) -> Any:
    return _thrift.ColumnDescriptor(
        name=f"{name}:".encode(), maxVersions=1, bloomFilterType=b"ROW", blockCacheEnabled=True
    )


def _row_of_puts(row: RowPut) -> tuple[Any, int, int]:
    puts = [_thrift.Mutation(column=column_name(c), value=value) for c, value in row.values.items()]
    size = sum(len(put.column) + len(put.value) for put in puts)
    return _thrift.BatchMutation(row=row.key, mutations=puts), len(puts), size


def _rows_of_deletes(cells: Iterable[CellKey]) -> Iterator[tuple[Any, int, int]]:
    for cell in cells:
        column = column_name(cell.column)
        deletes = [_thrift.Mutation(column=column, isDelete=True)]
        yield _thrift.BatchMutation(row=cell.key, mutations=deletes), 1, len(cell.key) + len(column)


def _next_page_rows(rows: Sequence[Row], asked: int) -> int:
    """How many rows to ask for: as many as PAGE_BYTES hold of the size seen, growing fourfold at most."""
    fitting = PAGE_BYTES * len(rows) // max(bytes_of(rows), 1)
    return max(1, min(fitting, 4 * asked, PAGE_ROWS_MAX))
