"""Builds the parts of one tserver, in the order in which a write passes them.

The order in which they start and end is in ``process``.
"""

from __future__ import annotations

import random
import threading
from functools import partial

from msgspec import Struct

from bookkeeper.bulk.adoption import INCOMING
from bookkeeper.clock import Clock
from bookkeeper.config.sections import Settings
from bookkeeper.config.table_properties import TableProperties
from bookkeeper.coordination.config_tree import read_config
from bookkeeper.coordination.coordination_protocol import Coordination, Session
from bookkeeper.coordination.host_times import raise_times, times_of
from bookkeeper.metadata.flight import books_flight_ms
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.runtime.threads import BackgroundThread, Die
from bookkeeper.security.secret_store import SecretStore
from bookkeeper.storage.replicas.host_store import HostStore
from bookkeeper.storage.replicas.incoming_files import IncomingFiles
from bookkeeper.storage.tablet.tablet_settings import BatchLimits
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.writing.block_merge import MergeLimits
from bookkeeper.tserver.books.received_index import ReceivedIndex
from bookkeeper.tserver.books.tablet_books import TabletBooks
from bookkeeper.tserver.books.wal_bookkeeper import WalBookkeeper
from bookkeeper.tserver.bulk.bulk_loader import BulkLoader
from bookkeeper.tserver.bulk.bulk_parts import BulkParts
from bookkeeper.tserver.bulk.exclusive_tablets import ExclusiveTablets
from bookkeeper.tserver.bulk.hosted_files import HostedImports
from bookkeeper.tserver.bulk.relay_log import RelayLogs
from bookkeeper.tserver.bulk.segment_receiver import SegmentReceiver
from bookkeeper.tserver.bulk.segment_uploads import SegmentUploads
from bookkeeper.tserver.bulk.session_holds import SessionHolds
from bookkeeper.tserver.client_requests import ClientRequests, RequestLimits
from bookkeeper.tserver.commit.commit_limits import CommitLimits
from bookkeeper.tserver.commit.group_committer import GroupCommitter
from bookkeeper.tserver.commit.wal_opener import WalOpener
from bookkeeper.tserver.leading.chain_states import ChainStates
from bookkeeper.tserver.leading.copy_pace import CopyPace
from bookkeeper.tserver.leading.host_calls import HostCalls, link_of
from bookkeeper.tserver.leading.led_tablets import LedTablets
from bookkeeper.tserver.leading.namer import Namer
from bookkeeper.tserver.leading.senders import Senders
from bookkeeper.tserver.leading.terms import Terms
from bookkeeper.tserver.maintenance.compactor import Compactor
from bookkeeper.tserver.maintenance.flush_schedule import FlushLimits, FlushSchedule
from bookkeeper.tserver.maintenance.flusher import Flusher
from bookkeeper.tserver.maintenance.late_uses import LateUses
from bookkeeper.tserver.maintenance.loader import Loader
from bookkeeper.tserver.maintenance.sorter import Sorter
from bookkeeper.tserver.maintenance.stale_reads import StaleReads
from bookkeeper.tserver.maintenance.tablet_opener import TabletMaker, TabletOpener
from bookkeeper.tserver.maintenance.tablet_states import NamedStates, StatesByTablet
from bookkeeper.tserver.maintenance.tail_merger import TailMerger
from bookkeeper.tserver.master_notices import MasterLink
from bookkeeper.tserver.origins.origin_marks import OriginMarks
from bookkeeper.tserver.parts import (
    DamageParts,
    FileParts,
    LeadingParts,
    Parts,
    ReceiveParts,
    ReplicaParts,
    TabletParts,
    WriteParts,
)
from bookkeeper.tserver.receive.message_admission import MessageAdmission
from bookkeeper.tserver.receive.message_decoding import PeerLimits
from bookkeeper.tserver.receive.message_order import MessageOrder
from bookkeeper.tserver.receive.receive_streams import StreamLimits, Streams
from bookkeeper.tserver.receive.receiver import LocalApply, Receiver
from bookkeeper.tserver.receive.receiving_tablets import ReceivingTablets
from bookkeeper.tserver.receive.slice_delivery import SliceDelivery
from bookkeeper.tserver.receive.slice_retry import SliceRetry
from bookkeeper.tserver.replicas.candidacies import Candidacies
from bookkeeper.tserver.replicas.disk_room import DiskRoom
from bookkeeper.tserver.replicas.file_checker import CheckLimits, FileChecker
from bookkeeper.tserver.replicas.file_repair import FileRepair, unmarked, unresolved
from bookkeeper.tserver.replicas.file_source import FileSource
from bookkeeper.tserver.replicas.held_replicas import HeldReplicas
from bookkeeper.tserver.replicas.replica_books import ReplicaBooks
from bookkeeper.tserver.replicas.replica_collector import ReplicaCollector
from bookkeeper.tserver.replicas.replica_contents import ReplicaContents
from bookkeeper.tserver.replicas.replica_divider import ReplicaDivider
from bookkeeper.tserver.replicas.replica_receiver import ReceiveLimits, ReplicaReceiver
from bookkeeper.tserver.replicas.replica_stores import ReplicaStores
from bookkeeper.tserver.replicas.served_logs import ServedLogs
from bookkeeper.tserver.shipping.own_log import OwnLogs
from bookkeeper.tserver.shipping.worker import ReplicationWorker
from bookkeeper.tserver.tablets.block_targets import view_of
from bookkeeper.tserver.tablets.tablet_registry import Registry
from bookkeeper.tserver.write.commit_path import CommitPath
from bookkeeper.tserver.write.configuration import Configuration
from bookkeeper.tserver.write.server_times import LimitedTimes, ServerTimes, UnlimitedTimes
from bookkeeper.tserver.write.write_context import WriteContext

