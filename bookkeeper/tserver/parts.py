"""The collaborators of one tserver, grouped by their purpose."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.clock import Clock
from bookkeeper.coordination.coordination_protocol import Session
from bookkeeper.errors import CorruptionError, UnavailableError
from bookkeeper.model import Extent, StreamKey
from bookkeeper.origins import RootLog
from bookkeeper.rpc.contract import messages
from bookkeeper.rpc.contract.messages import FileMark, ServedTablets, SplitPoint, TabletProblem
from bookkeeper.security.secret_store import SecretStore
from bookkeeper.storage.replicas.manifest import ReplicaKey
from bookkeeper.tserver.books.received_index import ReceivedIndex
from bookkeeper.tserver.books.wal_bookkeeper import WalBookkeeper
from bookkeeper.tserver.bulk.bulk_parts import BulkParts
from bookkeeper.tserver.client_requests import ClientRequests
from bookkeeper.tserver.commit.group_committer import GroupCommitter
from bookkeeper.tserver.leading.led_tablets import LedTablets
from bookkeeper.tserver.leading.namer import Namer
from bookkeeper.tserver.leading.senders import Senders
from bookkeeper.tserver.maintenance.compactor import Compactor
from bookkeeper.tserver.maintenance.flusher import Flusher
from bookkeeper.tserver.maintenance.late_uses import LateUses
from bookkeeper.tserver.maintenance.loader import Loader
from bookkeeper.tserver.maintenance.sorter import Sorter
from bookkeeper.tserver.maintenance.tail_merger import TailMerger
from bookkeeper.tserver.origins.origin_marks import OriginMarks
from bookkeeper.tserver.receive.message_admission import MessageAdmission
from bookkeeper.tserver.receive.receive_streams import Streams
from bookkeeper.tserver.receive.receiver import Receiver
from bookkeeper.tserver.receive.receiving_tablets import ReceivingTablets
from bookkeeper.tserver.replicas.candidacies import Candidacies
from bookkeeper.tserver.replicas.disk_room import DiskRoom
from bookkeeper.tserver.replicas.file_checker import FileChecker
from bookkeeper.tserver.replicas.file_repair import FileRepair, Resolve
from bookkeeper.tserver.replicas.file_source import FileSource
from bookkeeper.tserver.replicas.held_replica import HeldReplica
from bookkeeper.tserver.replicas.held_replicas import HeldReplicas
from bookkeeper.tserver.replicas.replica_collector import ReplicaCollector
from bookkeeper.tserver.replicas.replica_contents import ReplicaContents
from bookkeeper.tserver.replicas.replica_divider import ReplicaDivider
from bookkeeper.tserver.replicas.replica_receiver import ReplicaReceiver
from bookkeeper.tserver.replicas.replica_stores import ReplicaStores
from bookkeeper.tserver.replicas.served_logs import ServedLogs
from bookkeeper.tserver.replicas.wire_forms import replica_info, with_incoming
from bookkeeper.tserver.shipping.worker import ReplicationWorker
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.tablets.tablet_registry import Registry
from bookkeeper.tserver.write.commit_path import CommitPath
from bookkeeper.tserver.write.configuration import Configuration
from bookkeeper.tserver.write.control_submissions import ForgetRoots, ForgetStreams, SyncSubmission
from bookkeeper.tserver.write.server_times import ServerTimes


class WriteParts(Struct, frozen=True):
    """From a submission to a durable, announced record; and the configuration that it is written under."""

    path: CommitPath
    committer: GroupCommitter
    bookkeeper: WalBookkeeper
    configuration: Configuration
    times: ServerTimes

    def positions(self, table_id: str) -> list[FileMark]:
        """The last record of the table in each own log that has one, synced; includes every acknowledged record."""
        self.path.commit(SyncSubmission())
        return [FileMark(file, offset) for file, offset in self.bookkeeper.positions(table_id)]


class LeadingParts(Struct, frozen=True):
    """The tablets with replicas that this host leads: copies to other hosts, names in the books, and the tails of logs
    that were given up.
    """

    led: LedTablets
    senders: Senders
    namer: Namer
    tails: TailMerger

    def start(self) -> None:
        """Start the threads."""
        self.senders.start()
        self.namer.start()
        self.tails.start()

    def close(self) -> None:
        """End the threads; the next leader continues."""
        self.tails.close()
        self.senders.close()
        self.namer.close()

    def status(self) -> Mapping[str, str]:
        """Facts for operators: what other hosts got from this one since the start."""
        sent = self.senders.counters.sent
        return {
            "led_tablets": str(len(self.led.all())),
            "names_put": str(self.namer.names_put),
            "tails_merged": str(self.tails.tails_merged),
            "segments_sent": str(sent.segments),
            "segment_files_sent": str(sent.files),
            "segment_rows_sent": str(sent.rows),
            "segment_bytes_sent": str(sent.payload_bytes),
        }


class TabletParts(Struct, frozen=True):
    """The tablets served here, and the jobs that work on them."""

    registry: Registry
    loader: Loader
    flusher: Flusher
    compactor: Compactor
    sorter: Sorter
    leading: LeadingParts
    late_uses: LateUses
    resolve: Resolve
    """Deals with damaged segments on this host."""
    writes_wait: Callable[[], bool]
    """Whether the last write was refused for lack of disk."""
    logs_are_apart: bool
    """Whether other hosts don't share the disk of the logs."""
    unobtainable: Callable[[], Collection[str]]
    """Damaged files of replicas that no other host has."""

    def served(self) -> ServedTablets:
        """The tablets served here, with the problems of some of them."""
        tablets = self.registry.all()
        problems = [TabletProblem(t.extent, why) for t in tablets if (why := "; ".join(self._problems(t)))]
        led = [tablet for tablet in tablets if self.leading.led.find(tablet) is not None]
        is_full, unobtainable = self.log_is_full(), frozenset(self.unobtainable())
        leaving = [tablet for tablet in led if is_full or tablet.lacks_room or self._is_stuck(tablet, unobtainable)]
        without_room = tuple(tablet.extent for tablet in leaving)
        return ServedTablets(tuple(tablet.extent for tablet in tablets), tuple(problems), without_room)

    def log_is_full(self) -> bool:
        """Whether writes are refused for lack of disk that other hosts don't share."""
        return self.logs_are_apart and self.writes_wait()

    def _problems(self, tablet: ServedTablet) -> Iterator[str]:
        """The problems of a tablet in words, also those of a full disk."""
        yield from tablet.problems
        if tablet.lacks_room:
            yield "its flush finds no room on the disk of its files: make room there, and it continues by itself"
        if self.writes_wait():
            yield "there was no room for the last write on the disk of the logs: make room there, and writes go on"

    def own_work_waits(self) -> bool:
        """Whether the last write or flush found no room on this host's own disk."""
        led = (tablet for tablet in self.registry.all() if self.leading.led.find(tablet) is not None)
        return self.log_is_full() or any(tablet.lacks_room for tablet in led)

    def _is_stuck(self, tablet: ServedTablet, unobtainable: Collection[str]) -> bool:
        """Whether a led tablet has a damaged file that only this host has: no state with it is ever named. The next
        leader begins at the named state, and its logs have the rest.
        """
        chain = self.leading.led.find(tablet)
        return chain is not None and not chain.held.replica.damaged.isdisjoint(unobtainable)

    def split_point(self, extent: Extent, row_bytes_max: int) -> SplitPoint:
        """The row near the middle of a tablet's segments. Raises NotServingError, CorruptionError, UnavailableError."""
        data = self.registry.serving(extent).data
        try:
            middle = data.middle(row_bytes_max)
        except CorruptionError as error:
            self.resolve(error, 0)
            raise UnavailableError(f"a sound copy of a segment of tablet {extent} has just come: ask again") from error
        return SplitPoint(middle.size_bytes, middle.shared_bytes, middle.row, middle.reason)


