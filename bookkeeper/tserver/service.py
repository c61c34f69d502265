"""What a tserver answers: the service of the wire contract, each method a few lines over the parts that do it.

Arrives: calls, decoded. Leaves: results, or errors of ``bookkeeper.errors``. Survives a crash: what was answered.
Records are decoded, checked and routed here, in the thread of the call; see ``commit`` for what follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bookkeeper.coordination.coordination_protocol import Session
from bookkeeper.errors import (
    CorruptionError,
    InvalidInputError,
    NotServingError,
    RefusedError,
    UnavailableError,
)
from bookkeeper.model import Extent, StreamKey
from bookkeeper.origins import RootLog
from bookkeeper.rpc.contract.messages import (
    ApplyRequest,
    Condition,
    FileMark,
    ReplicateRequest,
    ReplicateResult,
    ScanPage,
    ScanRequest,
    ServedTablets,
    TabletAssignment,
    TabletProblem,
    WorkItem,
    WorkReport,
    WriteBatch,
    WriteResult,
)
from bookkeeper.rpc.contract.offer_messages import AdoptRequest, OfferAnswer, SegmentPart, SegmentsOffer
from bookkeeper.rpc.dispatch import caller, secret_holder
from bookkeeper.rpc.trust.table_rights import TableRights
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.storage.tablet import Asked, BatchLimits
from bookkeeper.storage.wal import encode_batch
from bookkeeper.tserver.authorizations import sight_for
from bookkeeper.tserver.books.received_index import ReceivedIndex
from bookkeeper.tserver.books.wal_bookkeeper import WalBookkeeper
from bookkeeper.tserver.bulk.bulk_loader import BulkLoader
from bookkeeper.tserver.bulk.segment_receiver import SegmentReceiver
from bookkeeper.tserver.bulk.segment_uploads import SegmentUploads
from bookkeeper.tserver.commit.group_committer import GroupCommitter
from bookkeeper.tserver.commit.submission import Durability
from bookkeeper.tserver.maintenance.compactor import Compactor
from bookkeeper.tserver.maintenance.flusher import Flusher
from bookkeeper.tserver.maintenance.loader import Loader
from bookkeeper.tserver.maintenance.sorter import Sorter
from bookkeeper.tserver.origins.origin_marks import OriginMarks
from bookkeeper.tserver.receive.admission import Admission
from bookkeeper.tserver.receive.receive_streams import Streams
from bookkeeper.tserver.receive.receiver import Receiver
from bookkeeper.tserver.shipping.worker import ReplicationWorker
from bookkeeper.tserver.tablets.tablet import ServedTablet, Share
from bookkeeper.tserver.tablets.tablet_registry import Registry
from bookkeeper.tserver.write import request_dedup
from bookkeeper.tserver.write.barriers import ForgetRoots, ForgetStreams, SyncBarrier
from bookkeeper.tserver.write.commit_path import CommitPath
from bookkeeper.tserver.write.conditional_write import (
    ConditionalWrite,
    check_conditional,
    holds_now,
    refuse_conditional_write,
)
from bookkeeper.tserver.write.configuration import Configuration
from bookkeeper.tserver.write.decompression import DecompressionBudget
from bookkeeper.tserver.write.request_decoder import decode_labelled, share_for
from bookkeeper.tserver.write.request_dedup import Attempt


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Bounds of what clients ask for, in bytes, but for ``batch`` see there."""

    batch: BatchLimits
    page_bytes_max: int


@dataclass(frozen=True, slots=True)
class Parts:
    """What the methods stand on."""

    own_instance_id: str
    session: Session
    persistence: SessionRetries
    registry: Registry
    path: CommitPath
    committer: GroupCommitter
    configuration: Configuration
    keeper: WalBookkeeper
    flusher: Flusher
    compactor: Compactor
    bulk_loader: BulkLoader
    loader: Loader
    sorter: Sorter
    admission: Admission
    receiver: Receiver
    segment_receiver: SegmentReceiver
    uploads: SegmentUploads
    streams: Streams
    index: ReceivedIndex
    marks: OriginMarks
    worker: ReplicationWorker
    limits: ServiceLimits
    rights: TableRights


def asked_durability(name: str) -> Durability | None:
    """None: the tables' own. Raises InvalidInputError."""
    if name == "default":
        return None
    try:
        return Durability.parse(name)
    except ValueError as error:
        raise InvalidInputError(f"{error}, or default for the table's own") from error


