"""A tablet as this tserver serves it: its data, and what the commit thread must know to write the next block.

Arrives: batches to stage, then the news that they are durable (or that their group was given up); moments at which a
flush begins. Leaves: drafts of blocks, and :class:`FlushPoint`. Survives a crash: nothing here; ``load_plan`` rebuilds
it from the tablet's row and logs. *Staged* state runs ahead of *applied* state by at most two groups of commits.

Only commit threads stage and apply, one at a time. Others read ``data``, and change ``log_uses`` and ``point`` under
``lock``. Rules: R13, R18 and R24.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from bookkeeper.metadata import keys
from bookkeeper.metadata.values import FlushState
from bookkeeper.model import Ahead, Extent, Origin, StreamKey
from bookkeeper.origins import Root, RootLog
from bookkeeper.storage.columns import distinct, min_max_row
from bookkeeper.storage.tablet import FrozenMemtable, SegmentRef, TabletData
from bookkeeper.storage.wal import BlockHeader, DraftBlock, PlacedBlock, Predecessor, origin_to_pb
from bookkeeper.storage.wal.blocks import block_pb2 as pb
from bookkeeper.storage.wal.blocks.block_origins import BlockOrigins
from bookkeeper.storage.wal.blocks.shares import note_shares
from bookkeeper.tserver.tablets.block_targets import TableView, groups_present
from bookkeeper.tserver.tablets.flushed_logs import FlushedLogs
from bookkeeper.tserver.tablets.load_plan import Recovered, drop_passed, first_flush_id, raise_high_water
from bookkeeper.tserver.tablets.origin_intervals import OriginIntervals
from bookkeeper.tserver.tablets.wal_order import WalPlace, predecessors

_TIMESTAMP = 4


@dataclass(frozen=True, slots=True)
class Share:
    """What one tablet gets of a request: a checked batch, the families in it, and its least and greatest row."""

    batch: pa.RecordBatch
    families: Sequence[bytes]
    min_row: bytes
    max_row: bytes


@dataclass(frozen=True, slots=True)
class ReceivedBlock:
    """A block of a source file, or one tablet's part of it: source offsets, both inclusive, and the records."""

    first_offset: int
    last_offset: int
    share: Share
    block_origins: BlockOrigins | None = None
    """Where the records were first written; None: an older version does not say it."""


def share_of(batch: pa.RecordBatch) -> Share:
    """What the commit thread needs to know of a batch of at least one record."""
    low, high = min_max_row(batch)
    return Share(batch, distinct(batch.column("family")), low, high)


@dataclass(frozen=True, slots=True)
class Moment:
    """What the commit thread stages under: the log, the table's configuration, the wall clock (ms). ``since``: from
    this offset of the log on its targets and groups are these (0 = not known).
    """

    wal_uri: str
    view: TableView
    now_ms: int
    since: int = 0


@dataclass(frozen=True, slots=True)
class Undo:
    """Staged state before a draft, to be restored in reverse order when its group is given up."""

    next_seq: int
    last_time_ms: int
    staged_wal: str
    stream: StreamKey | None
    in_flight: int | None


@dataclass(slots=True)
class FlushPoint:
    """What a flush makes durable: everything applied before it began, and nothing else. ``state`` has its flush id and
    the names of segments, for good, from when its own ``segments`` are written. ``logs`` are those whose ``log:`` cells
    go then, each with the offset up to which it is needed no more.
    """

    frozen: FrozenMemtable | None
    state: FlushState
    logs: Mapping[str, int]
    segments: Sequence[SegmentRef] | None = None


def server_time_ms(now_ms: int, last_ms: int) -> int:
    """The tablet's own time: the wall clock, but never back."""
    return max(now_ms, last_ms)


def with_timestamps(batch: pa.RecordBatch, time_ms: int) -> pa.RecordBatch:
    """Give ``time_ms`` to the records that left their timestamp to the server."""
    timestamps = batch.column(_TIMESTAMP)
    if not timestamps.null_count:
        return batch
    columns = batch.columns
    columns[_TIMESTAMP] = pc.fill_null(timestamps, time_ms)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


@dataclass(frozen=True, slots=True)
class Tenure:
    """Which time a tablet is held: ``placed``, the rank of the location that gave it here, rises from one holder to the
    next, and so does ``serial``, which the holder takes itself.
    """

    placed: int
    serial: int