class ReceiveParts(Struct, frozen=True):
    """Ranges of other clusters, as records."""

    admission: MessageAdmission
    receiver: Receiver
    tablets: ReceivingTablets
    streams: Streams
    index: ReceivedIndex
    marks: OriginMarks


class FileParts(Struct, frozen=True):
    """Files of replicas are linked, read, and copied from the Volume and to it, when the master asks."""

    divider: ReplicaDivider
    contents: ReplicaContents
    stores: ReplicaStores


class DamageParts(Struct, frozen=True):
    """Damaged files of replicas are found, and replaced by sound copies."""

    repair: FileRepair
    source: FileSource
    checker: FileChecker

    def start(self) -> None:
        """Start the threads."""
        self.repair.start()
        self.checker.start()

    def close(self) -> None:
        """End the threads."""
        self.checker.close()
        self.repair.close()


class ReplicaParts(Struct, frozen=True):
    """The replicas on this host's own disk."""

    held: HeldReplicas
    receiver: ReplicaReceiver
    collector: ReplicaCollector
    files: FileParts
    damage: DamageParts
    logs: ServedLogs
    candidacies: Candidacies | None
    """None where the master asks (``replicas.election``)."""
    room: DiskRoom
    secrets: SecretStore
    clock: Clock

    def start(self) -> None:
        """Start the threads."""
        self.receiver.start()
        self.collector.start()
        self.damage.start()
        if self.candidacies is not None:
            self.candidacies.start()

    def close(self) -> None:
        """End the threads."""
        self.receiver.close()
        self.collector.close()
        self.damage.close()
        if self.candidacies is not None:
            self.candidacies.close()

    def status(self) -> Mapping[str, str]:
        """Facts for operators."""
        return {**self.receiver.status(), **self.damage.checker.status(), **self.damage.repair.status()}

    def infos(self, table_id: str, with_segments: bool, own_work_waits: bool) -> messages.HeldReplicas:
        """The replicas on this host; ``table_id`` empty = of all tables. ``own_work_waits``: writes or flushes of this
        host found no room on its disk. For all tables also the secrets of this host, without their keys.
        """
        replicas = [held for held in self.held.all() if table_id in ("", held.key.table_id)]
        found = self._infos(replicas, with_segments, self.held.damaged, own_work_waits)
        if table_id:
            return found
        return replace(found, secrets=tuple(messages.SecretMark(*mark) for mark in self.secrets.marks()))

    def tablet_info(self, table_id: str, directory: str, own_work_waits: bool) -> messages.HeldReplicas:
        """The replica of the tablet in this directory, with its segments; none is fine. Raises InvalidInputError."""
        key = ReplicaKey(table_id, directory).check()
        damaged = {one: error for one, error in self.held.damaged.items() if one == key}
        held = None if damaged else self.held.find(key)
        return self._infos([] if held is None else [held], True, damaged, own_work_waits)

    def _infos(
        self,
        replicas: Sequence[HeldReplica],
        with_segments: bool,
        damaged: Mapping[ReplicaKey, CorruptionError],
        own_work_waits: bool,
    ) -> messages.HeldReplicas:
        incoming = self.receiver.received_bytes()
        if with_segments:
            found = [replica_info(one.manifest, True, incoming.get(one.key, 0), one.names_in_use()) for one in replicas]
        else:
            found = [with_incoming(one.info, incoming.get(one.key, 0)) for one in replicas]
        reasons = {str(key): error.message for key, error in damaged.items()}
        problem = self.room.problem(own_work_waits) or None
        return messages.HeldReplicas(tuple(found), reasons, problem, self.clock.wall_ms())


