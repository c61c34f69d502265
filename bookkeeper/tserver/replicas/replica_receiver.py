"""Takes segments from other hosts: offers, their content, and the moment from which a segment counts.

The order of an offer: it is possible (``offer_checks``), the books agree with a placement or term that is new here, the
machine accepts it, there is room. Then content comes in order, file by file. When every file is complete, durable and
right, the machine is asked again whether the segment still fits (P5), the files get their names, and the manifest has
the segment: only then the sender is told. A message that comes twice, late or in another order changes nothing.

Survives kill -9: the received bytes of files. A sender that offers the segment again learns from which byte to go on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.errors import (
    BookkeeperError,
    CorruptionError,
    InvalidInputError,
    NoSpaceError,
    NotServingError,
    StreamExpiredError,
)
from bookkeeper.model import Extent
from bookkeeper.replicas.events import ContentArrived, ContentFailed, LeaderNamed, OfferArrived, Restarted
from bookkeeper.replicas.instructions import Answer, Decision, FlushMemory
from bookkeeper.replicas.messages import Accept, Ack, Decline, Reason, Reply
from bookkeeper.rpc.contract.messages import (
    TRANSIT_BYTES_MAX,
    FileNeed,
    ReplicaPlacement,
    SegmentAck,
    SegmentAnswer,
    SegmentOffer,
    SegmentTransit,
    StateConfirmation,
)
from bookkeeper.runtime.threads import BackgroundThread, Die
from bookkeeper.storage.replicas.incoming_files import IncomingFiles, Part
from bookkeeper.storage.replicas.manifest import HeldFile, ReplicaKey
from bookkeeper.tserver.replicas.disk_room import DiskRoom
from bookkeeper.tserver.replicas.held_replica import HeldReplica
from bookkeeper.tserver.replicas.held_replicas import HeldReplicas
from bookkeeper.tserver.replicas.offer_checks import (
    ReplicaRow,
    confirms,
    differing_file,
    files_of_offer,
    is_ahead,
    is_confirmation,
    is_known,
    key_of,
    machine_offer,
    reason_against,
)
from bookkeeper.tserver.replicas.wire_forms import accepted, acked, declined, own_placement

LOG = logging.getLogger(__name__)

ReadRow = Callable[[Extent], ReplicaRow | None]
"""Reads the row of a tablet in the books; None when there is none. Raises TransientError."""

EXPIRE_INTERVAL_MS = 5_000
PARTS_KEPT_S = 3_600.0
"""A part that no sender continues goes after this time."""


class ReceiveLimits(Struct, frozen=True):
    """``transfers_max``: of all replicas together."""

    transfers_max: int
    idle_timeout_ms: int


class _Transfer(Struct):
    """One accepted segment. Used under its lock."""

    held: HeldReplica
    offer: SegmentOffer
    files: Mapping[str, HeldFile]
    parts: dict[str, Part]
    used_ns: int
    linked: frozenset[str] = frozenset()
    """Files that another tablet of this host had: links, not sent."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_over: bool = False

    @property
    def name(self) -> _Name:
        """The segment and its sender."""
        return _Name(self.held.key, self.offer.segment.segment_id, self.offer.sender.host)

    def use(self, now_ns: int) -> None:
        """The sender used it."""
        self.used_ns = now_ns

    def link(self, names: Collection[str]) -> None:
        """These files need no content."""
        self.linked = frozenset(names)

    def end(self) -> None:
        """No later call uses it."""
        self.is_over = True

    def need(self) -> tuple[FileNeed, ...]:
        """The missing content, in the order in which it has to come."""
        return tuple(FileNeed(name, part.held_bytes) for name, part in self.parts.items() if not part.is_complete)

    def arrived(self) -> ContentArrived:
        """All content is here."""
        return ContentArrived(self.offer.segment.segment_id, self.offer.sender.host)

    def failed(self) -> ContentFailed:
        """The content does not come."""
        return ContentFailed(self.offer.segment.segment_id, self.offer.sender.host)


class _Name(Struct, frozen=True):
    key: ReplicaKey
    segment_id: int
    sender: str


def is_same_offer(transfer: SegmentOffer, offer: SegmentOffer) -> bool:
    """Whether an offer is the one of a transfer that is under way, sent again."""
    return (offer.term, offer.sender, offer.receiver, offer.segment, offer.files, offer.state) == (
        transfer.term,
        transfer.sender,
        transfer.receiver,
        transfer.segment,
        transfer.files,
        transfer.state,
    )


