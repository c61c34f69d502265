"""Imported segments become part of a tablet: at once, once, at one place in its order, and whatever is cut where.

Arrives: the master's order: files that lie on disk, the stream that stands for their import and, of a replicated table,
the log of the same records. Leaves: links in the tablet's directory, and one row put of the tablet: the segments'
cells, a state that names them and holds the stream (rule R18: to know, to apply and to remember is one durable step),
and the log's `repl:` cell, born CLOSED: so nothing imported shows that is not on its way to the peers. Survives a
crash: the put, or nothing but links that nobody names. An order that is repeated finds the stream and changes nothing,
also after the segments were compacted away. One that comes when the import is over is refused by the books, like a
message of a stream that is over (R20).

Whole files of another cluster's import are taken in the same way, as all of a stream that may come as records, too
(``segment_receiver``): by a tablet that has none of these. Where the table has targets of its own, a log is made here
that stands for the files (``relay_log``), and all is as if they had been imported here.

The tablet takes no writes meanwhile, and what it holds is flushed first: so the import comes behind all that was
written before and in front of all that is written later, in sequence numbers as well as for the peers (rule R24: its
log waits for the tablet's last one, and the tablet's next record waits for it). Clients are told to try again, as when
a tablet moves. Rules: R1, R13, R18, R20 and R24.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import combiners
from bookkeeper.bulk import link_segments, segment_ref
from bookkeeper.bulk.booked_segment import SEQ_MAX
from bookkeeper.errors import BookkeeperError, DeclinedError, InvalidInputError, RefusedError, UnavailableError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_limits import check_puts
from bookkeeper.metadata.metadata_table import MetadataTable, RowPut
from bookkeeper.metadata.values import FlushState, SegmentEntry
from bookkeeper.model import Extent, TargetShare
from bookkeeper.origins import Part, Root, RootIntervals, Runs
from bookkeeper.rpc.contract.offer_messages import AdoptRequest, ImportedLog
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.runtime.threads import Die
from bookkeeper.storage.tablet import BlockCache, SegmentRef
from bookkeeper.storage.tablet.segments.segment_reader import Segment
from bookkeeper.storage.tablet.segments.segment_writer import SegmentOps
from bookkeeper.storage.wal import DraftBlock, PlacedBlock, last_shares, path_of
from bookkeeper.tserver.books.received_index import ReceivedIndex
from bookkeeper.tserver.books.wal_cells import Reach, open_status
from bookkeeper.tserver.bulk.relay_log import OwnLog, RelayLogs
from bookkeeper.tserver.bulk.segment_offers import Standing, first_root, leaves_numbers, standing_of, targets_reason
from bookkeeper.tserver.commit.submission import AppendPoint, Durability
from bookkeeper.tserver.maintenance.flusher import Flusher
from bookkeeper.tserver.maintenance.loader import Loader
from bookkeeper.tserver.tablets.block_targets import TableView
from bookkeeper.tserver.tablets.load_plan import first_flush_id
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.tablets.tablet_registry import Registry
from bookkeeper.tserver.tablets.tablet_segments import merged_state, segments_put
from bookkeeper.tserver.tablets.wal_order import WalPlace, barrier_at
from bookkeeper.tserver.write.barriers import CloseTablet
from bookkeeper.tserver.write.commit_path import CommitPath
from bookkeeper.tserver.write.replicated_apply import was_forgotten

LOG = logging.getLogger(__name__)

IMPORTED = 1
"""High-water of an import's stream: all of it is here."""


def adopted_state(
    before: FlushState | None, flush_id: int, segments: Sequence[SegmentRef], last_seq: int, request: AdoptRequest
) -> FlushState:
    """The state behind an import: what was known before, more segments, that the import was taken (R18), and what the
    next record comes after (R24).
    """
    compacted = 0 if before is None else before.compacted
    state = merged_state(before, flush_id, segments, compacted)
    log = request.log
    return replace(
        state,
        last_seq=last_seq,
        high_water={**state.high_water, request.stream: through_of(request)},
        last_wals=state.last_wals if log is None else ((log.uri, log.offset),),
    )


def families_in(segments: Iterable[SegmentRef]) -> frozenset[bytes]:
    """The families in files of another cluster. Raises CorruptionError, and DeclinedError for a file of too many."""
    found: set[bytes] = set()
    for segment in segments:
        families = Segment(segment, BlockCache(0)).families
        if families is None:
            raise DeclinedError(f"{segment.uri} has too many families to say which of them are here")
        found |= families
    return frozenset(found)


def with_whole(state: FlushState, request: AdoptRequest, families: Iterable[bytes]) -> FlushState:
    """Rule R22: everything that another cluster's log has of these families in the tablet's rows is here now. The files
    may be those of some groups only; of these they hold all.
    """
    if request.through is None:
        return state
    root, runs = first_root(request.stream, request.onward), Runs.of((1, request.through))
    held = state.held.get(root, RootIntervals())
    for family in sorted(families):
        held = held.taking(Part(request.extent.rows, family, runs), state.last_time_ms)
    return replace(state, held={**state.held, root: held})