class Parts(Struct, frozen=True):
    """All of them. ``replicas``: None where another process of the directory has the host."""

    session: Session
    clients: ClientRequests
    writing: WriteParts
    tablets: TabletParts
    receiving: ReceiveParts
    bulk: BulkParts
    worker: ReplicationWorker
    replicas: ReplicaParts | None

    def forget_streams(self, streams: Sequence[StreamKey]) -> None:
        """These streams have ended for good (R20), and their ``~recv_`` cells are gone. A tablet whose load begins
        after this call ignores their marks; this waits for loads that began before.
        """
        self.receiving.streams.forget(set(streams))
        self.receiving.index.forget(streams)
        self.tablets.loader.settle()
        self.writing.path.commit(ForgetStreams(self.tablets.registry.all(), streams))

    def forget_roots(self, logs: Sequence[RootLog]) -> None:
        """No record of these logs is under way (R22), and their ``~root_`` cells are gone; loads as for streams."""
        self.receiving.marks.forget(logs)
        self.tablets.loader.settle()
        self.writing.path.commit(ForgetRoots(self.tablets.registry.all(), frozenset(logs)))

    def status(self) -> Mapping[str, str]:
        """Facts for operators: counts, bytes, offsets."""
        tablets = self.tablets.registry.all()
        replicas = {} if self.replicas is None else self.replicas.status()
        return {
            **replicas,
            "session": self.session.session_id,
            "tablets": str(len(tablets)),
            "memory_bytes": str(sum(tablet.data.memory_bytes for tablet in tablets)),
            "segments": str(sum(len(tablet.data.segments) for tablet in tablets)),
            "flushes": str(self.tablets.flusher.flushes_done),
            "merges": str(self.tablets.compactor.merges_done),
            "wal": self.writing.path.wal_name,
            "queued_bytes": str(self.writing.committer.queued_bytes),
            "config_generation": str(self.writing.path.context.view.generation),
            "books_updates": str(self.writing.bookkeeper.updates_written),
            "open_streams": str(len(self.receiving.streams)),
            **self.tablets.leading.status(),
        }
