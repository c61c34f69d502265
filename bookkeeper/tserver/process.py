"""One tserver process: its parts, the order in which they start, and the order in which they end.

Arrives: settings. Leaves: a serving process. Survives a crash: see each part. Start: bind, open the session, read the
configuration, open the first log, serve. A clean end: take no more calls, flush every tablet, seal the log, close its
cells, end the session; whoever loads the tablets next has nothing to recover. What waits for something that does not
come (room on a disk, the books) is given up, and a clean end that takes too long becomes that of a crash: recovery does
the rest. A lost lease ends the process at once.
"""

from __future__ import annotations

import logging
import random
import threading
from itertools import count

from bookkeeper.bulk import incoming_dir
from bookkeeper.clock import Clock
from bookkeeper.config import Settings
from bookkeeper.coordination.config_tree import read_config
from bookkeeper.coordination.coordination_protocol import Coordination, Session
from bookkeeper.metadata.flight import books_flight_ms
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.rpc.rpc_server import RpcServer
from bookkeeper.rpc.trust.table_rights import TableRights
from bookkeeper.runtime.process_exit import end_process
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.runtime.threads import Die, start_thread
from bookkeeper.security.access import entrance_of, process_credentials
from bookkeeper.storage.tablet import BatchLimits
from bookkeeper.storage.wal import FileHeader, WalWriter
from bookkeeper.tserver.books.received_index import ReceivedIndex
from bookkeeper.tserver.books.wal_bookkeeper import WalBookkeeper
from bookkeeper.tserver.bulk.bulk_loader import BulkLoader
from bookkeeper.tserver.bulk.exclusive_tablets import ExclusiveTablets
from bookkeeper.tserver.bulk.relay_log import RelayLogs
from bookkeeper.tserver.bulk.segment_receiver import SegmentReceiver
from bookkeeper.tserver.bulk.segment_uploads import SegmentUploads
from bookkeeper.tserver.commit.commit_limits import CommitLimits
from bookkeeper.tserver.commit.group_committer import GroupCommitter
from bookkeeper.tserver.maintenance.compactor import Compactor
from bookkeeper.tserver.maintenance.flusher import Flusher, FlushLimits
from bookkeeper.tserver.maintenance.loader import Loader
from bookkeeper.tserver.maintenance.sorter import Sorter
from bookkeeper.tserver.master_notices import MasterLink
from bookkeeper.tserver.origins.origin_marks import OriginMarks
from bookkeeper.tserver.receive.admission import Admission
from bookkeeper.tserver.receive.message_decoding import PeerLimits
from bookkeeper.tserver.receive.message_order import MessageOrder
from bookkeeper.tserver.receive.receive_streams import StreamLimits, Streams
from bookkeeper.tserver.receive.receiver import LocalApply, Receiver
from bookkeeper.tserver.receive.receiving_tablets import ReceivingTablets
from bookkeeper.tserver.receive.share_delivery import ShareDelivery
from bookkeeper.tserver.receive.share_retry import ShareRetry
from bookkeeper.tserver.service import Parts, ServiceLimits, TServerService
from bookkeeper.tserver.shipping.worker import ReplicationWorker
from bookkeeper.tserver.tablets.block_targets import view_of
from bookkeeper.tserver.tablets.tablet_registry import Registry
from bookkeeper.tserver.write.commit_path import CommitPath
from bookkeeper.tserver.write.configuration import Configuration
from bookkeeper.tserver.write.write_context import WriteContext

LOG = logging.getLogger(__name__)

SESSION_KIND = "tserver"
LOG_SUFFIX = ".wal"
LEASE_LOOK_MS = 100
SEALED_LOG_AGE_MS = 30_000
"""A tablet that needs a log which was sealed this long ago is flushed, so that the file can go."""
MEMORY_MEMTABLES = 8
"""Memtables of all tablets together hold at most about this many full ones."""
BOOKS_CLOSE_MS = 5_000
STOP_MAX_MS = 30_000
"""A clean end that takes longer is none: the tablets are away for as long as it lasts."""


