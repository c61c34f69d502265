"""The bulk loader: imported segments become part of a tablet, atomically and once.

The master's order names files on disk, the stream that stands for their import and, for a replicated table, a log of
the same records. The loader holds the files (``session_holds``) and checks them. Then it makes one row put: the
segments' cells, a state that names them and has the stream (R18: the put applies and remembers in one durable step),
and the log's `repl:` cell, which is CLOSED from the start. So readers see no imported record that is not on its way to
the peers. A crash leaves the put, or only a hold, which ends with the session. A repeated order finds the stream and
changes nothing, even after a compaction of the segments. The books refuse an order that comes when the import is over,
as they refuse a message of a stream that is over (R20).

The files of another cluster's import (``segment_receiver``) come the same way, as all of a stream whose records may
come instead: only a tablet without any record of the stream takes them. Where the table has targets of its own, this
cluster makes a log that stands for the files (``relay_log``), as if they had been imported here.

The tablet takes no writes meanwhile, and is flushed first. So the import comes behind all earlier writes and in front
of all later ones, in sequence numbers as well as for the peers (R24: its log waits for the tablet's last log, and the
tablet's next record waits for the import's). Clients retry, as when a tablet moves. Rules: R1, R13, R17, R18, R20 and
R24.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext

from msgspec.structs import replace

import combiners
from bookkeeper.bulk.adoption import check_files
from bookkeeper.bulk.booked_segment import SEQ_MAX, segment_ref
from bookkeeper.errors import (
    BookkeeperError,
    DeclinedError,
    InvalidInputError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_limits import check_puts
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import FlushState, SegmentEntry
from bookkeeper.model import Extent, TargetShare
from bookkeeper.origins import Part, Root, RootIntervals, Runs
from bookkeeper.rpc.contract.messages import AdoptRequest, ImportedLog
from bookkeeper.runtime.threads import Die
from bookkeeper.storage.tablet.segments.block_cache import BlockCache
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.tablet.segments.segment_reader import Segment
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.blocks.block import DraftBlock, PlacedBlock
from bookkeeper.storage.wal.reading.wal_recovery import last_shares
from bookkeeper.tserver.books.received_index import ReceivedIndex
from bookkeeper.tserver.books.tablet_books import TabletBooks
from bookkeeper.tserver.books.wal_cells import Reach, open_status
from bookkeeper.tserver.bulk.exclusive_tablets import ExclusiveTablets
from bookkeeper.tserver.bulk.hosted_files import HostedImports
from bookkeeper.tserver.bulk.relay_log import OwnLog, RelayLogs
from bookkeeper.tserver.bulk.segment_offers import Standing, first_root, standing_of, targets_reason
from bookkeeper.tserver.bulk.session_holds import SessionHolds, Taking
from bookkeeper.tserver.commit.submission import AppendPoint, Durability
from bookkeeper.tserver.receive.receiver import may_be_forgotten
from bookkeeper.tserver.tablets.block_targets import TableView
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.tablets.tablet_segments import merged_state, segments_put
from bookkeeper.tserver.tablets.wal_order import WalPosition, barrier_at

LOG = logging.getLogger(__name__)

IMPORTED = 1
"""High-water of an import's stream when the tablet has the import."""


def adopted_state(
    before: FlushState | None, flush_id: int, segments: Sequence[SegmentRef], last_seq: int, request: AdoptRequest
) -> FlushState:
    """The state behind an import: the state before it, more segments, the high-water of the import's stream (R18), and
    the log that the tablet's next record waits for (R24).
    """
    compacted = 0 if before is None else before.compacted
    state = merged_state(before, flush_id, segments, compacted)
    log = request.log
    return replace(
        state,
        last_seq=last_seq,
        high_water={**state.high_water, request.stream: through_of(request)},
        last_wals=state.last_wals if log is None else ((log.name, log.offset),),
    )


def families_in(volume: Volume, segments: Iterable[SegmentRef]) -> frozenset[bytes]:
    """The families in files of another cluster. Raises CorruptionError, and DeclinedError for a file of too many."""
    found: set[bytes] = set()
    for segment in segments:
        families = Segment(volume, segment, BlockCache(0)).families
        if families is None:
            raise DeclinedError(f"{segment.name} has too many families to say which of them are here")
        found |= families
    return frozenset(found)


