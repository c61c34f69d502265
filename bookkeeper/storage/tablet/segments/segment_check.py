"""The check of a segment from another cluster or an export: it decodes every record before a tablet may take the file.

The check compares the file with the numbers that came with it, and raises CorruptionError with the first difference. A
segment of this project's writer passes, and no other file does, because readers, merges and counters use the numbers of
a segment without its records.

Checked are: bytes behind the row groups, pages and sizes of each row group before it is decoded; the checksums; the
order of all entries; rows, families and the locality group; least and greatest sequence number; the number of records;
the index, the filter and the list of families; the lengths of rows, columns and values; timestamps. Memory is that of
one row group, whose size is bounded, and of the index.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct, field

from bookkeeper.errors import InvalidInputError
from bookkeeper.storage.columns import binary_offsets, distinct, min_max_row
from bookkeeper.storage.tablet.batch_routing import check_limits, is_too_late
from bookkeeper.storage.tablet.segments import bloom
from bookkeeper.storage.tablet.segments.block_cache import BlockCache
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.segments.parquet_pages import size_of_chunk
from bookkeeper.storage.tablet.segments.segment_format import DICTIONARY_COLUMNS, SegmentRef, corrupt
from bookkeeper.storage.tablet.segments.segment_reader import Chunks, Segment, Tail
from bookkeeper.storage.tablet.sorting.entries import ENTRY_SCHEMA, FIXED_BYTES, SEQ, TIMESTAMP, SortedBlock, to_records
from bookkeeper.storage.tablet.sorting.order import order_entries
from bookkeeper.storage.tablet.tablet_settings import BatchLimits, TabletSettings
from bookkeeper.storage.volume.volume_protocol import Volume

PAGES_PER_CONTENT = 2
"""Pages hold at most this many times the bytes of their entries: values that did not fit a dictionary come twice."""

_PHYSICAL = {pa.binary(): "BYTE_ARRAY", pa.int64(): "INT64", pa.bool_(): "BOOLEAN"}


class Bounds(Struct, frozen=True):
    """Bounds of a segment's content. ``tail_bytes_max``: bytes behind its row groups. ``groups``: the locality groups
    of its families; None = not checked. ``timestamp_max``: in ms; None = any.
    """

    limits: BatchLimits
    tail_bytes_max: int
    groups: GroupMap | None = None
    timestamp_max: int | None = None
    settings: TabletSettings = field(default_factory=TabletSettings)

    @property
    def entry_bytes_max(self) -> int:
        """Most bytes of one entry."""
        limits = self.limits
        return limits.row_bytes_max + 3 * limits.column_bytes_max + limits.value_bytes_max + int(FIXED_BYTES) + 1

    @property
    def group_bytes_max(self) -> int:
        """Most bytes of a row group's entries: it ends before the entry that would make it too large, and has one at
        least.
        """
        return self.settings.row_group_bytes + self.entry_bytes_max


def check_segment(
    volume: Volume, ref: SegmentRef, bounds: Bounds, check_continue: Callable[[], None] = lambda: None
) -> None:
    """Decode all of a segment and compare it with its reference. ``check_continue`` runs for each row group and may
    raise. Raises CorruptionError, IncompatibleError, UnavailableError.
    """
    segment = Segment(volume, ref, BlockCache(0, readers=0), bounds.tail_bytes_max)
    try:
        check = _Check(segment, segment.tail(), bounds)
        check.form()
        for number in range(segment.block_count):
            check_continue()
            check.row_group(number)
        check.totals()
    except (ValueError, InvalidInputError) as error:
        raise corrupt(ref.name, str(error)) from error


def equals_stated(found: object, stated: object) -> bool:
    """Whether decoded content equals the number, the key or the list that states it."""
    return found == stated


class _Check:
    """The check of one segment. It raises ValueError or InvalidInputError with the reason."""

    def __init__(self, segment: Segment, tail: Tail, bounds: Bounds) -> None:
        self._segment = segment
        self._ref = segment.ref
        self._tail = tail
        self._bounds = bounds
        self._last_key: tuple[object, ...] = ()
        self._families: set[bytes] = set()
        self._seqs: tuple[int, int] | None = None
        self._content_bytes = 0

    # ---- before decoding

    def form(self) -> None:
        """Check that the columns have the types of a writer, and that row groups do not overlap."""
        schema = self._tail.footer.schema
        for position, expected in enumerate(ENTRY_SCHEMA):
            column = schema.column(position)
            levels = column.max_definition_level, column.max_repetition_level
            if (column.physical_type, levels) != (_PHYSICAL[expected.type], (int(expected.nullable), 0)):
                raise ValueError(f"its column {expected.name} is of type {column.physical_type} with levels {levels}")
        index = self._tail.index
        starts, sizes, records = (index.column(name).to_numpy() for name in ("start", "bytes", "records"))
        ends = starts + sizes
        if starts[0] < 4 or bool((starts[1:] < ends[:-1]).any()) or ends[-1] > self._tail.start:
            raise ValueError("its row groups overlap")
        most = self._bounds.settings.row_group_records
        if bool((records < 1).any()) or bool((records > most).any()):
            raise ValueError(f"a row group has {records.max()} records: there are 1 to {most}")
        if not equals_stated(int(records.sum()), self._ref.records):
            raise ValueError(f"its index has {records.sum()} records, {self._ref.records} were stated")

    def row_group(self, number: int) -> None:
        """Check one row group, and its order behind the one before."""
        index = self._tail.index
        start, size, records = (index.column(name)[number].as_py() for name in ("start", "bytes", "records"))
        most = PAGES_PER_CONTENT * self._bounds.group_bytes_max
        if size > most:
            raise ValueError(f"row group {number} has {size} bytes: at most {most} are read")
        content = self._segment.content(number)
        pages = _page_bytes(self._tail.footer.row_group(number), content, start, records)
        if pages > most:  # before anything is decoded
            raise ValueError(f"row group {number} has pages of {pages} bytes: at most {most} are decoded")
        chunks = self._segment.chunks(number, content)
        plain = plain_bytes(chunks)
        if plain > self._bounds.group_bytes_max:
            raise ValueError(f"row group {number} holds {plain} bytes: at most {self._bounds.group_bytes_max} are kept")
        self._content_bytes += plain
        self._entries(number, self._segment.block_of(chunks))

    # ---- decoded content

    def _entries(self, number: int, block: SortedBlock) -> None:
        entries = block.batch
        entries.validate(full=True)
        if any(column.null_count for column in entries.columns):
            raise ValueError(f"row group {number} holds nulls")
        check_limits(to_records(entries), self._bounds.limits)
        self._order(number, block)
        self._columns(number, entries)

    def _order(self, number: int, block: SortedBlock) -> None:
        stated = self._tail.first_keys[number], self._tail.last_keys[number]
        if not equals_stated((block.first_key, block.last_key), stated):
            raise ValueError(f"row group {number} begins or ends with another key than in its index")
        if not self._last_key < block.first_key or not is_in_order(block.batch):
            raise ValueError(f"row group {number} is not in order")
        self._last_key = block.last_key

    def _columns(self, number: int, entries: pa.RecordBatch) -> None:
        families = distinct(entries.column("family"))
        groups = self._bounds.groups
        foreign = [f for f in families if groups is not None and groups.group_of(f) != self._ref.group]
        if foreign:
            raise ValueError(f"row group {number} has family {foreign[0]!r}, which is not of group {self._ref.group}")
        if self._tail.families is not None:
            self._families.update(families)
        if not bloom.holds_all(self._tail.filter_bytes, bloom.hash_rows(entries.column("row"))):
            raise ValueError(f"its filter hides rows of row group {number}")
        latest = pc.max(entries.column(TIMESTAMP)).as_py()
        if self._bounds.timestamp_max is not None and is_too_late(latest, self._bounds.timestamp_max):
            raise ValueError(f"timestamp {latest}: at most {self._bounds.timestamp_max} is taken now")
        seqs = pc.min_max(entries.column(SEQ)).as_py()
        low, high = self._seqs or (seqs["min"], seqs["max"])
        self._seqs = min(low, seqs["min"]), max(high, seqs["max"])

    # ---- behind the last row group

    def totals(self) -> None:
        """Check the totals over all row groups."""
        stated = self._ref.first_seq + self._ref.shift, self._ref.last_seq + self._ref.shift
        if not equals_stated(self._seqs, stated):
            raise ValueError(f"its sequence numbers are {self._seqs}, {stated} were stated")
        if self._tail.families is not None and not equals_stated(self._families, self._tail.families):
            raise ValueError("its list of families is not that of its records")
        settings = self._bounds.settings
        full = self._ref.records // settings.row_group_records + self._content_bytes // settings.row_group_bytes
        if self._segment.block_count > 2 * full + 2:
            raise ValueError(f"it has {self._segment.block_count} row groups, which a writer would have joined")


def is_in_order(entries: pa.RecordBatch) -> bool:
    """Whether each entry comes behind the one before it, by its key."""
    low, high = min_max_row(entries)
    order = order_entries(entries, low, high)
    if not bool((order.indices == np.arange(entries.num_rows)).all()):
        return False
    same = ~order.starts[1:]
    for column in (TIMESTAMP, SEQ):
        numbers = entries.column(column).to_numpy()
        same &= numbers[1:] == numbers[:-1]
    return not bool(same.any())


def plain_bytes(chunks: Chunks) -> int:
    """Bytes of the entries of a row group without dictionaries."""
    records = len(next(iter(chunks.values())))
    return int(records * FIXED_BYTES) + sum(map(_variable_bytes, chunks.values()))


def _variable_bytes(chunk: pa.Array) -> int:
    if pa.types.is_dictionary(chunk.type):
        lengths = np.diff(binary_offsets(chunk.dictionary)).astype(np.int64)
        return int(lengths[chunk.indices.to_numpy(zero_copy_only=False)].sum()) if len(lengths) else 0
    if not pa.types.is_binary(chunk.type):
        return 0
    offsets = binary_offsets(chunk)
    return int(offsets[-1]) - int(offsets[0])


def _page_bytes(row_group: pq.RowGroupMetaData, content: bytes, start: int, records: int) -> int:
    """Bytes that the pages of a row group take. Raises ValueError when no writer makes such a row group."""
    if row_group.num_rows != records:
        raise ValueError(f"a row group has {row_group.num_rows} records in the footer, {records} in the index")
    view, total, at = memoryview(content), 0, 0
    for number in range(row_group.num_columns):
        column = row_group.column(number)
        has_dictionary = bool(column.has_dictionary_page)
        first = (column.dictionary_page_offset if has_dictionary else column.data_page_offset) - start
        end = first + column.total_compressed_size
        if not at <= first < end <= len(content) or (
            has_dictionary and column.path_in_schema not in DICTIONARY_COLUMNS
        ):
            raise ValueError(f"column {column.path_in_schema} is not where a writer puts it")
        size = size_of_chunk(view[first:end], has_dictionary=has_dictionary)
        if not size.values == column.num_values == records:
            raise ValueError(f"column {column.path_in_schema} has {size.values} values for {records} records")
        total, at = total + size.page_bytes, end
    return total
