"""One segment to one host: the offer, the content in parts, and the answer. Memory has one part.

The machine decides which segment is next and how an answer counts; each decision is durable before it is followed. A
receiver that holds a part of a file already says from which byte to go on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.errors import BookkeeperError, CorruptionError, unavailable
from bookkeeper.metadata.values import SegmentEntry
from bookkeeper.replicas.events import OfferOne, ReplicateTo, ReplyArrived
from bookkeeper.replicas.instructions import Decision, Send, Transit
from bookkeeper.replicas.messages import Accept, Ack, Decline, Failed, Offer, Purpose, Reason, Reply
from bookkeeper.replicas.values import Target
from bookkeeper.rpc.contract.messages import (
    ACCEPTED,
    ACKED,
    FileNeed,
    SegmentAnswer,
    SegmentOffer,
    SegmentTransit,
)
from bookkeeper.storage.replicas.manifest import Manifest
from bookkeeper.tserver.leading.confirmation import Confirmation
from bookkeeper.tserver.leading.copy_pace import CopyPace
from bookkeeper.tserver.leading.host_calls import HostLink, Transits
from bookkeeper.tserver.leading.leader_chain import LeaderChain
from bookkeeper.tserver.replicas.wire_forms import (
    file_message,
    own_placement,
    placement_message,
    placement_of,
    segment_message,
)

PARTS_AT_ONCE = 3
"""Parts of a file without an answer: the host writes one while others are on their way."""


class Outcome(Enum):
    """The outcome of a turn."""

    NOTHING = "nothing"
    """The host has all segments."""
    SENT = "sent"
    """The host acknowledged a segment, or replication to it begins again: go on at once."""
    LATER = "later"
    """The host declined: offer it again after a wait."""


class Sent(Struct, frozen=True):
    """Counts of segments that other hosts have received. ``rows``: of complete files."""

    segments: int = 0
    files: int = 0
    payload_bytes: int = 0
    rows: int = 0


class SentCounters:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent = Sent()

    @property
    def sent(self) -> Sent:
        """All since the start."""
        return self._sent

    def add(self, segments: int = 0, files: int = 0, payload_bytes: int = 0, rows: int = 0) -> None:
        """Count more."""
        with self._lock:
            sent = self._sent
            self._sent = Sent(
                sent.segments + segments, sent.files + files, sent.payload_bytes + payload_bytes, sent.rows + rows
            )


class Transfer:
    """Sends the segments of one tablet to one host, one at a time."""

    def __init__(
        self, chain: LeaderChain, target: Target, host: HostLink, counters: SentCounters, pace: CopyPace
    ) -> None:
        self._chain = chain
        self._target = target
        self._host = host
        self._counters = counters
        self._pace = pace

    def turn(self, is_over: Callable[[], bool]) -> Outcome:
        """Send the oldest segment that the host lacks. ``is_over``: stop between two parts. Raises TransientError when
        the host is away, CorruptionError for a file that can't be read, and other errors of the host.
        """
        return self._send(self._chain.apply(ReplicateTo(self._target.host)), None, is_over)

    def confirm(self, confirmation: Confirmation, is_over: Callable[[], bool]) -> Outcome:
        """Offer a state that the host has, with the time until which it has every write. Raises as :meth:`turn`."""
        decision = self._chain.apply(OfferOne(self._target.host, confirmation.state_id))
        outcome = self._send(decision, confirmation.as_of_ms, is_over)
        return Outcome.NOTHING if outcome is Outcome.SENT else outcome

    def _send(self, decision: Decision, as_of_ms: int | None, is_over: Callable[[], bool]) -> Outcome:
        send = next((one for one in decision if isinstance(one, Send)), None)
        if send is None:
            return Outcome.NOTHING
        names = frozenset(send.offer.segment.list)
        with self._retained(names):
            return self._turn(send.offer, as_of_ms, is_over)

    @contextmanager
    def _retained(self, names: frozenset[str]) -> Iterator[None]:
        """These files stay here for the time of the block, also when a later state is named without them."""

        def names_in_use() -> frozenset[str]:
            return names

        self._chain.held.add_reader(names_in_use)
        try:
            yield
        finally:
            self._chain.held.remove_reader(names_in_use)

    def _turn(self, offer: Offer, as_of_ms: int | None, is_over: Callable[[], bool]) -> Outcome:
        segment_id, manifest = offer.segment.id, self._chain.held.manifest
        if segment_id not in manifest.states or not manifest.files.keys() >= set(offer.segment.list):
            return Outcome.SENT  # a later state has replaced it meanwhile: look again
        try:
            reply = self._answered(offer, manifest, as_of_ms, is_over)
        except BookkeeperError:
            self._arrived(Failed(segment_id))
            raise
        self._arrived(reply)
        if isinstance(reply, Failed):
            return Outcome.LATER
        if isinstance(reply, Decline) and reply.reason not in (Reason.SEGMENT_EXISTS, Reason.OUT_OF_ORDER):
            return Outcome.LATER
        if isinstance(reply, Ack):
            self._counters.add(segments=1)
        return Outcome.SENT

    def _arrived(self, reply: Reply) -> Decision:
        return self._chain.apply(ReplyArrived(self._target.host, reply, Purpose.REPLICATE))

    def _answered(self, offer: Offer, manifest: Manifest, as_of_ms: int | None, is_over: Callable[[], bool]) -> Reply:
        segment_id = offer.segment.id
        answer = self._host.calls.segment_offer(replace(self._offer_message(offer, manifest), as_of_ms=as_of_ms))
        if answer.state != ACCEPTED:
            return _reply_of(segment_id, answer)
        names = tuple(one.name for one in answer.need)
        decision = self._arrived(Accept(segment_id, placement_of(answer.placement), names))
        if not any(isinstance(one, Transit) for one in decision):
            return Failed(segment_id)
        return self._content(segment_id, manifest, answer.need, is_over)

    def _offer_message(self, offer: Offer, manifest: Manifest) -> SegmentOffer:
        segment = offer.segment
        assert offer.term is not None  # a child of a split has its own leader, whose terms are others
        return SegmentOffer(
            extent=manifest.extent,
            directory=manifest.key.directory,
            term=offer.term,
            leader=offer.leader,
            sender=own_placement(manifest.replica),
            receiver=placement_message(self._target.host, self._target.placement),
            segment=segment_message(segment),
            files=tuple(file_message(manifest.files[name]) for name in segment.list),
            state=manifest.states[segment.id],
        )

    def _content(
        self, segment_id: int, manifest: Manifest, need: tuple[FileNeed, ...], is_over: Callable[[], bool]
    ) -> Reply:
        empty = SegmentTransit(
            manifest.key.table_id,
            manifest.key.directory,
            own_placement(manifest.replica),
            placement_message(self._target.host, self._target.placement),
            segment_id,
            "",
            0,
            b"",
        )
        with self._host.transits() as transits:
            for file in need:
                held = manifest.files[file.name]
                first = replace(empty, file=file.name, start=file.start)
                taken, reply = self._file(first, held.size_bytes, transits, is_over)
                if taken >= held.size_bytes:
                    self._counters.add(files=1, rows=SegmentEntry.decode(held.entry).records)
                if reply is not None:
                    return reply
        return Failed(segment_id)

    def _file(
        self, first: SegmentTransit, size: int, transits: Transits, is_over: Callable[[], bool]
    ) -> tuple[int, Reply | None]:
        """Send a file from a part on; returns the bytes of it that are there, and the answer to the segment if there is
        one by then. A part that the host does not take as it came is followed by no other one before all answers are
        here: they say from where to go on.
        """
        taken = position = first.start
        ends: deque[int] = deque()
        in_step = True
        self._pace.begin()
        while taken < size:
            if not ends:
                position, in_step = taken, True
            while in_step and position < size and len(ends) < PARTS_AT_ONCE:
                if is_over() or first.file in self._chain.replica.damaged:
                    return taken, Failed(first.segment_id)
                position += self._send_part(first, position, size, transits)
                ends.append(position)
                if position < size:
                    self._pace.keep()
            ack = transits.receive()
            in_step &= ack.held_bytes == ends.popleft()
            self._counters.add(payload_bytes=max(0, ack.held_bytes - taken))
            taken = ack.held_bytes
            if ack.answer is not None:
                return taken, _reply_of(first.segment_id, ack.answer)
        return taken, None

    def _send_part(self, first: SegmentTransit, position: int, size: int, transits: Transits) -> int:
        """Send the bytes of a file at a position; returns how many."""
        length, facts = min(self._host.part_bytes, size - position), {"file": first.file}
        try:
            content = self._chain.volume.read_range(first.file, position, length)
        except FileNotFoundError as error:
            raise CorruptionError(f"{first.file} of this host is gone", facts) from error
        except OSError as error:
            raise unavailable(f"{first.file} of this host can't be read", error) from error
        if len(content) < length:
            raise CorruptionError(f"{first.file} of this host ends before its {size} bytes", facts)
        transits.send(replace(first, start=position, content=content))
        return length


def _reply_of(segment_id: int, answer: SegmentAnswer) -> Reply:
    placement = placement_of(answer.placement)
    if answer.state == ACKED:
        return Ack(segment_id, placement, answer.root)
    return Decline(segment_id, placement, Reason(answer.reason), answer.root)