class TServerService:
    """Handler of the service ``TServer``. Answers only after :meth:`attach`."""

    def __init__(self) -> None:
        self._attached: Parts | None = None

    def attach(self, parts: Parts) -> None:
        """From here on calls are answered."""
        self._attached = parts

    @property
    def _parts(self) -> Parts:
        if self._attached is None:
            raise UnavailableError("this tserver is starting: try again")
        return self._attached

    def _own_cluster_only(self) -> Parts:
        """Raise RefusedError when a process of another cluster calls: addresses may come to belong to another."""
        parts, asking = self._parts, caller()
        if asking is not None and asking.instance_id != parts.own_instance_id:
            raise RefusedError(
                f"this tserver belongs to instance {parts.own_instance_id}, "
                f"the caller to {asking.instance_id or 'none'}"
            )
        return parts

    # ---- clients

    def write(self, batches: Sequence[WriteBatch], durability: str, writer: str, attempt: int) -> WriteResult:
        """Whole row mutations for some tablets; see ``Durability`` for when it returns, "default" is the tables', and
        ``request_dedup`` for ``writer`` and ``attempt``.
        """
        parts = self._parts
        asked = asked_durability(durability)
        latest_ms = parts.limits.batch.latest_ms(parts.path.context.clock.wall_ms())
        shares: list[tuple[ServedTablet, Share]] = []
        elsewhere: list[Extent] = []
        budget = DecompressionBudget(parts.limits.batch)
        for batch in batches:
            tablet = parts.registry.find(batch.extent)
            if tablet is None or not tablet.accepting or request_dedup.is_for_another(batch.placed, tablet.placed):
                elsewhere.append(batch.extent)
                continue
            records = decode_labelled(batch.records, parts.limits.batch, latest_ms, budget)
            if records.num_rows:
                shares.append((tablet, share_for(batch.extent, records)))
                parts.flusher.make_room(tablet)
        if shares:
            elsewhere += parts.path.write(shares, asked, Attempt(writer, attempt))
        return WriteResult(tuple(elsewhere))

    def write_if(self, extent: Extent, conditions: Sequence[Condition], records: bytes, durability: str) -> bool:
        """One row's records, if the conditions on its cells hold; False: they don't, and nothing was written. Raises
        NotServingError, ReadOnlyError, ConditionalRefusedError, InvalidInputError.
        """
        parts = self._parts
        asked = asked_durability(durability)
        tablet = parts.registry.serving(extent)
        context = parts.path.context
        latest_ms = parts.limits.batch.latest_ms(context.clock.wall_ms())
        share = share_for(extent, decode_labelled(records, parts.limits.batch, latest_ms))
        check_conditional(conditions, share)
        refuse_conditional_write(context.view.table(extent.table_id))
        if not holds_now(tablet.data, share.min_row, conditions, context.clock.wall_ms()):
            parts.session.check()
            return False
        parts.flusher.make_room(tablet)
        return parts.path.judge(ConditionalWrite(context, tablet, share, conditions, asked)) is True

    def scan(self, request: ScanRequest) -> ScanPage:
        """One page of a tablet. What it shows was durable as asked; the lease is checked after reading. Raises
        NotServingError, InvalidInputError, RefusedError when it asks for authorizations that its user does not have.
        """
        parts = self._parts
        if len(request.columns) % 2:
            raise InvalidInputError("columns are pairs of family and qualifier: their number must be even")
        pairs = list(zip(request.columns[::2], request.columns[1::2], strict=True))
        context = parts.path.context
        sight = sight_for(context.view.users, request.user, request.authorizations)
        tablet = parts.registry.find(request.extent) or parts.registry.serving(request.extent)
        try:
            page = tablet.data.scan_page(
                request.start_row,
                request.stop_row,
                request.families,
                pairs,
                request.resume,
                min(request.page_bytes, parts.limits.page_bytes_max),
                Asked(request.versions, request.from_ms, request.to_ms),
                context.clock.wall_ms(),
                sight,
            )
        except CorruptionError:
            parts.session.check()
            if not parts.registry.holds(tablet):  # another holder may have replaced its segments
                raise NotServingError(f"tablet {request.extent} has left this server: locate it again") from None
            raise
        parts.session.check()
        return ScanPage(encode_batch(page.records), page.next)

    # ---- the master

    def load_tablet(self, assignment: TabletAssignment) -> None:
        """See :meth:`Loader.load`."""
        self._own_cluster_only().loader.load(assignment)

    def unload_tablet(self, extent: Extent, epoch: int, discard: bool) -> None:
        """See :meth:`Loader.unload`."""
        self._own_cluster_only().loader.unload(extent, epoch, discard)

    def tablets(self) -> ServedTablets:
        """What is served here, and what is wrong with some of it."""
        tablets = self._parts.registry.all()
        problems = [TabletProblem(t.extent, why) for t in tablets if (why := "; ".join(t.problems))]
        return ServedTablets(tuple(tablet.extent for tablet in tablets), tuple(problems))

    def flush_tablet(self, extent: Extent) -> None:
        """Everything written before is in segments that the books name."""
        parts = self._parts
        parts.flusher.flush(parts.registry.serving(extent))

    def compact_tablet(self, extent: Extent, ticket: int) -> int:
        """See :meth:`Compactor.ask`."""
        parts = self._parts
        return parts.compactor.ask(parts.registry.serving(extent), ticket)

    def adopt_segments(self, request: AdoptRequest) -> None:
        """See :meth:`BulkLoader.adopt`."""
        self._own_cluster_only().bulk_loader.adopt(request)

    def confirm_config(self, generation: int) -> int:
        """See :meth:`Configuration.confirm`."""
        return self._own_cluster_only().configuration.confirm(generation)

    def wal_positions(self, table_id: str) -> list[FileMark]:
        """The last record of the table in each own log that has one, synced; everything acknowledged is counted."""
        parts = self._parts
        parts.path.cross(SyncBarrier())
        return [FileMark(file, offset) for file, offset in parts.keeper.positions(table_id)]

    def assign_work(self, items: Sequence[WorkItem]) -> None:
        """See :meth:`ReplicationWorker.assign`."""
        self._own_cluster_only().worker.assign(items)

    def work_reports(self) -> Sequence[WorkReport]:
        """See :meth:`ReplicationWorker.reports`."""
        return self._parts.worker.reports()

    def forget_streams(self, streams: Sequence[StreamKey]) -> None:
        """These streams are over for good (R20), and their ``~recv_`` cells are gone: a tablet whose load begins from
        here on does not take up their marks, and those whose load began before are waited for.
        """
        parts = self._own_cluster_only()
        parts.streams.forget(set(streams))
        parts.index.forget(streams)
        parts.loader.settle()
        parts.path.cross(ForgetStreams(parts.registry.all(), streams))

    def forget_roots(self, logs: Sequence[RootLog]) -> None:
        """Nothing of these logs is under way anywhere (R22), and their ``~root_`` cells are gone; as for streams."""
        parts = self._own_cluster_only()
        parts.marks.forget(logs)
        parts.loader.settle()
        parts.path.cross(ForgetRoots(parts.registry.all(), frozenset(logs)))

    # ---- other clusters, and tservers of this one

    def _receiving(self, stream: StreamKey) -> Parts:
        """Raises UnauthorizedError when the caller's secret does not open the table of the stream."""
        parts = self._parts
        parts.rights.check_id(caller(), stream.target_table_id, parts.configuration.name_of)
        return parts

    def open_stream(self, stream: StreamKey) -> str:
        """See :meth:`Admission.open_stream`."""
        return self._receiving(stream).admission.open_stream(stream, secret_holder())

    def replicate(self, request: ReplicateRequest) -> ReplicateResult:
        """See :meth:`Receiver.replicate`."""
        return self._receiving(request.stream).receiver.replicate(request)

    def offer_segments(self, offer: SegmentsOffer) -> OfferAnswer:
        """See :meth:`SegmentReceiver.offer`."""
        return self._receiving(offer.stream).segment_receiver.offer(offer)

    def put_segment(self, part: SegmentPart) -> None:
        """See :meth:`SegmentReceiver.put`."""
        self._receiving(part.stream).segment_receiver.put(part)

    def take_segments(self, stream_session: str, stream: StreamKey) -> OfferAnswer:
        """See :meth:`SegmentReceiver.take`."""
        return self._receiving(stream).segment_receiver.take(stream_session, stream)

    def apply_replicated(self, request: ApplyRequest) -> ReplicateResult:
        """See :meth:`Receiver.apply_replicated`."""
        return self._own_cluster_only().receiver.apply_replicated(request)

    # ---- people

    def status(self) -> Mapping[str, str]:
        """Facts for people: counts, bytes, offsets."""
        parts = self._parts
        tablets = parts.registry.all()
        return {
            "session": parts.session.session_id,
            "tablets": str(len(tablets)),
            "memory_bytes": str(sum(tablet.data.memory_bytes for tablet in tablets)),
            "segments": str(sum(len(tablet.data.segments) for tablet in tablets)),
            "flushes": str(parts.flusher.flushes_done),
            "merges": str(parts.compactor.merges_done),
            "wal": parts.path.wal_uri,
            "queued_bytes": str(parts.committer.queued_bytes),
            "config_generation": str(parts.path.context.view.generation),
            "books_updates": str(parts.keeper.updates_written),
            "open_streams": str(len(parts.streams)),
        }