def with_origins(state: FlushState, request: AdoptRequest, families: Iterable[bytes]) -> FlushState:
    """Rule R22: the state with the origins of the files, which are all records of these families in the tablet's rows
    of another cluster's log. The files may be those of some groups only; they have all records of these groups.
    """
    if request.through is None:
        return state
    root, runs = first_root(request.stream, request.relay), Runs.of((1, request.through))
    intervals = state.origin_intervals.get(root, RootIntervals())
    for family in sorted(families):
        intervals = intervals.taking(Part(request.extent.rows, family, runs), state.last_time_ms)
    return replace(state, origin_intervals={**state.origin_intervals, root: intervals})


def with_log(
    put: RowPut,
    log: ImportedLog | None,
    segments: Iterable[SegmentRef],
    after: Iterable[WalPosition],
    shares: Iterable[TargetShare],
) -> RowPut:
    """The row put of an import together with the status of its log: CLOSED from the start, needed = its length, behind
    the tablet's last record (R24), with the numbers of ``segments``. So the books have a peer's lag as soon as readers
    see the records, and a change log at a peer has the order of the tablet: no block of the log knows its numbers,
    because the log was written before the tablet gave them.
    """
    if log is None:
        return put
    barriers = [barrier_at(1, last) for last in after]
    status = combiners.close(open_status(log.created_ms, Reach(log.offset, log.position), barriers, shares))
    status.first_seq = min(ref.first_seq + ref.shift for ref in segments)
    return RowPut(put.key, {**put.values, keys.repl_column(log.name): values.encode_status(status)})


def target_shares_of(volume: Volume, log: ImportedLog | None, table_id: str) -> tuple[TargetShare, ...]:
    """Each target's share of an import's log. Raises CorruptionError, NotFoundError, UnavailableError."""
    return () if log is None else last_shares(volume, log.name, table_id)


def shifted(segments: Sequence[SegmentRef], next_seq: int, flush_id: int) -> list[SegmentRef]:
    """The segments with their sequence numbers behind all numbers of the tablet."""
    shift = max(0, next_seq - min(ref.first_seq for ref in segments))
    return [replace(ref, flush_id=flush_id, shift=shift) for ref in segments]


def through_of(request: AdoptRequest) -> int:
    """The high-water of a stream whose import is complete."""
    return IMPORTED if request.through is None else request.through


def is_taken(tablet: ServedTablet, request: AdoptRequest) -> bool:
    """Rule R18: the tablet has all of the import durably, even after a compaction of its segments."""
    return tablet.received.high_water.get(request.stream, 0) >= through_of(request)


def refuse_mixture(tablet: ServedTablet, request: AdoptRequest) -> None:
    """Rules R18 and R22: raise DeclinedError when the tablet has some of the records, by the stream or by another path:
    the others have to come as records.
    """
    if (
        request.through is not None
        and tablet.received.origin_intervals.of(first_root(request.stream, request.relay)).parts
    ):
        raise DeclinedError(f"tablet {tablet.extent} has some records of {request.stream.file} by another path")
    known = tablet.received.staged_high_water(request.stream)
    if standing_of(known, request.stream in tablet.received.partial_high_waters, through_of(request)) is Standing.SOME:
        raise DeclinedError(f"tablet {tablet.extent} has some records of {request.stream.file}")


def refuse_exhaustion(tablet: ServedTablet, request: AdoptRequest, last_seq: int) -> None:
    """Raise when the files would leave the tablet too few sequence numbers: DeclinedError for another cluster's, whose
    records may come as such and take one each, InvalidInputError for an import.
    """
    if last_seq <= SEQ_MAX:
        return
    reason = f"tablet {tablet.extent} would reach sequence number {last_seq}: files go up to {SEQ_MAX}"
    raise (
        InvalidInputError(f"{reason}; write the records instead") if request.through is None else DeclinedError(reason)
    )


def refuse_on_hosts(tablet: ServedTablet, request: AdoptRequest) -> None:
    """Raise DeclinedError for another cluster's files and a tablet with replicas: its records come as such."""
    if tablet.has_replicas and request.through is not None:
        raise DeclinedError(f"tablet {tablet.extent} has replicas on hosts, and takes another cluster's records only")


