"""All data of one tablet: the active memtable, the frozen one that a flush writes, and the segments.

Batches are applied in commit order. Any number of threads may scan while one applies and one flushes: a reader takes
the present state, which never changes, and each record is in it exactly once or, equal in all parts, twice. Segments
that the books name survive a crash; the WAL has all other records.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.config.table_properties import DEFAULT_PROPERTIES, TableProperties
from bookkeeper.errors import InvalidInputError
from bookkeeper.model import Extent, RowRange
from bookkeeper.storage.tablet.compaction import MergeFilter, MergeRetention, families_outside
from bookkeeper.storage.tablet.flush import SegmentOutput, write_groups
from bookkeeper.storage.tablet.memtable import FrozenMemtable, Memtable
from bookkeeper.storage.tablet.scans.cell_versions import ALL_VERSIONS, Retention, VersionFilter
from bookkeeper.storage.tablet.scans.scan import ColumnFilter, ScanPage, ScanView, read_page
from bookkeeper.storage.tablet.scans.scan_position import Resume
from bookkeeper.storage.tablet.scans.visibility import Authorizations
from bookkeeper.storage.tablet.segments import bloom, segment_format
from bookkeeper.storage.tablet.segments.block_cache import BlockCache
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.segments.middle_row import Middle, find_middle
from bookkeeper.storage.tablet.segments.segment_format import NewSegment, SegmentRef, merged_prefix
from bookkeeper.storage.tablet.segments.segment_reader import Segment
from bookkeeper.storage.tablet.sorting.entries import Position, to_entries
from bookkeeper.storage.tablet.sorting.merge import Cursor, Round, RunSource
from bookkeeper.storage.tablet.sorting.order import Mask
from bookkeeper.storage.tablet.tablet_resources import TabletResources
from bookkeeper.storage.volume.volume_protocol import Volume

EVERY_ROW = RowRange(None, None)


class _State(Struct, frozen=True):
    """The state that readers see. It is replaced and never changed, but for the active memtable, which grows."""

    active: Memtable
    frozen: FrozenMemtable | None
    segments: tuple[Segment, ...]


def merged_state(state: _State, inputs: Collection[str], opened: tuple[Segment, ...]) -> _State:
    """New segments take the place of those that were merged, at one moment."""
    left = tuple(segment for segment in state.segments if segment.ref.name not in inputs)
    return replace(state, segments=(*left, *opened))


class TabletData:
    """Memtable and segments of one tablet. Thread-safe; flushes run one at a time."""

    def __init__(
        self,
        extent: Extent,
        groups: GroupMap,
        volume: Volume,
        directory: str,
        segments: Sequence[SegmentRef],
        resources: TabletResources | None = None,
        *,
        properties: TableProperties = DEFAULT_PROPERTIES,
    ) -> None:
        """``segments``: those that the books name. ``groups`` and ``properties``: of the table. Reads nothing yet."""
        self._extent = extent
        self._volume = volume
        self._directory = directory
        self._properties = properties
        self._groups = groups
        self._resources = resources or TabletResources()
        self._settings = self._resources.settings
        self._cache = self._resources.cache or BlockCache(self._settings.cache_bytes_max)
        self._lock = threading.Lock()
        opened = tuple(Segment(volume, ref, self._cache) for ref in segments)
        self._state = _State(Memtable(self._settings), None, opened)
        self._pages = count()
        self._reading: dict[int, _State] = {}
        """The state that each unfinished page reads."""

    @property
    def extent(self) -> Extent:
        """The rows of the tablet."""
        return self._extent

    @property
    def directory(self) -> str:
        """The directory of its new segments, on the Volume."""
        return self._directory

    # ---- writing

    def apply(self, batch: pa.RecordBatch, first_seq: int) -> None:
        """Add records of MUTATION_SCHEMA, every timestamp set, numbered from ``first_seq``. Visible on return, all at
        once. Sequence numbers never repeat in a tablet; rows lie in the extent (the caller routed them). The batch's
        buffers are kept until they are sorted or flushed. Raises InvalidInputError.
        """
        if not batch.num_rows:
            return
        entries = to_entries(batch, first_seq)
        with self._lock:
            memtable = self._state.active
            due = memtable.append(entries)
        if memtable.overdue:
            memtable.consolidate()
        elif due:
            self._resources.sort(memtable.consolidate)

    @property
    def groups(self) -> GroupMap:
        """The table's locality groups as the next flush will use them."""
        return self._groups

    @property
    def properties(self) -> TableProperties:
        """The table's properties in force."""
        return self._properties

    def configure(self, groups: GroupMap, properties: TableProperties) -> None:
        """Use other groups and properties from the next flush and scan on; older segments stay readable."""
        self._groups = groups
        self._properties = properties

    # ---- memory

    @property
    def memory_records(self) -> int:
        """Records that are in no segment yet."""
        state = self._state
        return state.active.records + (state.frozen.records if state.frozen else 0)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the records that are in no segment yet, sequence numbers included."""
        return self.active_bytes + self.frozen_bytes

    @property
    def first_active_seq(self) -> int | None:
        """The sequence number of the oldest record that the next flush would take; None = no record."""
        return self._state.active.first_seq

    @property
    def active_bytes(self) -> int:
        """The part of :attr:`memory_bytes` that the next flush would take; the flush limit bounds it."""
        return self._state.active.bytes

    @property
    def frozen_bytes(self) -> int:
        """The part of :attr:`memory_bytes` that a flush is writing."""
        frozen = self._state.frozen
        return frozen.bytes if frozen else 0

    @property
    def segments(self) -> tuple[SegmentRef, ...]:
        """The segments that readers see now."""
        return tuple(segment.ref for segment in self._state.segments)

    # ---- reading

    def scan_page(
        self,
        start_row: bytes | None,
        stop_row: bytes | None,
        families: Collection[bytes],
        columns: Collection[tuple[bytes, bytes]],
        resume: bytes | None,
        page_bytes: int,
        version_filter: VersionFilter = ALL_VERSIONS,
        now_ms: int = 0,
        authorizations: Authorizations | None = None,
    ) -> ScanPage:
        """Records with ``start_row <= row < stop_row`` (None = unbounded), deletes resolved: of the versions that count
        by the table's properties at ``now_ms``, those of ``version_filter``. At most about ``page_bytes``; none at the
        end of the range, or after many records that do not match. ``families`` and ``columns`` (family, qualifier):
        empty = all, else a record must be in both. ``authorizations`` None: of all labels. ``resume``: ``next`` of the
        page before, with the other arguments unchanged.

        Raises InvalidInputError for a bad token or size, CorruptionError for a bad segment.
        """
        if page_bytes < 1:
            raise InvalidInputError(f"a page of {page_bytes} bytes can't hold a record: ask for more")
        version_filter.check()
        low, high = self._clip(start_row, stop_row)
        position: Position = (low,)
        partial_cell = None
        if resume is not None:
            behind = Resume.decode(resume)
            position = max(position, behind.position)
            partial_cell = behind.partial_cell
            low = max(low, behind.cell[0])
        column_filter = ColumnFilter.of(families, columns)
        view = ScanView(column_filter, retention(self._properties, now_ms), version_filter, authorizations)
        with self._pinned() as state:
            cursors = _cursors(state, position, low, high, column_filter)
            if state.active.due:
                self._resources.sort(state.active.consolidate)
            return read_page(cursors, view, page_bytes, self._settings, partial_cell)

    @contextmanager
    def _pinned(self) -> Iterator[_State]:
        """The present state; its files stay needed until the end of the block."""
        page = next(self._pages)
        with self._lock:
            state = self._reading[page] = self._state
        try:
            yield state
        finally:
            with self._lock:
                del self._reading[page]

    def middle(self, row_bytes_max: int) -> Middle:
        """The row near the middle of the segments' bytes, from their indexes; at most ``row_bytes_max`` long. Raises
        CorruptionError, UnavailableError.
        """
        with self._pinned() as state:
            groups = [segment.groups() for segment in state.segments]
        return find_middle(groups, self._extent.rows, row_bytes_max)

    def is_read(self, names: Collection[str]) -> bool:
        """Whether an unfinished page may still read one of these segments. No new page reads a replaced segment."""
        with self._lock:
            states = list(self._reading.values())
        return any(segment.ref.name in names for state in states for segment in state.segments)

    def names_in_use(self) -> set[str]:
        """The files of the present segments, and those that unfinished pages read."""
        with self._lock:
            states = [self._state, *self._reading.values()]
        return {segment.ref.name for state in states for segment in state.segments}

    def _clip(self, start_row: bytes | None, stop_row: bytes | None) -> tuple[bytes, bytes | None]:
        """The range inside the extent: first row, inclusive, and stop row, exclusive."""
        low = start_row or b""
        if self._extent.prev_row is not None:
            low = max(low, self._extent.prev_row + b"\x00")
        stops = [] if stop_row is None else [stop_row]
        if self._extent.end_row is not None:
            stops.append(self._extent.end_row + b"\x00")
        return low, min(stops, default=None)

    # ---- flushing

    def begin_flush(self) -> FrozenMemtable | None:
        """Freeze the memtable, which stays readable, and start a new one; None when there is nothing to flush. While a
        flush is unfinished this returns its memtable again, the same object, for the next try.
        """
        with self._lock:
            state = self._state
            if state.frozen is not None:
                return state.frozen
            if not state.active.records:
                return None
            # One state: its readers see the records in the active memtable or in the frozen one.
            self._state = replace(state, active=Memtable(self._settings), frozen=FrozenMemtable(state.active))
            return self._state.frozen

    def write_segments(self, frozen: FrozenMemtable, flush_id: int) -> list[NewSegment]:
        """Write one segment for each locality group present, durable on return, under names never used before. All
        versions and deletes are kept. Raises OSError; then nothing is left and it may be called again. After a crash
        there may be files that no books name: ``leftovers`` finds them.
        """
        frozen.settle()
        cursors = [Cursor(RunSource(block), (), None) for block in frozen.blocks()]
        return self._checked(write_groups(cursors, self._target(f"{flush_id:010d}", flush_id)))

    def _target(self, prefix: str, flush_id: int) -> SegmentOutput:
        """Segments with the settings of the table, in files whose names begin with ``prefix``."""
        return SegmentOutput(
            self._groups,
            self._volume,
            lambda: f"{self._directory}/{prefix}-{uuid.uuid4().hex}{segment_format.ENDING}",
            flush_id,
            replace(self._settings, compression=self._properties.compression),
        )

    def _checked(self, written: list[NewSegment]) -> list[NewSegment]:
        for segment in written:
            Segment(self._volume, segment, self._cache).check()
        return written

    def discard(self, written: Sequence[NewSegment]) -> None:
        """Remove segments that no books name. Raises OSError."""
        self._volume.discard([segment.name for segment in written])

    def finish_flush(self, frozen: FrozenMemtable, segments: Sequence[NewSegment]) -> None:
        """Let readers use the segments instead of the memtable, at one moment. Call it once the books name them; a
        second call is harmless. Raises InvalidInputError when this tablet flushes another memtable.
        """
        opened = tuple(Segment(self._volume, segment, self._cache) for segment in segments)
        with self._lock:
            state = self._state
            if state.frozen is not frozen:
                present = {segment.ref.name for segment in state.segments}
                if {segment.name for segment in segments} <= present:
                    return
                raise InvalidInputError("finish_flush got a memtable that is not being flushed")
            bounds = [(segment.first_seq, segment.last_seq) for segment in segments]
            if (min(bounds)[0], max(last for _, last in bounds)) != (frozen.first_seq, frozen.last_seq):
                raise InvalidInputError("finish_flush got segments of another memtable")
            self._state = replace(state, frozen=None, segments=(*state.segments, *opened))

    # ---- compaction

    def write_merged(
        self,
        inputs: Collection[str],
        holder: int,
        now_ms: int,
        *,
        drop_deletes: bool,
        check_continue: Callable[[], None],
    ) -> list[NewSegment]:
        """Merge some segments, clipped to the extent: write a segment for each locality group that has entries left,
        durable on return. Readers do not see them yet, and the caller sets their flush id.

        ``holder``: the first flush id of the tablet's holder, a part of the files' names: once there is another holder,
        files that a crash has left can be deleted. ``now_ms``: for age-off. ``drop_deletes``: drop deletes where no
        other segment can have an entry that they hide; all older records are in segments. ``check_continue`` runs for
        each round and may raise. Raises OSError, CorruptionError; then no file is left.
        """
        segments = self._state.segments
        outside = [segment.families for segment in segments if segment.ref.name not in inputs]
        kept_ms = self._properties.deletes_kept_ms
        merge_filter = MergeFilter(
            MergeRetention(
                retention(self._properties, now_ms),
                families_outside(outside) if drop_deletes else None,
                now_ms - kept_ms if kept_ms else None,
            )
        )

        def keep(merged: Round) -> Mask:
            check_continue()
            return merge_filter.keep(merged)

        low, high = self._clip(None, None)
        unshared = BlockCache(0, readers=0)
        chosen = [Segment(self._volume, segment.ref, unshared) for segment in segments if segment.ref.name in inputs]
        cursors = [cursor for segment in chosen for cursor in segment_cursors(segment, (low,), high)]
        return self._checked(write_groups(cursors, self._target(merged_prefix(holder), 0), keep))

    def replace_segments(self, inputs: Collection[str], written: Sequence[NewSegment]) -> None:
        """Let readers use the written segments instead of the merged ones, at one moment. Call when the books name
        them. Raises InvalidInputError when a reader does not see one of ``inputs``.
        """
        opened = tuple(Segment(self._volume, segment, self._cache) for segment in written)
        with self._lock:
            present = {segment.ref.name for segment in self._state.segments}
            if not set(inputs) <= present:
                raise InvalidInputError("segments that the tablet lacks can't be replaced")
            self._state = merged_state(self._state, inputs, opened)


def retention(properties: TableProperties, now_ms: int) -> Retention:
    """The retention of a table with these properties."""
    oldest_ms = now_ms - properties.age_off_ms if properties.age_off_ms else None
    return Retention(properties.versions_max, oldest_ms)


def _cursors(
    state: _State, position: Position, low: bytes, high: bytes | None, column_filter: ColumnFilter
) -> list[Cursor]:
    """Cursors behind ``position`` over all sources that can have a matching entry in rows ``[low, high)``."""
    families = column_filter.all_families()
    only_row = bloom.hash_row(low) if high == low + b"\x00" else None
    found = [segment for segment in state.segments if segment.may_hold(families, low, high, only_row)]
    cursors = [cursor for segment in found for cursor in segment_cursors(segment, position, high)]
    sources = [*(state.frozen.sources(low, high) if state.frozen else ()), *state.active.sources(low, high)]
    stop = None if high is None else (high,)
    return [*cursors, *(Cursor(source, position, stop) for source in sources)]


def segment_cursors(segment: Segment, position: Position, high: bytes | None) -> list[Cursor]:
    """Cursors over the rows of a segment that count, one for each range: behind ``position`` and before the row
    ``high`` (None = no end).
    """
    ranges = segment.ref.ranges or (EVERY_ROW,)
    found = []
    for rows in ranges:
        begin = position if rows.prev_row is None else max(position, (rows.prev_row + b"\x00",))
        ends = [end for end in (high, None if rows.end_row is None else rows.end_row + b"\x00") if end is not None]
        stop = (min(ends),) if ends else None
        if stop is None or begin < stop:
            found.append(Cursor(segment, begin, stop))
    return found
