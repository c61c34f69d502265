"""A tablet that this tserver serves: its data, and the state that the commit thread needs to write the next block.

Each part of the state has its owner: ``write_state`` numbers and places records, ``received_state`` finds duplicates in
messages of other clusters, ``tablet_flushes`` has the state in the books. This module joins them: a draft is staged,
then applied or taken back; a flush begins at one moment of all three. ``load_plan`` rebuilds all of it from the
tablet's row and logs.

Only commit threads stage and apply, one at a time. Rules: R13, R18 and R24.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from bookkeeper.metadata import keys
from bookkeeper.metadata.values import FlushState
from bookkeeper.model import Extent, Origin, StreamKey
from bookkeeper.origins import Root, RootIntervals
from bookkeeper.storage.columns import distinct, min_max_row
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.wal.blocks import block_pb2 as pb
from bookkeeper.storage.wal.blocks.block import DraftBlock, PlacedBlock
from bookkeeper.storage.wal.blocks.block_messages import origin_to_pb
from bookkeeper.storage.wal.blocks.block_origins import BlockOrigins
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.storage.wal.blocks.target_shares import note_target_records
from bookkeeper.tserver.tablets.block_targets import TableView, groups_present
from bookkeeper.tserver.tablets.flushed_logs import FlushedLogs
from bookkeeper.tserver.tablets.given_up import GivenUpLogs
from bookkeeper.tserver.tablets.load_plan import Recovered, tablet_key
from bookkeeper.tserver.tablets.received_state import ReceivedState
from bookkeeper.tserver.tablets.tablet_flushes import FlushPoint, TabletFlushes
from bookkeeper.tserver.tablets.wal_order import WalPosition
from bookkeeper.tserver.tablets.write_state import Staged, WriteState

_TIMESTAMP = 4


class TabletRecords(Struct, frozen=True):
    """Records of one tablet: a checked batch, the families in it, and its least and greatest row."""

    batch: pa.RecordBatch
    families: Sequence[bytes]
    min_row: bytes
    max_row: bytes


class ReceivedBlock(Struct, frozen=True):
    """A block of a source file, or one tablet's part of it: source offsets, both inclusive, and the records."""

    first_offset: int
    last_offset: int
    records: TabletRecords
    block_origins: BlockOrigins | None = None
    """The origins of the records; None: the sender's version does not give them."""


class MergedBlock(Struct, frozen=True):
    """A block of a given-up log that comes late: its new records, None when other messages brought all of them, with
    their sequence numbers and server time, and the progress that its header brings.
    """

    batch: pa.RecordBatch | None
    first_seq: int
    write_time_ms: int
    stream: StreamKey | None = None
    high_water: int = 0
    intervals: Mapping[Root, RootIntervals] = field(default_factory=dict)


def tablet_records(batch: pa.RecordBatch) -> TabletRecords:
    """The records of a batch that is not empty."""
    low, high = min_max_row(batch)
    return TabletRecords(batch, distinct(batch.column("family")), low, high)


class Moment(Struct, frozen=True):
    """The moment at which the commit thread stages: the log, the table's configuration, the wall clock (ms). ``since``:
    the table has had these targets and groups from this offset of the log on (0 = unknown).
    """

    wal_name: str
    view: TableView
    now_ms: int
    since: int = 0


class Undo(Struct, frozen=True):
    """Staged state before a draft; when groups fail, drafts are taken back in reverse order."""

    written: Staged
    stream: StreamKey | None = None
    high_water: int | None = None


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