def refuse_parts(view: TableView, request: AdoptRequest, wanted: Sequence[SegmentRef]) -> None:
    """Raise DeclinedError for a table with targets when these files are not all of their log, or not the tablet's
    alone: they could not go on with a log of the tablet (R13, R21).
    """
    records = sum(ref.records for ref in wanted)
    if view.block_targets and (
        request.relay is None or records != request.through or any(ref.ranges for ref in wanted)
    ):
        raise DeclinedError(targets_reason(view, "and this is a part of a log"))


class Follow:
    """A control submission: the tablet continues with the state of an import."""

    durability = Durability.LOG
    approx_bytes = 0

    def __init__(self, tablet: ServedTablet, state: FlushState, request: AdoptRequest) -> None:
        self._tablet = tablet
        self._state = state
        self._request = request

    def prepare(self, point: AppendPoint) -> list[DraftBlock]:
        """See :class:`Submission`."""
        del point
        request = self._request
        root = first_root(request.stream, request.relay)
        self._tablet.follow(self._state, request.stream, through_of(request), root)
        return []

    def applied(self, blocks: list[PlacedBlock]) -> object:
        """See :class:`Submission`."""
        del blocks
        return None

    def failed(self, error: BookkeeperError) -> None:
        """See :class:`Submission`; the books hold the state all the same."""