def with_log(put: RowPut, log: ImportedLog | None, after: Iterable[WalPlace], shares: Iterable[TargetShare]) -> RowPut:
    """The row put of an import together with the books of its log: CLOSED from birth, needed = its length, and waiting
    for the tablet's last record (R24). What a peer lacks is known at the moment at which it shows here.
    """
    if log is None:
        return put
    barriers = [barrier_at(1, place) for place in after]
    status = combiners.close(open_status(log.created_ms, Reach(log.offset, log.position), barriers, shares))
    return RowPut(put.key, {**put.values, keys.repl_column(log.uri): values.encode_status(status)})


def shares_of(log: ImportedLog | None, table_id: str) -> tuple[TargetShare, ...]:
    """What of an import's log is each target's. Raises CorruptionError, NotFoundError, UnavailableError."""
    return () if log is None else last_shares(log.uri, table_id)


def shifted(segments: Sequence[SegmentRef], next_seq: int, flush_id: int) -> list[SegmentRef]:
    """The segments with their sequence numbers behind all that the tablet has given."""
    shift = max(0, next_seq - min(ref.first_seq for ref in segments))
    return [replace(ref, flush_id=flush_id, shift=shift) for ref in segments]


def through_of(request: AdoptRequest) -> int:
    """The high-water of the stream that says "all of it"."""
    return IMPORTED if request.through is None else request.through


def is_taken(tablet: ServedTablet, request: AdoptRequest) -> bool:
    """Rule R18: the tablet has all of this, durably, whatever became of its segments since."""
    return tablet.received.high_water.get(request.stream, 0) >= through_of(request)


def refuse_mixture(tablet: ServedTablet, request: AdoptRequest) -> None:
    """Rules R18 and R22: raise DeclinedError when the tablet has some of the records, by the stream or by another path:
    what it lacks comes as records.
    """
    if (
        request.through is not None
        and tablet.received.origin_intervals.known(first_root(request.stream, request.onward)).parts
    ):
        raise DeclinedError(f"tablet {tablet.extent} has some records of {request.stream.file} by another path")
    known = tablet.received.staged_high_water(request.stream)
    if standing_of(known, request.stream in tablet.received.partial_high_waters, through_of(request)) is Standing.SOME:
        raise DeclinedError(f"tablet {tablet.extent} has some records of {request.stream.file}")


def refuse_exhaustion(tablet: ServedTablet, request: AdoptRequest, last_seq: int) -> None:
    """Raise when the files would leave the tablet too few sequence numbers: DeclinedError for another cluster's, whose
    records may come as such and take one each, InvalidInputError for an import.
    """
    if leaves_numbers(last_seq):
        return
    reason = f"tablet {tablet.extent} would have given {last_seq} as a sequence number: files go up to {SEQ_MAX}"
    raise (
        InvalidInputError(f"{reason}; write the records instead") if request.through is None else DeclinedError(reason)
    )


def refuse_parts(view: TableView, request: AdoptRequest, wanted: Sequence[SegmentRef]) -> None:
    """Raise DeclinedError for a table with targets when these files are not all of their log, or not the tablet's
    alone: they could not go on with a log of the tablet (R13, R21).
    """
    records = sum(ref.records for ref in wanted)
    if view.block_targets and (
        request.onward is None or records != request.through or any(ref.ranges for ref in wanted)
    ):
        raise DeclinedError(targets_reason(view, "and this is a part of a log"))


class Follow:
    """A barrier of the commit thread: the tablet goes on behind the state of an import."""

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
        root = first_root(request.stream, request.onward)
        self._tablet.follow(self._state, request.stream, through_of(request), root)
        return []

    def applied(self, blocks: list[PlacedBlock]) -> object:
        """See :class:`Submission`."""
        del blocks
        return None

    def failed(self, error: BookkeeperError) -> None:
        """See :class:`Submission`; the books hold the state all the same."""


class OpenTablet(CloseTablet):
    """The tablet takes writes again."""

    def cross(self) -> None:
        """See :class:`CloseTablet`, for the opposite."""
        self._tablet.accept_again()