SEALED_LOG_AGE_MS = 30_000
"""A tablet that needs a log which was sealed this long ago is flushed, so that the file can go."""

BLOCK_ROOM_SHARE = 8
"""This part of a frame (1/8) is not for the records of one block."""

MEMORY_MEMTABLES = 8
"""Memtables of all tablets together hold at most about this many full ones."""


class SharedStores(Struct, frozen=True):
    """The stores that all processes of a cluster share: files, configuration with sessions, books. ``logs`` has those
    of all hosts, ``own_logs`` is where this session makes its own: the cluster's Volume, or the disk of its host.
    """

    volume: Volume
    logs: Volume
    own_logs: Volume
    coordination: Coordination
    metadata: MetadataTable

    @property
    def logs_are_apart(self) -> bool:
        """Whether this session makes its logs on a disk that other hosts don't share."""
        return self.own_logs is not self.volume


class Environment(Struct, frozen=True):
    """The settings and connections of the process, which its parts share. ``address``: where it answers; ``retries``:
    of writes to the metadata table, for as long as the session is valid; ``die`` ends the process; ``host``: the disk
    of replicas, None where another process of the directory has it.
    """

    settings: Settings
    stores: SharedStores
    clock: Clock
    session: Session
    address: str
    pool: RpcPool
    master: MasterLink
    retries: SessionRetries
    die: Die
    host: HostStore | None = None


def assemble(env: Environment) -> Parts:
    """Open the first log, and build all parts; no part but the committer runs yet. Raises TransientError."""
    registry = Registry()
    limits = request_limits(env.settings)
    peer_limits = PeerLimits(limits.batch, env.clock)
    own_logs = OwnLogs(env.session.session_id, are_on_host=env.stores.logs_are_apart)
    writing = _writing(env, registry, own_logs)
    link = partial(link_of, env.pool, env.settings.rpc)
    hosts = HostCalls(env.stores.coordination, link, env.clock)
    replicas = None if env.host is None else _replicas(env, env.host, hosts)
    held = None if replicas is None else replicas.held
    sorter = Sorter(env.clock, env.die)
    maker = TabletMaker(env.stores.volume, writing.configuration.table, sorter.later, books_flight_ms(env.settings))
    tablets = _tablets(env, registry, writing, replicas, hosts, sorter, maker, own_logs)
    receiving = _receiving(env, writing, tablets, peer_limits)
    return Parts(
        session=env.session,
        clients=ClientRequests(
            registry,
            tablets.flusher,
            writing.path,
            env.session,
            limits,
            _stale_reads(env, held, maker),
            tablets.resolve,
        ),
        writing=writing,
        tablets=tablets,
        receiving=receiving,
        bulk=_bulk(env, writing, tablets, receiving, peer_limits),
        worker=ReplicationWorker(
            env.settings,
            env.stores.logs,
            env.stores.metadata,
            env.stores.coordination,
            env.pool,
            env.master.report,
            env.address,
            own_logs,
            lambda: writing.path.context.view.destinations,
            env.clock,
        ),
        replicas=replicas,
    )


def _writing(env: Environment, registry: Registry, own_logs: OwnLogs) -> WriteParts:
    settings, clock, session = env.settings, env.clock, env.session
    times = _times(env)
    context = WriteContext(clock, view_of(read_config(env.stores.coordination)), times)
    interval_ms = settings.tserver.needed_interval_ms
    bookkeeper = WalBookkeeper(
        env.stores.own_logs, env.stores.metadata, env.retries, clock, interval_ms, env.master.nudge, env.die, own_logs
    )
    opener = WalOpener(
        env.stores.own_logs,
        settings.instance.instance_id,
        session.session_id,
        clock,
        settings.tserver.disk_reserve_bytes,
        bookkeeper.opened,
    )
    committer = GroupCommitter(opener.open, bookkeeper, session.check, clock, commit_limits(settings), env.die)
    path = CommitPath(committer, context, settings.rpc.timeout_ms)
    configuration = Configuration(env.stores.coordination, path, registry, clock, env.die)
    return WriteParts(path, committer, bookkeeper, configuration, times)