class BulkLoader:
    """Executes the master's orders to take segments, in the thread of the call."""

    def __init__(
        self,
        volume: Volume,
        tablets: ExclusiveTablets,
        index: ReceivedIndex,
        holds: SessionHolds,
        relay_logs: RelayLogs,
        hosted: HostedImports,
        books: TabletBooks,
        nudge: Callable[[], None],
        die: Die,
    ) -> None:
        """``nudge`` informs the master of records to replicate."""
        self._volume = volume
        self._tablets = tablets
        self._index = index
        self._holds = holds
        self._relay_logs = relay_logs
        self._hosted = hosted
        self._books = books
        self._nudge = nudge
        self._die = die

    def adopt(self, request: AdoptRequest) -> None:
        """Take the segments, unless the tablet has taken this import before. Raises NotServingError, RefusedError when
        the import is over, InvalidInputError, CorruptionError, TransientError, and DeclinedError when the records of
        another cluster's import have to come instead.
        """
        wanted = [segment_ref(segment.name, SegmentEntry.decode(segment.entry)) for segment in request.segments]
        check_rows(request.extent, wanted)
        if request.through is None:
            self._adopt(request, wanted, None)
            return
        with self._tablets.configured(request.extent.table_id) as view:
            refuse_parts(view, request, wanted)
            self._adopt(request, wanted, view)

    def has_records_of(self, extent: Extent, root: Root) -> bool:
        """Whether a tablet of this server has records of a root, by any path (R22). Raises NotServingError."""
        return bool(self._tablets.serving(extent).received.origin_intervals.of(root).parts)

    def _adopt(self, request: AdoptRequest, wanted: Sequence[SegmentRef], view: TableView | None) -> None:
        turn = self._hosted.turn(request.extent) if self._tablets.has_replicas(request.extent) else nullcontext()
        with turn, self._tablets.loaded(request.extent) as tablet:
            forgotten_count = tablet.received.forgotten_count
            if is_taken(tablet, request):
                return
            refuse_on_hosts(tablet, request)
            refuse_mixture(tablet, request)
            if not self._index.is_open(request.stream):
                raise RefusedError(f"the import {request.stream.file} is over: nothing more of it is taken")
            if tablet.has_replicas:
                self._adopt_on_hosts(tablet, wanted, request, forgotten_count)
                return
            with self._holds.taking([ref.name for ref in wanted]) as taking:
                self._check(wanted, is_received=request.through is not None)
                self._tablets.flush(tablet)
                with self._relay_logs.log_of(request, wanted, view) as own:
                    shares = target_shares_of(self._volume, own.log, request.extent.table_id)
                    with self._tablets.closed(tablet):
                        self._take(tablet, wanted, replace(request, log=own.log), forgotten_count, taking, own, shares)
        LOG.info("tablet %s took %d imported segments of %s", tablet.extent, len(wanted), request.stream.file)
        self._nudge()

    def _take(
        self,
        tablet: ServedTablet,
        wanted: Sequence[SegmentRef],
        request: AdoptRequest,
        forgotten_count: int,
        taking: Taking,
        own: OwnLog,
        shares: Sequence[TargetShare],
    ) -> None:
        if is_taken(tablet, request):  # as records, while it was flushed
            return
        refuse_mixture(tablet, request)
        families = frozenset() if request.through is None else families_in(self._volume, wanted)
        last_seq = max(ref.last_seq + ref.shift for ref in shifted(wanted, tablet.next_seq, 0))
        refuse_exhaustion(tablet, request, last_seq)
        if may_be_forgotten(
            tablet.received.has_stream(request.stream), forgotten_count, tablet.received.forgotten_count
        ):
            raise UnavailableError(f"the import {request.stream.file} may be over by now: ask again")
        flush_id = tablet.flushes.take_flush_id()
        new = shifted(wanted, tablet.next_seq, flush_id)
        state = adopted_state(tablet.flushes.state, flush_id, [*tablet.data.segments, *new], last_seq, request)
        state = with_origins(state, request, families)
        put = with_log(segments_put(tablet.row, state, new), request.log, new, tablet.last_wals, shares)
        check_puts([put], flush_id)
        own.may_be_named()
        taking.begin_put()
        try:
            self._books.put_surely("an import", put, flush_id)
            taking.put_done()
            tablet.segments_replaced((), new, state)
            self._tablets.commit(Follow(tablet, state, request))
        except BookkeeperError as error:  # as for a compaction: the books may have the put or not
            self._die(f"the state of a tablet behind an import is not known: {error}")
            raise

    def _adopt_on_hosts(
        self, tablet: ServedTablet, wanted: Sequence[SegmentRef], request: AdoptRequest, forgotten_count: int
    ) -> None:
        """Take an import into a tablet with replicas: see ``hosted_files``."""
        self._tablets.flush(tablet)
        shares = target_shares_of(self._volume, request.log, request.extent.table_id)
        with self._hosted.copies(tablet, wanted) as files, self._tablets.closed(tablet):
            last_seq = max(ref.last_seq + ref.shift for ref in shifted(wanted, tablet.next_seq, 0))
            refuse_exhaustion(tablet, request, last_seq)
            if may_be_forgotten(
                tablet.received.has_stream(request.stream), forgotten_count, tablet.received.forgotten_count
            ):
                raise UnavailableError(f"the import {request.stream.file} may be over by now: ask again")
            flush_id = tablet.flushes.take_flush_id()
            new = shifted(files.refs, tablet.next_seq, flush_id)
            state = adopted_state(tablet.flushes.state, flush_id, [*tablet.data.segments, *new], last_seq, request)
            put = with_log(segments_put(tablet.row, state, new), request.log, new, tablet.last_wals, shares)
            named = files.adopt(new, state, put)
            try:
                tablet.segments_replaced((), new, named)
                self._tablets.commit(Follow(tablet, named, request))
            except BookkeeperError as error:  # the books have the state, and this tablet has not
                self._die(f"tablet {tablet.extent} can't follow the state of an import: {error}")
                raise
        LOG.info("tablet %s took %d imported segments of %s on hosts", tablet.extent, len(wanted), request.stream.file)
        self._nudge()

    def _check(self, wanted: Sequence[SegmentRef], *, is_received: bool) -> None:
        """Raise when a file is not there, or is not what its reference says."""
        try:
            check_files(self._volume, wanted)
        except NotFoundError as error:
            if is_received:
                raise UnavailableError(f"a received file is gone: {error.message}") from error
            raise InvalidInputError(f"an imported segment is not there: {error.message}") from error
        except OSError as error:
            raise UnavailableError(f"imported segments can't be read: {error}") from error


def check_rows(extent: Extent, segments: Sequence[SegmentRef]) -> None:
    """Raise InvalidInputError when a segment without ranges has rows outside of the tablet: they would be lost with the
    first compaction.
    """
    for ref in segments:
        if not ref.ranges and not (extent.contains(ref.min_row) and extent.contains(ref.max_row)):
            raise InvalidInputError(f"segment {ref.name} crosses the border of tablet {extent}")
