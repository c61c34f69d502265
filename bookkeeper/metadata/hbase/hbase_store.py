"""The metadata table in HBase, through its Thrift server: one table per cluster, one family per kind of cell.

Survives a crash: every call that returned, in HBase's own log. A rank is the cell's timestamp and the families have one
version, so HBase does the merge: the newest version wins in any order of arrival, a delete is a DeleteColumn marker at
its rank, a purge one at PURGE_RANK. No write needs a read. Of two values at one rank the last write stays (rule R1
excludes that case). The marker of a delete or purge works until a compaction takes all files of its family, which HBase
starts by itself: weekly unless configured otherwise, and when a minor one takes all files (rule R4). The reader folds
values through ``combiners``.

Before a thread uses a connection, a check shows that it leads to the table of this instance (``hbase_pool``,
``owner``).

Facts of HBase 2.6 used here: one mutateRowsTs has one timestamp and applies deletes after puts (so a call holds one
kind only); the puts of one row in one BatchMutation are atomic; ``family:`` is a column with an empty qualifier.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any

from bookkeeper.errors import LostBooksError, NotFoundError, PermanentError
from bookkeeper.metadata.hbase.hbase_calls import CallLimits, HBaseAddress, HBaseCalls, thrift
from bookkeeper.metadata.hbase.hbase_cells import (
    bytes_of,
    column_name,
    column_range,
    family_names,
    parts_of,
    rows_of,
)
from bookkeeper.metadata.hbase.hbase_table import check_table, read_owner
from bookkeeper.metadata.hbase.read_ahead import read_ahead
from bookkeeper.metadata.metadata_limits import (
    check_cells,
    check_families,
    check_key,
    check_puts,
    check_rank,
    first_key,
)
from bookkeeper.metadata.metadata_table import PURGE_RANK, CellKey, Row, RowPut
from bookkeeper.metadata.owner import OwnerCheck, lost

BATCH_CELLS, BATCH_BYTES = 2_000, 2 * 1024 * 1024
"""A request ends with the row that reaches one of these."""

PAGE_ROWS_FIRST, PAGE_ROWS_MAX, PAGE_BYTES = 64, 2_000, 2 * 1024 * 1024
"""A scan starts with small pages; the size of later ones follows PAGE_BYTES and the previous page."""

PART_CELLS, PARTS_MAX = 1_000, 64
"""Cells in a part of a long row (a shorter row is one part); most parts or rows in an answer to a read of parts."""

SCAN_ALONE = 2
"""Pages of a scan that are not read early: many callers take a few rows and stop."""

SCANS_AHEAD_MAX = 4
"""Scans whose next page is read early, at once; a further one asks when its caller comes for the page."""


class HBaseMetadataTable:
    """:class:`~bookkeeper.metadata.metadata_table.MetadataTable` in the existing HBase table
    ``<prefix>_metadata``.

    Clusters with different prefixes share one HBase. ``least_round``: books of a lower round are an older copy. Raises
    NotFoundError, RefusedError or IncompatibleError when the table is not that of ``instance_id``; a later call to such
    a table raises LostBooksError and changes nothing.
    """

    def __init__(
        self, address: HBaseAddress, instance_id: str, least_round: int, limits: CallLimits | None = None
    ) -> None:
        self._address = address
        self._name = address.table
        self._owner = OwnerCheck(str(address), instance_id, least_round)
        self._is_open = False
        self._calls = HBaseCalls(address, limits or CallLimits(), self._check_owner)
        self._ahead = ThreadPoolExecutor(SCANS_AHEAD_MAX, thread_name_prefix="page")
        try:
            self._calls.call(check_table, address)
        except BaseException as error:
            self._calls.close()
            if isinstance(error, LostBooksError):
                raise NotFoundError(error.message) from error
            raise
        self._is_open = True

    def _check_owner(self, client: Any) -> None:
        """Check that a connection leads to the books of this instance, and not to an older copy of them."""
        try:
            self._owner.check(partial(read_owner, client, self._address))
        except PermanentError as error:
            if self._is_open:
                raise lost(error) from error
            raise

    # ---- the protocol

    def put(self, rows: Sequence[RowPut], rank: int) -> None:
        """See :class:`~bookkeeper.metadata.metadata_table.MetadataTable`."""
        check_puts(rows, rank)
        self._mutate((_row_of_puts(row) for row in rows if row.values), rank)

    def delete(self, cells: Sequence[CellKey], rank: int) -> None:
        """See :class:`~bookkeeper.metadata.metadata_table.MetadataTable`."""
        check_rank(rank)
        check_cells(cells)
        self._mutate(_rows_of_deletes(cells), rank)

    def purge(self, cells: Sequence[CellKey]) -> None:
        """See :class:`~bookkeeper.metadata.metadata_table.MetadataTable`."""
        check_cells(cells)
        self._mutate(_rows_of_deletes(cells), PURGE_RANK)

    def get(self, key: bytes, families: Collection[str] | None = None) -> Row | None:
        """See :class:`~bookkeeper.metadata.metadata_table.MetadataTable`."""
        check_key(key)
        columns = family_names(check_families(families))
        if not columns:
            return None
        rows = self._calls.call(lambda client: rows_of(client.getRowWithColumns(self._name, key, columns, {})))
        return rows[0] if rows else None

    def get_slice(self, key: bytes, family: str, start: bytes, stop: bytes) -> Row | None:
        """See :class:`~bookkeeper.metadata.metadata_table.SliceReader`. The region servers select the cells
        (ColumnRangeFilter).
        """
        check_key(key)
        columns = family_names(check_families((family,)))
        if start >= stop:
            return None
        rows = self._calls.call(self._page, key, first_key(key + b"\x00"), columns, 1, column_range(start, stop))
        return rows[0] if rows else None

    def scan(
        self, start: bytes = b"", stop: bytes | None = None, families: Collection[str] | None = None
    ) -> Iterator[Row]:
        """See :class:`~bookkeeper.metadata.metadata_table.MetadataTable`."""
        pages = self._pages(start, stop, family_names(check_families(families)))
        return chain.from_iterable(read_ahead(pages, self._ahead, SCAN_ALONE))

    def scan_parts(self, start: bytes, stop: bytes | None, families: Collection[str]) -> Iterator[Row]:
        """See :class:`~bookkeeper.metadata.metadata_table.PartReader`. One request reads a long row. A scanner whose
        region moved goes on in another region server, and skips cells that changed meanwhile: a compaction there has
        dropped their values of the scanner's moment.
        """
        pages = self._pages_of_parts(start, stop, family_names(check_families(families)))
        return chain.from_iterable(read_ahead(pages, self._ahead, alone=1))

    def probe(self) -> None:
        """See :class:`~bookkeeper.metadata.metadata_table.Probed`. One read without a second try: HBase refuses reads
        when it refuses writes.
        """
        with self._calls.client() as client:
            read_owner(client, self._address)

    def close(self) -> None:
        """See :class:`~bookkeeper.metadata.metadata_table.MetadataTable`."""
        self._calls.close()

    # ---- requests

    def _mutate(self, rows: Iterable[tuple[Any, int, int]], rank: int) -> None:
        """Send rows in batches of complete rows; each comes with the number of its cells and bytes."""
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
        self._calls.call(lambda client: client.mutateRowsTs(self._name, batch, rank, {}))

    def _pages(self, start: bytes, stop: bytes | None, columns: list[bytes]) -> Iterator[list[Row]]:
        """A series of short scans: no scanner stays open between pages, and each page may be repeated."""
        at, page_rows = first_key(start), PAGE_ROWS_FIRST
        stop = None if stop is None else first_key(stop)
        while columns and at is not None and (stop is None or at < stop):
            rows = self._calls.call(self._page, at, stop, columns, page_rows)
            yield rows
            if len(rows) < page_rows:
                return
            at = first_key(rows[-1].key + b"\x00")
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

    def _pages_of_parts(self, start: bytes, stop: bytes | None, columns: list[bytes]) -> Iterator[list[Row]]:
        """Pages of complete rows as in :meth:`_pages`, up to a long row, which is read whole: a step of its own would
        leave the caller without work while the row is read.
        """
        at = first_key(start)
        stop = None if stop is None else first_key(stop)
        while columns and at is not None and (stop is None or at < stop):
            rows, is_cut, is_last = self._calls.call(self._page_of_parts, at, stop, columns)
            next_key = first_key(rows[-1].key + b"\x00") if rows else None
            yield [*rows[:-1], *self._long_row(rows[-1].key, columns)] if is_cut else rows
            if is_last:
                return
            at = next_key

    def _page_of_parts(
        self, client: Any, start: bytes, stop: bytes | None, columns: list[bytes]
    ) -> tuple[list[Row], bool, bool]:
        """Rows, each with its first cells only, whether the last one is a long row, and whether no row follows."""
        limits = {"caching": PARTS_MAX, "filterString": b"ColumnPaginationFilter (%d, 0)" % PART_CELLS}
        scanner = self._open(client, start, stop, columns, limits)
        rows: list[Row] = []
        size, requested, is_cut, is_last = 0, 1, False, False
        while size < PAGE_BYTES and not is_cut and not is_last:
            found = rows_of(client.scannerGetList(scanner, requested))
            is_last = len(found) < requested
            # A full part: its row may have more cells.
            index = next((index for index, row in enumerate(found) if len(row.cells) >= PART_CELLS), None)
            if index is not None:
                found, is_cut, is_last = found[: index + 1], True, False
            rows += found
            size += bytes_of(found)
            requested = min(4 * requested, PARTS_MAX)
        client.scannerClose(scanner)
        return rows, is_cut, is_last

    def _long_row(self, key: bytes, columns: list[bytes]) -> list[Row]:
        """The parts of one row, which one request reads; none when it is gone."""
        return self._calls.call(
            lambda client: parts_of(client.getRowWithColumns(self._name, key, columns, {}), PART_CELLS)
        )

    def _open(self, client: Any, start: bytes, stop: bytes | None, columns: list[bytes], limits: dict[str, Any]) -> Any:
        """The id of a new scanner; it belongs to its connection, because there may be several Thrift servers."""
        rows = {"startRow": start} if stop is None else {"startRow": start, "stopRow": stop}
        return client.scannerOpenWithScan(self._name, thrift.TScan(columns=columns, **rows, **limits), {})


def _row_of_puts(row: RowPut) -> tuple[Any, int, int]:
    puts = [thrift.Mutation(column=column_name(c), value=value) for c, value in row.values.items()]
    size = sum(len(put.column) + len(put.value) for put in puts)
    return thrift.BatchMutation(row=row.key, mutations=puts), len(puts), size


def _rows_of_deletes(cells: Iterable[CellKey]) -> Iterator[tuple[Any, int, int]]:
    for cell in cells:
        column = column_name(cell.column)
        deletes = [thrift.Mutation(column=column, isDelete=True)]
        yield thrift.BatchMutation(row=cell.key, mutations=deletes), 1, len(cell.key) + len(column)


def _next_page_rows(rows: Sequence[Row], previous: int) -> int:
    """The number of rows for the next page: PAGE_BYTES by the row size so far, at most four times the previous one."""
    fitting = PAGE_BYTES * len(rows) // max(bytes_of(rows), 1)
    return max(1, min(fitting, 4 * previous, PAGE_ROWS_MAX))