def _times(env: Environment) -> ServerTimes:
    """The time of records: with a limit where others may give up the logs."""
    if env.host is None or not env.stores.logs_are_apart:
        return UnlimitedTimes(env.clock)
    raise_limit = partial(raise_times, env.stores.coordination, env.session, env.host.identity.name)
    return LimitedTimes(env.clock, raise_limit, env.settings.coordination.session_lease_ms / 2, env.die)


def _stale_reads(env: Environment, held: HeldReplicas | None, maker: TabletMaker) -> StaleReads | None:
    if held is None:
        return None
    volume = held.store.volume
    return StaleReads(
        held,
        ReplicaBooks(env.stores.metadata).row,
        lambda manifest, refs: maker.data_of(manifest.extent, manifest.key.directory, refs, volume),
        env.clock,
    )


def _tablets(
    env: Environment,
    registry: Registry,
    writing: WriteParts,
    replicas: ReplicaParts | None,
    hosts: HostCalls,
    sorter: Sorter,
    maker: TabletMaker,
    own_logs: OwnLogs,
) -> TabletParts:
    settings, clock = env.settings, env.clock
    path, bookkeeper = writing.path, writing.bookkeeper
    books = TabletBooks(env.stores.metadata, env.retries, own_logs.note_named)
    led = LedTablets()
    states = StatesByTablet(NamedStates(books, env.die), ChainStates(led, books))
    schedule = FlushSchedule(clock, flush_limits(settings))
    flusher = Flusher(registry, path, bookkeeper, states, schedule, BackgroundThread("flusher", clock, env.die))
    resolve = unresolved if replicas is None else replicas.damage.repair.resolve
    compactor = Compactor(registry, flusher, states, resolve, clock, env.die)
    terms = Terms(None if replicas is None else replicas.held, led)
    latest_in = partial(times_of, env.stores.coordination, env.session)
    opener = TabletOpener(env.stores.metadata, env.session, env.stores.logs, maker, terms, writing.times, latest_in)
    loader = Loader(registry, path, bookkeeper, flusher, opener, led, env.stores.coordination.leader, clock)

    def pace_of(closing: threading.Event) -> CopyPace:
        share = settings.replicas.copy_share_percent / 100
        return CopyPace(clock, share, path.context.is_busy, partial(clock.wait, closing))

    senders = Senders(
        led,
        hosts,
        clock,
        random.Random(),
        env.die,
        env.session.is_valid,
        unmarked if replicas is None else replicas.damage.repair.suspect_named,
        pace_of,
    )
    leading = _leading(env, writing, led, books, senders)

    def writes_wait() -> bool:
        return path.is_full

    def unobtainable() -> frozenset[str]:
        return frozenset() if replicas is None else replicas.damage.repair.unobtainable

    late_uses = LateUses(registry, books, env.stores.logs, clock, env.die)
    return TabletParts(
        registry,
        loader,
        flusher,
        compactor,
        sorter,
        leading,
        late_uses,
        resolve,
        writes_wait,
        env.stores.logs_are_apart,
        unobtainable,
    )


def _leading(
    env: Environment, writing: WriteParts, led: LedTablets, books: TabletBooks, senders: Senders
) -> LeadingParts:
    def properties(table_id: str) -> TableProperties:
        return writing.configuration.table(table_id).properties

    namer = Namer(led, books, properties, env.clock, env.die)
    tails = TailMerger(led, books, writing.path, env.stores.logs, env.clock, env.die)
    return LeadingParts(led, senders, namer, tails)


