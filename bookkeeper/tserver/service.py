"""The service of the wire contract: each method delegates to the part of the tserver that does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bookkeeper.errors import RefusedError, UnavailableError
from bookkeeper.model import Extent, StreamKey
from bookkeeper.origins import RootLog
from bookkeeper.rpc.contract.messages import (
    AdoptRequest,
    ApplyRequest,
    Condition,
    FileMark,
    FileRequest,
    HeldReplicas,
    LogPart,
    LogSeal,
    OfferAnswer,
    ReplicaContent,
    ReplicateRequest,
    ReplicateResult,
    ScanPage,
    ScanRequest,
    SegmentAck,
    SegmentAnswer,
    SegmentOffer,
    SegmentPart,
    SegmentsOffer,
    SegmentTransit,
    ServedTablets,
    SplitPoint,
    StateConfirmation,
    TabletAssignment,
    WorkItem,
    WorkReport,
    WriteBatch,
    WriteResult,
)
from bookkeeper.rpc.dispatch import caller, secret_holder
from bookkeeper.rpc.trust.table_rights import TableRights
from bookkeeper.storage.wal.reading.wal_recovery import BooksClaim
from bookkeeper.tserver.parts import Parts, ReplicaParts


class TServerService:
    """Handler of the service ``TServer``. Answers only after :meth:`attach`. ``rights``: the tables of this
    instance that another cluster's secret opens.
    """

    def __init__(self, own_instance_id: str, rights: TableRights) -> None:
        self._own_instance_id = own_instance_id
        self._rights = rights
        self._attached: Parts | None = None

    def attach(self, parts: Parts) -> None:
        """Answer calls from here on."""
        self._attached = parts

    @property
    def _parts(self) -> Parts:
        if self._attached is None:
            raise UnavailableError("this tserver is starting: try again")
        return self._attached

    def _for_own_cluster(self) -> Parts:
        """Raise RefusedError when a process of another cluster calls: addresses may come to belong to another."""
        parts, calling = self._parts, caller()
        if calling is not None and calling.instance_id != self._own_instance_id:
            raise RefusedError(
                f"this tserver belongs to instance {self._own_instance_id}, "
                f"the caller to {calling.instance_id or 'none'}"
            )
        return parts

    def _for_stream(self, stream: StreamKey) -> Parts:
        """Raise UnauthorizedError when the caller's secret does not open the table of the stream."""
        parts = self._parts
        self._rights.check_id(caller(), stream.target_table_id, parts.writing.configuration.name_of)
        return parts

    # ---- clients

    def write(self, batches: Sequence[WriteBatch], durability: str, writer: str, attempt: int) -> WriteResult:
        """See :meth:`ClientRequests.write`."""
        return self._parts.clients.write(batches, durability, writer, attempt)

    def write_if(self, extent: Extent, conditions: Sequence[Condition], records: bytes, durability: str) -> bool:
        """See :meth:`ClientRequests.write_if`."""
        return self._parts.clients.write_if(extent, conditions, records, durability)

    def scan(self, request: ScanRequest) -> ScanPage:
        """See :meth:`ClientRequests.scan`."""
        return self._parts.clients.scan(request)

    # ---- the master

    def load_tablet(self, assignment: TabletAssignment) -> None:
        """See :meth:`Loader.load`."""
        self._for_own_cluster().tablets.loader.load(assignment)

    def unload_tablet(self, extent: Extent, epoch: int, discard: bool) -> None:
        """See :meth:`Loader.unload`."""
        self._for_own_cluster().tablets.loader.unload(extent, epoch, discard)

    def tablets(self) -> ServedTablets:
        """See :meth:`TabletParts.served`."""
        return self._parts.tablets.served()

    def flush_tablet(self, extent: Extent) -> None:
        """See :meth:`Flusher.flush`."""
        tablets = self._parts.tablets
        tablets.flusher.flush(tablets.registry.serving(extent))

    def compact_tablet(self, extent: Extent, ticket: int) -> int:
        """See :meth:`Compactor.request`."""
        tablets = self._parts.tablets
        return tablets.compactor.request(tablets.registry.serving(extent), ticket)

    def split_point(self, extent: Extent, row_bytes_max: int) -> SplitPoint:
        """See :meth:`TabletParts.split_point`."""
        return self._parts.tablets.split_point(extent, row_bytes_max)

    def adopt_segments(self, request: AdoptRequest) -> None:
        """See :meth:`BulkLoader.adopt`."""
        self._for_own_cluster().bulk.loader.adopt(request)

    def confirm_config(self, generation: int) -> int:
        """See :meth:`Configuration.confirm`."""
        return self._for_own_cluster().writing.configuration.confirm(generation)

    def wal_positions(self, table_id: str) -> list[FileMark]:
        """See :meth:`WriteParts.positions`."""
        return self._parts.writing.positions(table_id)

    def assign_work(self, items: Sequence[WorkItem]) -> None:
        """See :meth:`ReplicationWorker.assign`."""
        self._for_own_cluster().worker.assign(items)

    def follow(self, cluster: str, run: str, results: bytes, wait_ms: int) -> bytes:
        """See :meth:`ReplicationWorker.follow`."""
        return self._for_own_cluster().worker.follow(cluster, run, results, wait_ms)

    def work_reports(self) -> Sequence[WorkReport]:
        """See :meth:`ReplicationWorker.reports`."""
        return self._parts.worker.reports()

    def forget_streams(self, streams: Sequence[StreamKey]) -> None:
        """See :meth:`Parts.forget_streams`."""
        self._for_own_cluster().forget_streams(streams)

    def forget_roots(self, logs: Sequence[RootLog]) -> None:
        """See :meth:`Parts.forget_roots`."""
        self._for_own_cluster().forget_roots(logs)

    # ---- other clusters, and tservers of this one

    def open_stream(self, stream: StreamKey) -> str:
        """See :meth:`Admission.open_stream`."""
        return self._for_stream(stream).receiving.admission.open_stream(stream, secret_holder())

    def replicate(self, request: ReplicateRequest) -> ReplicateResult:
        """See :meth:`Receiver.replicate`."""
        parts = self._for_stream(request.stream)
        return parts.receiving.receiver.replicate(request, self._rights.origins(caller()))

    def offer_segments(self, offer: SegmentsOffer) -> OfferAnswer:
        """See :meth:`SegmentReceiver.offer`."""
        return self._for_stream(offer.stream).bulk.receiver.offer(offer, self._rights.origins(caller()))

    def put_segment(self, part: SegmentPart) -> None:
        """See :meth:`SegmentReceiver.put`."""
        self._for_stream(part.stream).bulk.receiver.put(part)

    def take_segments(self, stream_session: str, stream: StreamKey) -> OfferAnswer:
        """See :meth:`SegmentReceiver.take`."""
        return self._for_stream(stream).bulk.receiver.take(stream_session, stream)

    def apply_replicated(self, request: ApplyRequest) -> ReplicateResult:
        """See :meth:`Receiver.apply_replicated`."""
        return self._for_own_cluster().receiving.receiver.apply_replicated(request)

    # ---- other hosts of this cluster

    def confirm_states(self, leader: str, confirmations: Sequence[StateConfirmation]) -> Sequence[bool]:
        """See :meth:`ReplicaReceiver.confirm`."""
        return self._replicas.receiver.confirm(leader, confirmations)

    def replicas(self, table_id: str, with_segments: bool) -> HeldReplicas:
        """See :meth:`ReplicaParts.infos`."""
        return self._replicas.infos(table_id, with_segments, self._parts.tablets.own_work_waits())

    def tablet_replica(self, table_id: str, directory: str) -> HeldReplicas:
        """See :meth:`ReplicaParts.tablet_info`."""
        return self._replicas.tablet_info(table_id, directory, self._parts.tablets.own_work_waits())

    def divide_replica(self, source: str, children: Sequence[Extent]) -> Sequence[Extent]:
        """See :meth:`ReplicaDivider.divide`."""
        return self._replicas.files.divider.divide(source, children)

    def read_replica(self, table_id: str, directory: str, file: str, start: int) -> ReplicaContent:
        """See :meth:`ReplicaContents.read`."""
        return self._replicas.files.contents.read(table_id, directory, file, start)

    def take_replica(self, extent: Extent, files: Mapping[str, str]) -> bool:
        """See :meth:`ReplicaStores.take`."""
        return self._replicas.files.stores.take(extent, files)

    def publish_replica(self, extent: Extent) -> bool:
        """See :meth:`ReplicaStores.publish`."""
        return self._replicas.files.stores.publish(extent)

    def segment_offer(self, offer: SegmentOffer) -> SegmentAnswer:
        """See :meth:`ReplicaReceiver.offer`."""
        return self._replicas.receiver.offer(offer)

    def segment_transit(self, transit: SegmentTransit) -> SegmentAck:
        """See :meth:`ReplicaReceiver.transit`."""
        return self._replicas.receiver.transit(transit)

    def replica_content(self, request: FileRequest) -> bytes:
        """See :meth:`FileSource.content`."""
        return self._replicas.damage.source.content(request)

    def read_log(self, incarnation: str, name: str, position: int, length: int) -> LogPart:
        """See :meth:`ServedLogs.read`."""
        return self._replicas.logs.read(incarnation, name, position, length)

    def list_logs(self, incarnation: str, prefix: str, after: str) -> Sequence[str]:
        """See :meth:`ServedLogs.names`."""
        return self._replicas.logs.names(incarnation, prefix, after)

    def seal_log(self, incarnation: str, name: str, is_used: bool, durable_offset: int) -> LogSeal:
        """See :meth:`ServedLogs.seal`."""
        return self._replicas.logs.seal(incarnation, name, BooksClaim(is_used, durable_offset))

    def drop_logs(self, incarnation: str, names: Sequence[str]) -> None:
        """See :meth:`ServedLogs.drop`."""
        self._replicas.logs.drop(incarnation, names)

    @property
    def _replicas(self) -> ReplicaParts:
        replicas = self._for_own_cluster().replicas
        if replicas is None:
            raise RefusedError("this tserver holds no replicas: call the one whose session shows the host")
        return replicas

    # ---- operators

    def status(self) -> Mapping[str, str]:
        """See :meth:`Parts.status`."""
        return self._parts.status()