def arrived(held: HeldReplica, event: OfferArrived) -> Decision:
    """The decision about an offer. A host that led before needs no flush of its memory (P9): the records are in logs on
    the shared Volume, and the next leader has replayed them before it offers anything.
    """
    decision = held.apply(event)
    if any(isinstance(one, FlushMemory) for one in decision):
        held.apply(Restarted())
        decision = held.apply(event)
    return decision


class ReplicaReceiver:
    """Thread-safe. Each call takes memory for one message."""

    def __init__(
        self,
        replicas: HeldReplicas,
        incoming: IncomingFiles,
        read_row: ReadRow,
        clock: Clock,
        limits: ReceiveLimits,
        room: DiskRoom,
        die: Die,
    ) -> None:
        self._replicas = replicas
        self._read_row = read_row
        self._clock = clock
        self._limits = limits
        self._room = room
        self._incoming = incoming
        self._lock = threading.Lock()
        self._transfers: dict[_Name, _Transfer] = {}
        self._reserved = 0
        self._segments = 0
        self._content_bytes = 0
        self._thread = BackgroundThread("replica-receiver", clock, die)

    # ---- offers

    def offer(self, offer: SegmentOffer) -> SegmentAnswer:
        """Accept a segment, take it at once if nothing of it is missing, or decline it.

        Raises InvalidInputError for an offer that no sender of this cluster makes, CorruptionError when the replica
        here is damaged, TransientError.
        """
        files, key = files_of_offer(offer), key_of(offer)
        held, problem = self._believed(key, offer)
        if held is None:
            return declined(self._own(offer), None, Reason.INVALID, problem)
        name = differing_file(files, held.manifest.files)
        if name is not None:
            problem = f"{name} has other bytes here"
            return declined(own_placement(held.replica), held.replica.root, Reason.INVALID, problem)
        repeated = self._repeated(held, offer)
        if repeated is not None:
            return repeated
        with self._slot() as slot:
            reply = _reply_of(arrived(held, OfferArrived(machine_offer(offer))))
            if isinstance(reply, Decline):
                if is_confirmation(held.replica, offer, reply.reason) and offer.as_of_ms is not None:
                    self._note_time(held, offer.segment.segment_id, offer.as_of_ms)
                return declined(own_placement(held.replica), reply.root, reply.reason)
            failed = ContentFailed(offer.segment.segment_id, offer.sender.host)
            try:
                problem = self._no_room(held, slot.is_free, files, _need_of(reply))
            except BaseException:
                held.apply(failed)
                raise
            if problem:
                held.apply(failed)
                return declined(own_placement(held.replica), held.replica.root, Reason.OVERLOADED, problem)
            return self._begin(held, offer, files, _need_of(reply))

    def _believed(self, key: ReplicaKey, offer: SegmentOffer) -> tuple[HeldReplica | None, str]:
        """The replica to which the offer is made; or None, and why the books contradict it."""
        held = self._replicas.find(key)
        # P10: a placement, a term or a leader that is new to this host counts only when the books confirm it.
        if held is not None and is_known(held.replica, offer):
            return held, ""
        row = self._read_row(offer.extent)
        problem = reason_against(offer, row, self._replicas.host)
        if row is None or problem:
            return None, problem
        own = row.replicas[self._replicas.host.name]
        targets = row.targets_of(self._replicas.host.name)
        held = self._replicas.open(key, row.extent, own.placement.id, own.stage, targets)
        if held.replica.leader is None and held.replica.term == offer.term and offer.leader != self._replicas.host.name:
            held.apply(LeaderNamed(offer.leader, offer.term))
        return held, ""

    def _own(self, offer: SegmentOffer) -> ReplicaPlacement:
        host = self._replicas.host
        return ReplicaPlacement(host.name, offer.receiver.placement, host.incarnation)

    def _repeated(self, held: HeldReplica, offer: SegmentOffer) -> SegmentAnswer | None:
        """The answer to an offer whose sender has one of this segment under way; None: there is no such transfer (any
        more).
        """
        with self._lock:
            transfer = self._transfers.get(_Name(held.key, offer.segment.segment_id, offer.sender.host))
        if transfer is None:
            return None
        with transfer.lock:
            if transfer.is_over:
                return None
            if transfer.held is held and is_same_offer(transfer.offer, offer):
                transfer.use(self._clock.boot_ns())
                return accepted(held.replica, transfer.need())
            self._end(transfer)
            return None

    def _no_room(self, held: HeldReplica, is_free: bool, files: Mapping[str, HeldFile], need: tuple[str, ...]) -> str:
        """Why the host can't take the content now; empty = it can."""
        if held.replica.is_leader:
            return f"{held.replica.host} leads the tablet and merges no segment: offer it again later"
        if not is_free:
            return f"{self._limits.transfers_max} segments are on their way to this host: offer it again later"
        return self._room.refusal(sum(files[name].size_bytes for name in need))

    def _begin(
        self,
        held: HeldReplica,
        offer: SegmentOffer,
        files: Mapping[str, HeldFile],
        need: tuple[str, ...],
    ) -> SegmentAnswer:
        transfer = _Transfer(held, offer, files, {}, self._clock.boot_ns())
        with transfer.lock:
            with self._lock:
                self._transfers[transfer.name] = transfer
            with self._ended_by_error(transfer):
                retained = set(need).intersection(offer.segment.retained)  # no other tablet has a new file
                transfer.link(self._replicas.link_known(held.key, {name: files[name] for name in retained}))
                for name in (name for name in need if name not in transfer.linked):
                    part = transfer.parts[name] = self._incoming.take(files[name])
                    part.settle()
                missing = transfer.need()
                return accepted(held.replica, missing) if missing else self._commit(transfer)

    def confirm(self, leader: str, confirmations: Sequence[StateConfirmation]) -> list[bool]:
        """Note until when states here have every write; False for one that the leader has to offer instead, and for a
        time that has not come here. Nothing is durable, and the books are not read. Raises InvalidInputError.
        """
        return [self._confirm(leader, one) for one in confirmations]

    def _confirm(self, leader: str, confirmation: StateConfirmation) -> bool:
        key = ReplicaKey(confirmation.table_id, confirmation.directory).check()
        try:
            held = self._replicas.find(key)
        except CorruptionError:
            return False  # the offer that follows says what is damaged
        if held is None or not confirms(held.replica, leader, confirmation):
            return False
        return self._note_time(held, confirmation.state_id, confirmation.as_of_ms)

    def _note_time(self, held: HeldReplica, state_id: int, as_of_ms: int) -> bool:
        """Note until when a state has every write, unless that time has not come here."""
        if is_ahead(as_of_ms, self._clock.wall_ms()):
            return False
        held.confirm(state_id, as_of_ms)
        return True

    # ---- content

    def transit(self, transit: SegmentTransit) -> SegmentAck:
        """Take content of an accepted segment; with the last byte, the segment. Content behind a gap is left out, and
        the answer says from where to go on.

        Raises StreamExpiredError when no such segment is expected (offer it again), InvalidInputError, CorruptionError
        when a file is not the sender's, UnavailableError.
        """
        with self._in_use(transit) as transfer, self._ended_by_error(transfer):
            part = transfer.parts.get(transit.file)
            if part is None:
                raise InvalidInputError(f"{transit.file} is not needed for state {transit.segment_id}: send what is")
            held_bytes = part.append(transit.start, transit.content)
            self._count(0, len(transit.content))
            transfer.use(self._clock.boot_ns())
            is_last = not transfer.need()
            return SegmentAck(transit.file, held_bytes, self._commit(transfer) if is_last else None)

    @contextmanager
    def _in_use(self, transit: SegmentTransit) -> Iterator[_Transfer]:
        if len(transit.content) > TRANSIT_BYTES_MAX:
            raise InvalidInputError(f"content of {len(transit.content)} bytes: at most {TRANSIT_BYTES_MAX} at once")
        key = ReplicaKey(transit.table_id, transit.directory)
        with self._lock:
            transfer = self._transfers.get(_Name(key, transit.segment_id, transit.sender.host))
        if transfer is None or (transfer.offer.sender, transfer.offer.receiver) != (transit.sender, transit.receiver):
            raise _expired(key, transit.segment_id)
        with transfer.lock:
            if transfer.is_over:
                raise _expired(key, transit.segment_id)
            yield transfer

    def _commit(self, transfer: _Transfer) -> SegmentAnswer:
        """Let the segment count; the caller has the transfer's lock."""
        held, parts = transfer.held, transfer.parts
        brought = [file for name, file in transfer.files.items() if name in parts or name in transfer.linked]
        decision = held.commit(
            transfer.arrived(), brought, transfer.offer.state, lambda: self._incoming.publish(list(parts.values()))
        )
        self._forget(transfer)
        if not decision:
            raise _expired(held.key, transfer.offer.segment.segment_id)
        reply = _reply_of(decision)
        if isinstance(reply, Decline):
            problem = "its base is no longer the root here"
            return declined(own_placement(held.replica), reply.root, reply.reason, problem)
        self._count(1, 0)
        return acked(held.replica)

    def _count(self, segments: int, content_bytes: int) -> None:
        with self._lock:
            self._segments += segments
            self._content_bytes += content_bytes

    def received_bytes(self) -> dict[ReplicaKey, int]:
        """By replica, the bytes that are here of segments under way."""
        with self._lock:
            transfers = list(self._transfers.values())
        found: dict[ReplicaKey, int] = {}
        for transfer in transfers:
            here = sum(part.held_bytes for part in list(transfer.parts.values()))
            found[transfer.held.key] = found.get(transfer.held.key, 0) + here
        return found

    def status(self) -> Mapping[str, str]:
        """Facts for operators: segments that came from other hosts, and the bytes of content for them."""
        return {"segments_received": str(self._segments), "segment_bytes_received": str(self._content_bytes)}

    # ---- the end of a transfer

    @contextmanager
    def _ended_by_error(self, transfer: _Transfer) -> Iterator[None]:
        """End the transfer on an error other than of a malformed message. The caller has its lock."""
        try:
            yield
        except InvalidInputError:
            raise
        except BaseException as error:
            if transfer.is_over:
                raise
            if isinstance(error, NoSpaceError):
                for part in transfer.parts.values():
                    part.discard()
            self._end(transfer)
            raise

    def _end(self, transfer: _Transfer) -> None:
        """Give a transfer up; the bytes of its files stay for the next offer. The caller has its lock."""
        self._forget(transfer)
        try:
            transfer.held.apply(transfer.failed())
        except NotServingError:
            LOG.info("the replica of %s is gone, and its transfer with it", transfer.held.key)

    def _forget(self, transfer: _Transfer) -> None:
        transfer.end()
        with self._lock:
            if self._transfers.get(transfer.name) is transfer:
                del self._transfers[transfer.name]
        for part in transfer.parts.values():
            self._incoming.give_back(part)

    def expire(self) -> None:
        """End the transfers whose sender is silent, and remove parts that nobody continues."""
        now_ns = self._clock.boot_ns()
        with self._lock:
            transfers = list(self._transfers.values())
        for transfer in transfers:
            is_idle = now_ns - transfer.used_ns > self._limits.idle_timeout_ms * 1_000_000
            if is_idle and transfer.lock.acquire(blocking=False):
                try:
                    if not transfer.is_over:
                        self._end(transfer)
                finally:
                    transfer.lock.release()
        try:
            self._incoming.remove_idle(self._clock.wall_ms() / 1000 - PARTS_KEPT_S)
        except OSError as error:
            LOG.warning("parts of files that nobody continues can't be removed now: %s", error)

    # ---- the limit of all replicas together

    @contextmanager
    def _slot(self) -> Iterator[_Slot]:
        """A place for one more transfer, if there is one, until the transfer is among those under way."""
        with self._lock:
            is_free = len(self._transfers) + self._reserved < self._limits.transfers_max
            self._reserved += is_free
        try:
            yield _Slot(is_free)
        finally:
            with self._lock:
                self._reserved -= is_free

    # ---- the thread

    def start(self) -> None:
        """Begin to end idle transfers."""
        self._thread.start(self.expire, EXPIRE_INTERVAL_MS)

    def close(self) -> None:
        """End the thread. Received bytes stay for the next process."""
        self._thread.close()


class _Slot(Struct, frozen=True):
    is_free: bool


def _expired(key: ReplicaKey, segment_id: int) -> BookkeeperError:
    return StreamExpiredError(f"no content of state {segment_id} of {key} is expected here (any more): offer it again")


def _reply_of(decision: Decision) -> Accept | Ack | Decline:
    reply: Reply = next(one.reply for one in decision if isinstance(one, Answer))
    assert isinstance(reply, Accept | Ack | Decline)
    return reply


def _need_of(reply: Accept | Ack) -> tuple[str, ...]:
    return reply.need if isinstance(reply, Accept) else ()