def _receiving(env: Environment, writing: WriteParts, tablets: TabletParts, limits: PeerLimits) -> ReceiveParts:
    settings, clock = env.settings, env.clock
    tserver, calls = settings.tserver, replicate_calls(settings)
    slots = StreamLimits(tserver.streams_max, tserver.peer_streams_max)
    streams = Streams(clock, tserver.stream_idle_timeout_ms, slots, waiting_max=calls // 2)
    index = ReceivedIndex(env.stores.metadata, env.retries, clock, env.die)
    marks = OriginMarks(env.stores.metadata, env.retries, clock)
    admission = MessageAdmission(settings.instance.instance_id, writing.configuration, streams, index, marks)
    receiving = ReceivingTablets(env.stores.metadata, env.address, env.pool, settings.rpc.timeout_ms)
    local = LocalApply(tablets.registry, tablets.flusher, admission, writing.path)
    delivery = SliceDelivery(receiving, SliceRetry(clock, calls // 4), local.begin)
    receiver = Receiver(admission, MessageOrder(streams, receiving, writing.path), delivery, local, limits)
    return ReceiveParts(admission, receiver, receiving, streams, index, marks)


def _bulk(
    env: Environment, writing: WriteParts, tablets: TabletParts, receiving: ReceiveParts, limits: PeerLimits
) -> BulkParts:
    settings, session_id = env.settings, env.session.session_id
    holds = SessionHolds(env.stores.metadata, env.retries, session_id)
    relay_logs = RelayLogs(env.stores.volume, holds, settings.instance.instance_id, session_id, env.clock)
    exclusive = ExclusiveTablets(tablets.registry, tablets.loader, tablets.flusher, writing.path)
    loader = BulkLoader(
        env.stores.volume,
        exclusive,
        receiving.index,
        holds,
        relay_logs,
        HostedImports(env.stores.volume, tablets.leading.led, env.retries),
        TabletBooks(env.stores.metadata, env.retries),
        env.master.nudge,
        env.die,
    )
    directory, idle_timeout_ms = f"{INCOMING}/{session_id}", settings.tserver.stream_idle_timeout_ms
    uploads = SegmentUploads(env.stores.volume, holds, directory, env.clock, idle_timeout_ms, env.die)
    receiver = SegmentReceiver(
        env.stores.volume, receiving.admission, receiving.tablets, receiving.receiver, loader, uploads, limits
    )
    return BulkParts(loader, receiver, uploads)


def _replicas(env: Environment, host: HostStore, hosts: HostCalls) -> ReplicaParts:
    settings, clock = env.settings, env.clock
    held, books = HeldReplicas(host), ReplicaBooks(env.stores.metadata)
    limits = ReceiveLimits(replicate_calls(settings), settings.tserver.stream_idle_timeout_ms)
    incoming, room = IncomingFiles(host), DiskRoom(host.free_bytes, settings.tserver.disk_reserve_bytes, clock)
    receiver = ReplicaReceiver(held, incoming, books.row, clock, limits, room, env.die)
    collector = ReplicaCollector(held, books, clock, env.die)
    stands = settings.replicas.election == "coordination"
    candidacies = Candidacies(held, env.stores.coordination, env.session, clock, env.die) if stands else None
    logs = ServedLogs(host, env.session.session_id, books.marked)
    logs.prune()
    repair = FileRepair(held, incoming, hosts.find, room, clock, env.die)
    check = CheckLimits(settings.replicas.check_interval_ms, settings.replicas.check_bytes_max)
    return ReplicaParts(
        held,
        receiver,
        collector,
        FileParts(
            ReplicaDivider(held, books.named),
            ReplicaContents(held),
            ReplicaStores(held, books.named, env.stores.volume),
        ),
        DamageParts(
            repair,
            FileSource(held, repair.suspect),
            FileChecker(held, repair.suspect, check, clock, env.die),
        ),
        logs,
        candidacies,
        room,
        SecretStore(settings.cluster_directory, clock),
        clock,
    )


def commit_limits(settings: Settings) -> CommitLimits:
    """Bounds of the commit threads. A block leaves room in a frame for its origins, and a message's other fields: a
    peer with the same limits takes it.
    """
    tserver = settings.tserver
    frame_bytes = settings.rpc.frame_bytes_max
    return CommitLimits(
        queue_bytes_max=tserver.commit_queue_bytes_max,
        wal_roll_bytes=tserver.wal_roll_bytes,
        wal_roll_age_ms=tserver.wal_roll_age_ms,
        wal_sync_interval_ms=tserver.wal_sync_interval_ms,
        merge=MergeLimits(block_bytes_max=frame_bytes - frame_bytes // BLOCK_ROOM_SHARE),
    )


def flush_limits(settings: Settings) -> FlushLimits:
    """Thresholds above which tablets are flushed."""
    memtable_bytes = settings.tserver.memtable_flush_bytes
    return FlushLimits(memtable_bytes, MEMORY_MEMTABLES * memtable_bytes, SEALED_LOG_AGE_MS)


def request_limits(settings: Settings) -> RequestLimits:
    """Bounds of requests."""
    tserver = settings.tserver
    batch = BatchLimits(
        row_bytes_max=tserver.row_bytes_max,
        column_bytes_max=tserver.row_bytes_max,
        value_bytes_max=tserver.value_bytes_max,
        future_ms=tserver.future_timestamp_max_ms,
        message_bytes_max=settings.rpc.frame_bytes_max,
    )
    return RequestLimits(batch, tserver.scan_page_bytes_max)


def replicate_calls(settings: Settings) -> int:
    """Messages of other clusters that are processed at the same time."""
    return max(1, settings.rpc.threads_max // 2)