class TServerProcess:
    """Assembles and runs one tserver. ``die`` is called when the process must not go on."""

    def __init__(
        self,
        settings: Settings,
        coordination: Coordination,
        metadata: MetadataTable,
        clock: Clock,
        die: Die = end_process,
    ) -> None:
        """Bind an address and open the session. Raises OSError, TransientError."""
        self._settings = settings
        self._coordination = coordination
        self._metadata = metadata
        self._clock = clock
        self._die = die
        own = settings.instance
        hello = Hello(PROTOCOL_VERSION, own.instance_id, own.name, SESSION_KIND)
        self._service = TServerService()
        eighth = max(1, settings.rpc.threads_max // 8)
        bounds = {"replicate": replicate_calls(settings), "offer_segments": eighth, "take_segments": eighth}
        entrance = entrance_of(settings)
        self._rights = TableRights(entrance.accepted, clock)
        self._server = RpcServer(
            "TServer", self._service, hello, settings.rpc, clock, concurrency=bounds, entrance=entrance
        )
        self._pool = RpcPool(hello, settings.rpc, clock, process_credentials(settings))
        self._session = coordination.open_session(SESSION_KIND, self._server.address)
        self._ended = threading.Event()
        self._parts, self._link = self._assemble()

    @property
    def address(self) -> str:
        """``host:port`` where it answers."""
        return self._server.address

    @property
    def session(self) -> Session:
        """Its session."""
        return self._session

    @property
    def session_id(self) -> str:
        """Its session's id."""
        return self._session.session_id

    @property
    def parts(self) -> Parts:
        """What it is made of."""
        return self._parts

    def _assemble(self) -> tuple[Parts, MasterLink]:
        settings, clock, session, die = self._settings, self._clock, self._session, self._die
        tserver = settings.tserver
        persistence = SessionRetries(session, clock, random.Random())
        context = WriteContext(clock, view_of(read_config(self._coordination)))
        registry = Registry()
        sorter = Sorter(clock, die)
        link = MasterLink(self._coordination, self._pool, session.session_id, clock, die)
        keeper = WalBookkeeper(self._metadata, persistence, clock, tserver.needed_interval_ms, link.nudge, die)
        opener = WalOpener(settings, session, clock, keeper)
        committer = GroupCommitter(opener.open, keeper, session.check, clock, commit_limits(settings), die)
        path = CommitPath(committer, context, settings.rpc.timeout_ms)
        configuration = Configuration(self._coordination, path, registry, clock, die)
        flusher = Flusher(registry, path, keeper, self._metadata, persistence, clock, flush_limits(settings), die)
        compactor = Compactor(registry, flusher, self._metadata, persistence, clock, die)
        loader = Loader(
            registry,
            path,
            keeper,
            flusher,
            self._metadata,
            session,
            settings.tables_dir,
            configuration.table,
            sorter.later,
            books_flight_ms(settings),
        )
        slots = StreamLimits(tserver.streams_max, tserver.peer_streams_max)
        streams = Streams(clock, tserver.stream_idle_timeout_ms, slots, waiting_max=replicate_calls(settings) // 2)
        index = ReceivedIndex(self._metadata, persistence, clock, die)
        marks = OriginMarks(self._metadata, persistence, clock)
        admission = Admission(settings.instance.instance_id, configuration, streams, index, marks)
        receiving = ReceivingTablets(self._metadata, self.address, self._pool, settings.rpc.timeout_ms)
        limits = service_limits(settings)
        peer_limits = PeerLimits(limits.batch, clock)
        local = LocalApply(registry, flusher, admission, path)
        retry = ShareRetry(clock, replicate_calls(settings) // 4)
        order = MessageOrder(streams, receiving, path)
        receiver = Receiver(admission, order, ShareDelivery(receiving, retry, local.begin), local, peer_limits)
        relay_logs = RelayLogs(
            settings.wal_dir / session.session_id, settings.instance.instance_id, session.session_id, clock
        )
        exclusive = ExclusiveTablets(registry, loader, flusher, path)
        bulk_loader = BulkLoader(exclusive, index, relay_logs, self._metadata, persistence, link.nudge, die)
        uploads = SegmentUploads(
            incoming_dir(settings.tables_dir) / self.session_id, clock, tserver.stream_idle_timeout_ms, die
        )
        segment_receiver = SegmentReceiver(admission, receiving, receiver, bulk_loader, uploads, peer_limits)
        worker = ReplicationWorker(settings, self._metadata, self._coordination, self._pool, link.report, self.address)
        parts = Parts(
            own_instance_id=settings.instance.instance_id,
            session=session,
            persistence=persistence,
            registry=registry,
            path=path,
            committer=committer,
            configuration=configuration,
            keeper=keeper,
            flusher=flusher,
            compactor=compactor,
            bulk_loader=bulk_loader,
            loader=loader,
            sorter=sorter,
            admission=admission,
            receiver=receiver,
            segment_receiver=segment_receiver,
            uploads=uploads,
            streams=streams,
            index=index,
            marks=marks,
            worker=worker,
            limits=limits,
            rights=self._rights,
        )
        return parts, link

    def start(self) -> None:
        """Serve."""
        parts = self._parts
        start_thread("lease", self._watch_lease, self._die)
        self._link.start()
        parts.sorter.start()
        parts.keeper.start()
        parts.flusher.start()
        parts.compactor.start()
        parts.index.start()
        parts.uploads.start()
        parts.configuration.start()
        self._service.attach(parts)
        LOG.info("session %s serves at %s", self.session_id, self.address)
        self._server.start()

    def stop(self) -> None:
        """End cleanly; what can't be done now is left to recovery, and nothing that was acknowledged is lost."""
        parts = self._parts
        LOG.info("session %s ends", self.session_id)
        start_thread("stop", self._watch_stop, self._die)
        self._server.stop()
        parts.persistence.stop()
        parts.worker.stop()
        parts.configuration.close()
        parts.compactor.close()
        parts.flusher.close()
        parts.segment_receiver.close()
        parts.receiver.close()
        parts.uploads.close()
        parts.loader.unload_all()
        parts.committer.close()
        parts.sorter.close()
        parts.index.close()
        parts.keeper.close(BOOKS_CLOSE_MS)
        self._link.close()
        self._ended.set()
        self._session.close()
        self._pool.close()
        LOG.info("session %s has ended", self.session_id)

    def _watch_stop(self) -> None:
        if not self._clock.wait(self._ended, STOP_MAX_MS):
            self._die(f"session {self.session_id} did not end in {STOP_MAX_MS} ms; the rest is left to recovery")

    def _watch_lease(self) -> None:
        while not self._clock.wait(self._ended, LEASE_LOOK_MS):
            if not self._session.is_valid() and not self._ended.is_set():
                self._die(f"session {self.session_id} is over: others may serve its tablets by now")
                return


class WalOpener:
    """Makes the logs of one session: ``<wal dir>/<session>/<n>.wal``; names are never used again."""

    def __init__(self, settings: Settings, session: Session, clock: Clock, keeper: WalBookkeeper) -> None:
        self._directory = settings.wal_dir / session.session_id
        self._instance_id = settings.instance.instance_id
        self._session_id = session.session_id
        self._clock = clock
        self._keeper = keeper
        self._keep_free_bytes = settings.tserver.disk_reserve_bytes
        self._numbers = count(1)

    def open(self) -> WalWriter:
        """The next log, announced to the keeper of the books. Raises UnavailableError, NoSpaceError."""
        created_ms = self._clock.wall_ms()
        header = FileHeader(instance_id=self._instance_id, session_id=self._session_id, created_time_ms=created_ms)
        path = self._directory / f"{next(self._numbers):06d}{LOG_SUFFIX}"
        writer = WalWriter.create(path, header, keep_free_bytes=self._keep_free_bytes)
        self._keeper.opened(writer.uri, created_ms)
        return writer


def commit_limits(settings: Settings) -> CommitLimits:
    """Bounds of the commit thread."""
    tserver = settings.tserver
    return CommitLimits(
        queue_bytes_max=tserver.commit_queue_bytes_max,
        wal_roll_bytes=tserver.wal_roll_bytes,
        wal_roll_age_ms=tserver.wal_roll_age_ms,
        wal_sync_interval_ms=tserver.wal_sync_interval_ms,
    )


def flush_limits(settings: Settings) -> FlushLimits:
    """When tablets are flushed."""
    memtable_bytes = settings.tserver.memtable_flush_bytes
    return FlushLimits(memtable_bytes, MEMORY_MEMTABLES * memtable_bytes, SEALED_LOG_AGE_MS)


def service_limits(settings: Settings) -> ServiceLimits:
    """Bounds of what callers may ask for."""
    tserver = settings.tserver
    batch = BatchLimits(
        row_bytes_max=tserver.row_bytes_max,
        column_bytes_max=tserver.row_bytes_max,
        value_bytes_max=tserver.value_bytes_max,
        future_ms=tserver.future_timestamp_max_ms,
        message_bytes_max=settings.rpc.frame_bytes_max,
    )
    return ServiceLimits(batch, tserver.scan_page_bytes_max)


def replicate_calls(settings: Settings) -> int:
    """Messages of other clusters that are dealt with at once."""
    return max(1, settings.rpc.threads_max // 2)