class ServedTablet:
    """One tablet of this tserver."""

    def __init__(
        self,
        extent: Extent,
        data: TabletData,
        recovered: Recovered,
        tenure: Tenure,
        books_flight_ms: float,
    ) -> None:
        """``books_flight_ms``: how long a write to the books may be on its way (R4)."""
        self.extent = extent
        self.key = (extent.table_id, extent.end_row)
        self.row = keys.tablet_row(extent.table_id, extent.end_row)
        self.data = data
        self.lock = threading.Lock()
        self.flush_lock = threading.Lock()
        """Held by whoever flushes, from the point to the deletes."""
        self.accepting = True
        """False from the moment an unload begins; changed by the commit thread."""
        self.problems: dict[str, str] = {}
        """What fails again and again with this tablet, until a person helps, and why: for people. Any thread."""
        self.point: FlushPoint | None = None
        self.placed = tenure.placed
        self.serial = tenure.serial
        self.compacted = 0 if recovered.flush is None else recovered.flush.compacted
        """Flush id at which the last compaction of everything began, 0 = none; changed by the compactor."""
        self.books = recovered.flush
        """The newest ``tablet:flush`` in the books; changed by whoever holds ``flush_lock``."""
        self.log_uses: dict[str, int] = dict(recovered.log_uses)
        """Log whose ``log:`` cell may show to the last offset of the tablet's records in it."""
        self.last_wals = recovered.last_wals
        """What the next record comes after: the last one, or those of the tablets that were merged into this one."""
        self.high_water: dict[StreamKey, int] = dict(recovered.high_water)
        self.forgets = 0
        """Times that streams were forgotten here; changed by the commit thread."""
        self.ahead: dict[StreamKey, tuple[Ahead, ...]] = dict(recovered.ahead)
        """Rows that hold more of a stream (see ``partial_high_water``). Changed by the commit thread."""
        self._in_flight: dict[StreamKey, int] = {}
        self.held = OriginIntervals(recovered.held)
        """What it holds of each root (R22). Changed by the commit thread."""
        self._next_seq = recovered.next_seq
        self._applied_seq = recovered.next_seq - 1
        self._last_time_ms = recovered.last_time_ms
        self._staged_wal = recovered.last_wals[0].file if len(recovered.last_wals) == 1 else ""
        self._flush_id = first_flush_id(tenure.serial)
        self._flushed_logs = FlushedLogs({} if recovered.flush is None else recovered.flush.through, books_flight_ms)
        self._state_changed = False

    # ---- staging: commit thread, in the order of submission

    @property
    def next_seq(self) -> int:
        """The sequence number of the next record."""
        return self._next_seq

    def known_high_water(self, stream: StreamKey) -> int:
        """Rule R18: what the tablet has of a stream, what is in flight in this group included."""
        return self._in_flight.get(stream, self.high_water.get(stream, 0))

    def knows(self, stream: StreamKey) -> bool:
        """Whether the tablet would tell a message of the stream that it has from one that it lacks. Any thread."""
        return stream in self.high_water or stream in self._in_flight

    def stage(
        self,
        share: Share,
        moment: Moment,
        provenance: Sequence[str] = (),
        origin: Origin | None = None,
        block_origins: pb.BlockOrigins | None = None,
    ) -> tuple[DraftBlock, Undo]:
        """The draft of one block, numbered and stamped as of now; and how to take it back."""
        undo = self._undo(origin.stream if origin else None)
        self._last_time_ms = server_time_ms(moment.now_ms, self._last_time_ms)
        header = BlockHeader(
            table_id=self.extent.table_id,
            end_row=self.extent.end_row,
            groups=groups_present(share.families, moment.view.groups),
            block_targets=moment.view.block_targets,
            provenance=provenance,
            origin=None if origin is None else origin_to_pb(origin),
            after=self._after(moment.wal_uri),
            first_seq=self._next_seq,
            write_time_ms=self._last_time_ms,
            min_row=share.min_row,
            max_row=share.max_row,
            since=moment.since if origin is None else 0,
            block_origins=block_origins,
        )
        note_shares(header, share.batch.column("family"), moment.view.peers)
        self._next_seq += share.batch.num_rows
        self._staged_wal = moment.wal_uri
        if origin is not None:
            self._in_flight[origin.stream] = origin.to_offset
        return DraftBlock(header, with_timestamps(share.batch, self._last_time_ms)), undo

    def stage_unlogged(self, share: Share, now_ms: int) -> tuple[DraftBlock, Undo]:
        """A draft that no log will hold (durability none): only numbered and timed."""
        undo = self._undo(None)
        self._last_time_ms = server_time_ms(now_ms, self._last_time_ms)
        header = BlockHeader(
            table_id=self.extent.table_id,
            end_row=self.extent.end_row,
            first_seq=self._next_seq,
            write_time_ms=self._last_time_ms,
            min_row=share.min_row,
            max_row=share.max_row,
        )
        self._next_seq += share.batch.num_rows
        return DraftBlock(header, with_timestamps(share.batch, self._last_time_ms)), undo

    def stage_high_water(self, stream: StreamKey, to_offset: int) -> Undo:
        """A range without anything new for this tablet: it counts once its group is durable (R19)."""
        undo = self._undo(stream)
        self._in_flight[stream] = to_offset
        return undo

    def take_back(self, undo: Undo) -> None:
        """The group was given up: nothing of the draft was logged. What was in flight before may be applied by now."""
        self._next_seq = undo.next_seq
        self._last_time_ms = undo.last_time_ms
        self._staged_wal = undo.staged_wal
        if undo.stream is None:
            return
        if undo.in_flight is None or undo.in_flight <= self.high_water.get(undo.stream, 0):
            self._in_flight.pop(undo.stream, None)
        else:
            self._in_flight[undo.stream] = undo.in_flight

    def _undo(self, stream: StreamKey | None) -> Undo:
        in_flight = None if stream is None else self._in_flight.get(stream)
        return Undo(self._next_seq, self._last_time_ms, self._staged_wal, stream, in_flight)

    def _after(self, wal_uri: str) -> list[Predecessor]:
        """Rule R24, at the first block of this tablet in a log; groups do not span logs, so ``last_wals`` is exact."""
        if self._staged_wal == wal_uri:
            return []
        places = predecessors(self.last_wals, wal_uri)
        return [Predecessor(file=place.file, offset=place.offset) for place in places]

    # ---- segments from elsewhere: commit thread, while the tablet takes no writes and holds nothing in memory

    def follow(self, state: FlushState, stream: StreamKey, offset: int, root: Root) -> None:
        """Go on behind a state that the books have and that no flush made: an import's, which is this of a stream, and
        of this root.
        """
        self._next_seq = state.last_seq + 1
        self._applied_seq = state.last_seq
        self.last_wals = tuple(WalPlace(*place) for place in state.last_wals)
        self._staged_wal = self.last_wals[0].file if len(self.last_wals) == 1 else ""
        if root in state.origin_intervals:
            self.held.apply({root: state.origin_intervals[root]})
        self.apply_high_water(stream, offset)

    # ---- applying: commit thread, in the same order

    def apply(self, placed: PlacedBlock) -> None:
        """The draft is as durable as it was asked to be: make it visible."""
        header = placed.header
        self.data.apply(placed.batch, header.first_seq)
        self._applied_seq = header.first_seq + placed.batch.num_rows - 1
        if placed.wal_uri:
            self.last_wals = (WalPlace(placed.wal_uri, placed.last_offset),)
            with self.lock:
                self.log_uses[placed.wal_uri] = placed.last_offset

    def apply_high_water(self, stream: StreamKey, to_offset: int) -> None:
        """What :meth:`stage` or :meth:`stage_high_water` put in flight is durable."""
        raise_high_water(self.high_water, stream, to_offset)
        drop_passed(self.ahead, stream, to_offset)
        self._state_changed = True
        if self._in_flight.get(stream) == to_offset:
            del self._in_flight[stream]

    def forget_stream(self, stream: StreamKey) -> None:
        """The source will never send this stream again (R20). Commit thread, or who loads the tablet."""
        self.forgets += 1
        self.ahead.pop(stream, None)
        if self.high_water.pop(stream, None) is not None:
            self._state_changed = True

    def forget_roots(self, logs: Collection[RootLog]) -> None:
        """Nothing of these logs comes any more, on any path (R22). Commit thread, or who loads the tablet."""
        if self.held.forget(logs):
            self._state_changed = True

    # ---- flushing

    def begin_flush(self, wal_uri: str, now_ns: int) -> FlushPoint | None:
        """Set aside what was applied up to now. Commit thread, while it prepares a group for the log ``wal_uri``.

        All that was submitted before is applied and nothing after it, so the point ends where the records behind it
        begin, as ``log:`` deletes and first uses need. None when neither data nor state waits for a flush. A point
        that is not in the books yet is returned again: its ranks have their values (R1).
        """
        if self.point is not None:
            return self.point
        frozen = self.data.begin_flush()
        logs = self.needed_logs()
        if frozen is None and not logs and not self._state_changed:
            return None
        state = FlushState(
            flush_id=0,
            through=self._flushed_logs.flush(logs, wal_uri, now_ns),
            last_seq=self._applied_seq,
            last_time_ms=self._last_time_ms,
            high_water=dict(self.high_water),
            last_wals=tuple((place.file, place.offset) for place in self.last_wals),
            ahead=dict(self.ahead),
            origin_intervals=self.held.remembered(),
        )
        self._state_changed = False
        self.point = FlushPoint(frozen, state, logs)
        return self.point

    def take_flush_id(self) -> int:
        """The next rank of a state. Whoever puts one holds ``flush_lock`` from before it takes the rank until the put
        is done, so that a state is never hidden by an older one (R1). Any thread.
        """
        with self.lock:
            taken = self._flush_id
            self._flush_id += 1
            return taken

    def end_flush(self, point: FlushPoint) -> None:
        """The point is in the books and its ``log:`` cells are deleted. Any thread."""
        with self.lock:
            for wal, offset in point.logs.items():
                if self.log_uses.get(wal) == offset:
                    del self.log_uses[wal]
            self.books = point.state
            self.point = None

    def needed_logs(self) -> Mapping[str, int]:
        """Logs that recovery of this tablet would read now."""
        with self.lock:
            return dict(self.log_uses)