class Tenure(Struct, frozen=True):
    """One period in which a tserver serves a tablet. ``location_rank``, the rank of the location that the master wrote,
    rises from one holder to the next, and so does ``serial``, which the holder takes itself. ``has_replicas``: the
    tablet's segments lie on hosts' own disks, and this tserver is its leader.
    """

    location_rank: int
    serial: int
    has_replicas: bool = False


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
        self._extent = extent
        self._row = keys.tablet_row(extent.table_id, extent.end_row)
        self._tenure = tenure
        self._data = data
        self._accepting = True
        self._problems: dict[str, str] = {}
        self._lacks_room = False
        self._write = WriteState(recovered)
        self._received = ReceivedState(recovered)
        self._flushes = TabletFlushes(recovered, tenure.serial)
        self._given_up = GivenUpLogs(recovered.lost, recovered.tails)
        self._flushed_logs = FlushedLogs({} if recovered.flush is None else recovered.flush.through, books_flight_ms)

    @property
    def extent(self) -> Extent:
        """Its table and rows."""
        return self._extent

    @property
    def key(self) -> tuple[str, bytes | None]:
        """Its name in write-ahead logs: table id and end row (see ``load_plan``)."""
        return tablet_key(self._extent)

    @property
    def row(self) -> bytes:
        """The key of its row in the metadata table."""
        return self._row

    @property
    def location_rank(self) -> int:
        """See :class:`Tenure`."""
        return self._tenure.location_rank

    @property
    def serial(self) -> int:
        """See :class:`Tenure`."""
        return self._tenure.serial

    @property
    def has_replicas(self) -> bool:
        """See :class:`Tenure`."""
        return self._tenure.has_replicas

    @property
    def data(self) -> TabletData:
        """Its records."""
        return self._data

    @property
    def received(self) -> ReceivedState:
        """Its progress in other clusters' logs."""
        return self._received

    @property
    def flushes(self) -> TabletFlushes:
        """Its progress of flushes."""
        return self._flushes

    @property
    def given_up(self) -> GivenUpLogs:
        """The logs that it is served without."""
        return self._given_up

    # ---- whether it takes writes, and its problems

    @property
    def accepting(self) -> bool:
        """False while an unload or an import is under way."""
        return self._accepting

    def stop_accepting(self) -> None:
        """Refuse writes from here on. Commit thread."""
        self._accepting = False

    def accept_again(self) -> None:
        """Take writes again. Commit thread."""
        self._accepting = True

    @property
    def problems(self) -> list[str]:
        """The reasons why work on this tablet fails again and again until a person helps. Any thread."""
        return list(dict(self._problems).values())

    @property
    def lacks_room(self) -> bool:
        """Whether the last flush found no room on a disk. Any thread."""
        return self._lacks_room

    def note_room(self, there_is: bool) -> None:
        """Whether a flush found room. Any thread."""
        self._lacks_room = not there_is

    def work_failed(self, work: str, reason: str) -> None:
        """A kind of work (a flush, a compaction) fails for a reason that stays. Any thread."""
        self._problems[work] = reason

    def work_succeeded(self, work: str) -> None:
        """The opposite of :meth:`work_failed`."""
        self._problems.pop(work, None)

    # ---- staging: commit thread, in the order of submission

    @property
    def next_seq(self) -> int:
        """The sequence number of the next record."""
        return self._write.staged.next_seq

    @property
    def last_wals(self) -> tuple[WalPosition, ...]:
        """See :attr:`WriteState.last_wals`."""
        return self._write.last_wals

    def stage(
        self,
        records: TabletRecords,
        moment: Moment,
        provenance: Sequence[str] = (),
        origin: Origin | None = None,
        block_origins: pb.BlockOrigins | None = None,
    ) -> tuple[DraftBlock, Undo]:
        """The draft of one block, with its numbers and its server time; and how to take it back."""
        staged = self._write.staged
        time_ms = server_time_ms(moment.now_ms, self._write.last_time_ms)
        header = BlockHeader(
            table_id=self._extent.table_id,
            end_row=self._extent.end_row,
            groups=groups_present(records.families, moment.view.groups),
            block_targets=moment.view.block_targets,
            provenance=provenance,
            origin=None if origin is None else origin_to_pb(origin),
            after=self._write.predecessors_in(moment.wal_name, self._given_up.in_order),
            first_seq=staged.next_seq,
            write_time_ms=time_ms,
            min_row=records.min_row,
            max_row=records.max_row,
            since=moment.since if origin is None else 0,
            block_origins=block_origins,
        )
        note_target_records(header, records.batch.column("family"), moment.view.peers)
        self._write.stage(records.batch.num_rows, time_ms, moment.wal_name)
        draft = DraftBlock(header, with_timestamps(records.batch, time_ms))
        if origin is None:
            return draft, Undo(staged)
        return draft, Undo(staged, origin.stream, self._received.stage_high_water(origin.stream, origin.to_offset))

    def stage_unlogged(self, records: TabletRecords, now_ms: int) -> tuple[DraftBlock, Undo]:
        """A draft that no log will have (durability none): it gets only its numbers and its time."""
        staged = self._write.staged
        time_ms = server_time_ms(now_ms, self._write.last_time_ms)
        header = BlockHeader(
            table_id=self._extent.table_id,
            end_row=self._extent.end_row,
            first_seq=staged.next_seq,
            write_time_ms=time_ms,
            min_row=records.min_row,
            max_row=records.max_row,
        )
        self._write.stage(records.batch.num_rows, time_ms, None)
        return DraftBlock(header, with_timestamps(records.batch, time_ms)), Undo(staged)

    def stage_high_water(self, stream: StreamKey, to_offset: int) -> Undo:
        """Stage the new high-water of a range that has no new record for this tablet. It counts once its group is
        durable (R19).
        """
        return Undo(self._write.staged, stream, self._received.stage_high_water(stream, to_offset))

    def take_back(self, undo: Undo) -> None:
        """The group of a draft failed: the log has no record of it."""
        self._write.take_back(undo.written)
        if undo.stream is not None:
            self._received.take_back(undo.stream, undo.high_water)

    # ---- applying: commit thread, in the same order

    def apply(self, placed: PlacedBlock) -> None:
        """The draft is as durable as requested: make it visible."""
        self._data.apply(placed.batch, placed.header.first_seq)
        last_seq = placed.header.first_seq + placed.batch.num_rows - 1
        if placed.wal_name:
            self._write.applied(last_seq, WalPosition(placed.wal_name, placed.last_offset))
            self._flushes.use_log(placed.wal_name, placed.last_offset)
        else:
            self._write.applied(last_seq, None)

    def merge_tail(self, log: str, tail: Sequence[MergedBlock]) -> None:
        """Apply the records of a given-up log that the tablet lacks, as one stream (N6). The log has them, so they are
        neither logged nor shipped again; a flush of them covers the complete log. Commit thread.
        """
        for block in tail:
            if block.batch is not None:
                self._data.apply(block.batch, block.first_seq)
            self._write.note_time(block.write_time_ms)
            if block.stream is not None:
                self._received.apply_high_water(block.stream, block.high_water)
                self._received.origin_intervals.apply(block.intervals)
        self._flushes.use_log(log, keys.OFFSET_MAX)
        self._given_up.tail_merged(log)

    # ---- segments

    def segments_replaced(self, inputs: Collection[str], written: Sequence[SegmentRef], state: FlushState) -> None:
        """The books have ``state``, which names the new segments instead of ``inputs``: readers use these from here on.
        With the lock of :attr:`flushes` held. Raises InvalidInputError when the tablet lacks one of ``inputs``.
        """
        self._data.replace_segments(inputs, written)
        self._flushes.state_put(state)

    def follow(self, state: FlushState, stream: StreamKey, offset: int, root: Root) -> None:
        """Go on behind the state of an import, which has this much of a stream, and records of this root. Commit
        thread, while the tablet takes no writes and nothing of it is in memory.
        """
        self._write.follow(state)
        if root in state.origin_intervals:
            self._received.origin_intervals.apply({root: state.origin_intervals[root]})
        self._received.apply_high_water(stream, offset)

    # ---- flushing

    def begin_flush(self, wal_name: str, now_ns: int) -> FlushPoint | None:
        """Set the records aside that were applied up to now. Commit thread, while it prepares a group for the log
        ``wal_name``.

        All records that were submitted before are applied, and none after, so the point ends where the next records
        begin, as ``log:`` deletes and first uses need. Returns None when neither data nor state waits for a flush. A
        point that is not in the books yet is returned again: its ranks have their values (R1).
        """
        if self._flushes.point is not None:
            return self._flushes.point
        frozen = self._data.begin_flush()
        logs = self._flushes.needed_logs()
        if frozen is None and not logs and not self._received.has_changes:
            return None
        state = FlushState(
            flush_id=0,
            through=self._flushed_logs.flush(self._logs_in_row(logs), wal_name, now_ns),
            last_seq=self._write.applied_seq,
            last_time_ms=self._write.last_time_ms,
            high_water=dict(self._received.high_water),
            last_wals=tuple((last.file, last.offset) for last in self._write.last_wals),
            partial_high_waters=dict(self._received.partial_high_waters),
            origin_intervals=self._received.origin_intervals.applied(),
        )
        self._received.begin_flush()
        point = FlushPoint(frozen, state, logs)
        self._flushes.begin(point)
        return point

    def _logs_in_row(self, needed: Mapping[str, int]) -> Mapping[str, int]:
        """The logs of which a state has an offset: also those whose tails wait, for the start of the merge (N6)."""
        waiting = {log: after for log, after in self._given_up.waiting.items() if after}
        return {**waiting, **self._flushes.logs_in_row(needed)} if waiting else self._flushes.logs_in_row(needed)