class BulkLoader:
    """Executes the master's orders to take segments, in the thread of the call."""

    def __init__(
        self,
        registry: Registry,
        flusher: Flusher,
        loader: Loader,
        path: CommitPath,
        index: ReceivedIndex,
        metadata: MetadataTable,
        persistence: SessionRetries,
        nudge: Callable[[], None],
        die: Die,
        onward: RelayLogs,
    ) -> None:
        """``nudge`` tells the master that there is something to replicate. ``onward``: see there."""
        self._onward = onward
        self._registry = registry
        self._flusher = flusher
        self._loader = loader
        self._path = path
        self._index = index
        self._metadata = metadata
        self._persistence = persistence
        self._nudge = nudge
        self._die = die
        self._ops = SegmentOps()

    def adopt(self, request: AdoptRequest) -> None:
        """Take the segments, unless the tablet has taken this import before. Raises NotServingError, RefusedError when
        the import is over, InvalidInputError, CorruptionError, TransientError, and DeclinedError when another cluster's
        has to come as records.
        """
        wanted = [segment_ref(given.uri, SegmentEntry.decode(given.entry)) for given in request.segments]
        check_rows(request.extent, wanted)
        if request.through is None:
            self._adopt(request, wanted, None)
            return
        context = self._path.context
        with context.config_barrier.passing():
            view = context.view.table(request.extent.table_id)
            refuse_parts(view, request, wanted)
            self._adopt(request, wanted, view)

    def knows(self, extent: Extent, root: Root) -> bool:
        """Whether the tablet, which is served here, has some of a root's records, by whichever path they came (R22).
        Raises NotServingError.
        """
        return bool(self._registry.serving(extent).received.origin_intervals.known(root).parts)

    def _adopt(self, request: AdoptRequest, wanted: Sequence[SegmentRef], view: TableView | None) -> None:
        with self._loader.only_one(request.extent):
            tablet = self._registry.serving(request.extent)
            forgets = tablet.received.forgotten_count
            if is_taken(tablet, request):
                return
            refuse_mixture(tablet, request)
            if not self._index.is_open(request.stream):
                raise RefusedError(f"the import {request.stream.file} is over: nothing more of it is taken")
            self._flusher.flush(tablet)  # so that writers wait for what comes meanwhile only
            with self._onward.log_of(request, wanted, view) as own:
                shares = shares_of(own.log, request.extent.table_id)
                self._path.cross(CloseTablet(tablet))
                try:
                    self._flusher.empty(tablet)
                    with tablet.flushes.lock:
                        self._take(tablet, wanted, replace(request, log=own.log), forgets, own, shares)
                finally:
                    self._path.cross(OpenTablet(tablet))
        LOG.info("tablet %s took %d imported segments of %s", tablet.extent, len(wanted), request.stream.file)
        self._nudge()

    def _take(
        self,
        tablet: ServedTablet,
        wanted: Sequence[SegmentRef],
        request: AdoptRequest,
        forgets: int,
        own: OwnLog,
        shares: Sequence[TargetShare],
    ) -> None:
        if is_taken(tablet, request):  # as records, while it was flushed
            return
        refuse_mixture(tablet, request)
        families = frozenset() if request.through is None else families_in(wanted)
        last_seq = max(ref.last_seq + ref.shift for ref in shifted(wanted, tablet.next_seq, 0))
        refuse_exhaustion(tablet, request, last_seq)
        linked = self._link(tablet, wanted, is_received=request.through is not None)
        if was_forgotten(tablet.received.has_stream(request.stream), forgets, tablet.received.forgotten_count):
            discard(linked)
            raise UnavailableError(f"the import {request.stream.file} may be over by now: ask again")
        flush_id = tablet.flushes.take_flush_id()
        new = shifted(linked, tablet.next_seq, flush_id)
        state = adopted_state(tablet.flushes.state, flush_id, [*tablet.data.segments, *new], last_seq, request)
        state = with_whole(state, request, families)
        put = with_log(segments_put(tablet.row, state, new), request.log, tablet.last_wals, shares)
        check_puts([put], flush_id)
        own.is_named = True
        try:
            self._persistence.retry("an import", lambda: self._metadata.put([put], flush_id))
            tablet.segments_replaced((), new, state)
            self._path.cross(Follow(tablet, state, request))
        except BookkeeperError as error:  # as for a compaction: nobody can know whether the books have it
            self._die(f"the state of a tablet behind an import is not known: {error}")
            raise

    def _link(self, tablet: ServedTablet, wanted: Sequence[SegmentRef], *, is_received: bool) -> list[SegmentRef]:
        """Names of the tablet's own; links of one received file end alike, so that it is counted once."""
        holder = first_flush_id(tablet.serial)
        names = iter([path_of(ref.uri).name if is_received else uuid.uuid4().hex for ref in wanted])
        try:
            return link_segments(wanted, tablet.data.directory, holder, lambda: next(names), self._ops)
        except FileNotFoundError as error:
            if is_received:
                raise UnavailableError(f"a received file is there no more: {error.filename}") from error
            raise InvalidInputError(f"an imported segment is not there: {error.filename}") from error
        except OSError as error:
            raise UnavailableError(f"imported segments can't be linked: {error}") from error


def check_rows(extent: Extent, segments: Sequence[SegmentRef]) -> None:
    """Raise InvalidInputError when a segment without ranges has rows outside of the tablet: they would be lost with the
    first compaction.
    """
    for ref in segments:
        if not ref.ranges and not (extent.contains(ref.min_row) and extent.contains(ref.max_row)):
            raise InvalidInputError(f"segment {ref.uri} crosses the border of tablet {extent}")


def discard(linked: Sequence[SegmentRef]) -> None:
    """Remove links that nobody was told of."""
    for ref in linked:
        path_of(ref.uri).unlink(missing_ok=True)
