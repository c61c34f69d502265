"""A stream of blocks: one target's ranges of one file, in messages without a gap.

Arrives: the blocks of the file, ascending, from the reader. Leaves: messages through a replica session, and one result
for each range. A crash loses the stream; the peer's high-waters and the books' finished offsets survive it.

``acked`` is an offset: all records for this target up to it are durable at the peer. It starts at the books' finished
offset. It grows with an acknowledgement that has no gap before it, and past records that are not for this target. A
range must start directly after it: with a gap, an acknowledgement of one receiving tablet would count for records that
another tablet never got. A stream stops at its first error; earlier acknowledgements count. When
the peer refuses the records of a message permanently, the stream halves the message until it finds the refused block.

A pipelined session sends the next message before the answer to the last one. The stream takes answers in the order of
offsets. It sends a failed message again when all messages before it are acknowledged and no other is in flight. Rules:
R13, R18, R19 and R21.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa
from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.errors import (
    AT_LOG,
    AT_PEER,
    FAILED_AT,
    BookkeeperError,
    CorruptionError,
    GapError,
    IncompatibleError,
    InvalidInputError,
    NoAnswerError,
    PermanentError,
    TransientError,
    failing_at,
)
from bookkeeper.model import BlockRange
from bookkeeper.peers.extensions import ConfirmingSession, PipelinedSession, is_pipelined
from bookkeeper.peers.protocol import Acked, BlockFacts, Message, MessageBlock, ReplicaSession
from bookkeeper.replay.ranges import Range, RangeError, RangeResult, check_range, is_about_records
from bookkeeper.replay.stream import filters, message_origins
from bookkeeper.replay.stream.confirmation import AckedBlock, acked_block_of, check_peer
from bookkeeper.replay.stream.message_span import (
    MessageSpan,
    Part,
    SentMessage,
    message_bytes,
    payload_bytes,
    record_count,
)
from bookkeeper.replay.stream.peer_errors import errors_of_peer
from bookkeeper.storage.columns import min_max_row
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.blocks.block import Block, encode_batch
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.storage.wal.reading.log_formats import BlockAt

MESSAGES_IN_FLIGHT_MAX = 3
"""Messages of a pipelined session without an answer: the peer makes one durable and checks another one, while the
sender reads and sends the next one.
"""

CALLS_MAX = 5
"""Calls of a session for one message, each as long as the wait for its answer: the leader, the choice of a tablet
server, the stream, the records, and the retries before the last one.
"""


def sequence_of(header: BlockHeader, current: Range) -> int:
    """The number in its tablet of a block's first record. Blocks of an import count from 1, and the tablet numbered the
    file when it took it.
    """
    return header.first_seq + max(0, current.first_seq - 1)


class OpenSessions(Protocol):
    """The sessions of streams, see ``range_shipping.Sessions``."""

    def session(self, wanted: Range) -> ReplicaSession:
        """The session, opened if need be; raises what the replica system raises."""

    def forget(self, wanted: Range) -> None:
        """Close the session: it failed."""

    def waiting(self, calls: int = 1, more_ms: float = 0) -> AbstractContextManager[None]:
        """The block waits for the peer."""


class _Counts(Struct):
    records: int = 0
    bytes: int = 0
    filtered: int = 0
    resent: int = 0
    blocks: int = 0
    sent_records: int = 0
    sent_bytes: int = 0
    position: int = 0
    share: tuple[int, int] = (0, 0)
    block: AckedBlock | None = None


class RangeStream:
    """Takes every block of the file once. Memory holds one block, the pending message, and those in flight (at most
    ``MESSAGES_IN_FLIGHT_MAX``).
    """

    def __init__(
        self,
        ranges: Sequence[Range],
        sessions: OpenSessions,
        message_bytes: int,
        clock: Clock,
        volume: Volume | None = None,
    ) -> None:
        """``ranges``: at least one, of one file and target, ascending. ``volume`` has their file; None = the peer is
        not asked whether it has what it acknowledged.
        """
        self._volume = volume
        self._ranges = ranges
        self._sessions = sessions
        self._message_bytes = message_bytes
        self._clock = clock
        self._index = 0
        self._counts = _Counts()
        self._results: list[RangeResult] = []
        self._pending: list[Part] = []
        self._pending_bytes = 0
        self._provenance: tuple[str, ...] = ()
        self._in_flight: deque[SentMessage] = deque()
        self._shares: deque[tuple[int, tuple[int, int]]] = deque()
        """Last offsets of blocks without an acknowledgement, each with the target's share of the file up to there."""
        self._confirmed = acked_block_of(ranges[0])
        """The last block that the peer acknowledged."""
        self._sent = self._acked = self._seen = ranges[0].finished
        self._sent_position = self._seen_position = ranges[0].position_hint
        self._started_ns = clock.boot_ns()
        self._error: RangeError | None = None
        self._high_water: int | None = None
        self._failed: BlockRange | None = None
        self._expired = False
        self._guarded(self._begin)

    @property
    def active(self) -> bool:
        """Whether the stream still wants blocks."""
        return self._index < len(self._ranges) and self._error is None and not self._expired

    @property
    def next_offset(self) -> int:
        """First offset not seen yet."""
        return self._seen + 1

    @property
    def last_offset(self) -> int:
        """Last offset of the last range."""
        return self._ranges[-1].last

    @property
    def position_hint(self) -> int:
        """The position at which reading may start for the first range; 0 when not known."""
        return self._ranges[0].position_hint

    def take(self, block: Block) -> None:
        """Consider the next block of the file; ship when a message is full or a range is complete."""
        if self.active and block.last_offset > self._seen:
            self._guarded(lambda: self._take(block))

    def wants_before(self, behind: BlockAt | None) -> bool:
        """Whether the stream wants records before block ``behind``; None: no later block can be read."""
        return self.active and (behind is None or self.next_offset < behind.header.first_offset)

    def fail(self, error: BookkeeperError, behind: BlockAt | None = None) -> None:
        """No block can be read before ``behind``: ship the pending records, then stop with ``error``."""
        if self.active:
            self._guarded(self._ship_pending)
        if self.active:
            if isinstance(error, CorruptionError):
                self._failed = self._unreadable(behind)
            error.details[FAILED_AT] = AT_LOG
            self._stop(error)

    def _unreadable(self, behind: BlockAt | None) -> BlockRange:
        """The records of this range from here to the first intact block."""
        last = self._current.last
        if behind is None or behind.header.first_offset - 1 > last:
            return BlockRange(self._seen + 1, last, self._seen_position, 0)
        return BlockRange(self._seen + 1, behind.header.first_offset - 1, self._seen_position, behind.position)

    def expire(self) -> None:
        """The time for this run is up: ship the pending records and stop, without an error."""
        if self.active:
            self._guarded(self._ship_pending)
            self._expired = True

    def results(self) -> list[RangeResult]:
        """End the stream; returns one result for each range, in order."""
        while self._index < len(self._ranges):
            self._complete()
        return self._results

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except BookkeeperError as error:
            self._stop(error)
        except Exception as error:  # noqa: BLE001 - it becomes the row's error, and other streams go on
            self._stop(PermanentError(f"shipping failed unexpectedly: {type(error).__name__}: {error}"))

    def _stop(self, error: BookkeeperError) -> None:
        self._error = RangeError.of(error)
        self._high_water = error.high_water if isinstance(error, GapError) else None
        self._pending = []
        self._ignore_answers()

    def _begin(self) -> None:
        current = self._current
        check_range(current)
        if current.first == self._acked + 1:  # R19: no hole behind what the peer has acknowledged
            return
        raise InvalidInputError(
            f"range {current.first} to {current.last} of {current.file} must start right behind what "
            f"{current.target.cluster} has acknowledged ({self._acked}); hand out the missing records first"
        )

    def _take(self, block: Block) -> None:
        current = self._current
        if block.first_offset != self._seen + 1 or block.last_offset > current.last:
            raise InvalidInputError(
                f"the block of records {block.first_offset} to {block.last_offset} of {current.file} lies across "
                f"a border of the range {self._seen + 1} to {current.last}; ranges must start and end with a block"
            )
        try:
            with failing_at(AT_LOG):
                part = self._part(block, current, self._seen_position)
        except BookkeeperError as error:
            self._ship_pending()  # the peer may have all before this block
            if is_about_records(error):
                self._failed = BlockRange(self._seen + 1, block.last_offset, self._seen_position, block.end_position)
            raise
        self._note_share(block)
        if part is not None:
            self._append(part, filters.provenance_for(block.header, current.own_instance_id))
        self._counts.filtered += block.header.record_count - (part.block.record_count if part else 0)
        self._counts.blocks += 1
        self._seen, self._seen_position = block.last_offset, block.end_position
        if self._pending_bytes >= self._message_bytes:
            self._send_on()
        if self._seen == current.last:
            self._ship_pending()
            self._complete()
            if self._index < len(self._ranges):
                self._begin()

    def _note_share(self, block: Block) -> None:
        share = filters.share_up_to(block.header, self._current.target)
        if share is None:
            return
        if self._shares and self._shares[-1][1] == share:  # nothing of the block is for the target
            return
        self._shares.append((block.last_offset, share))

    def _part(self, block: Block, current: Range, position: int) -> Part | None:
        header = block.header
        decision = filters.decide(header, current.target, current.peer_instance_id)
        if decision.selection is filters.Selection.NOTHING:
            return None
        first, last = block.first_offset, block.last_offset
        if decision.selection is filters.Selection.WHOLE:
            payload = pa.py_buffer(block.payload)
            block_origins = message_origins.block_origins_of(header, current, None)
            block_part = MessageBlock(
                first, last, payload, header.record_count, header.min_row, header.max_row, block_origins
            )
            facts = BlockFacts(header.write_time_ms, sequence_of(header, current))
            return Part(block_part, facts, block.end_position, position)
        batch = block.batch()
        row_indices = filters.row_indices_of_families(batch, decision.families)
        if not len(row_indices):
            return None
        selected = batch.take(pa.array(row_indices))
        payload = encode_batch(selected, header.compression)
        positions = pa.array(row_indices.view(np.uint64))
        facts = BlockFacts(header.write_time_ms, sequence_of(header, current), positions)
        block_origins = message_origins.block_origins_of(header, current, row_indices)
        share = MessageBlock(first, last, payload, selected.num_rows, *min_max_row(selected), block_origins)
        return Part(share, facts, block.end_position, position)

    def _append(self, part: Part, provenance: tuple[str, ...]) -> None:
        size = payload_bytes(part.block)
        if self._pending and (provenance != self._provenance or self._pending_bytes + size > self._message_bytes):
            self._send_on()
        self._provenance = provenance
        self._pending.append(part)
        self._pending_bytes += size

    def _ship_pending(self) -> None:
        """Ship the pending records, and wait until all is acknowledged."""
        self._send_on()
        self._await_answers()
        self._reach(self._seen, self._seen_position)

    def _await_answers(self) -> None:
        while self._in_flight:
            self._take_answer()

    def _send_on(self) -> None:
        """Ship the pending records; a pipelined session does not wait for the answer."""
        if not self._pending:
            return
        span = MessageSpan(
            self._pending, self._provenance, self._sent, self._sent_position, self._seen, self._seen_position
        )
        self._pending, self._pending_bytes = [], 0
        self._sent, self._sent_position = span.to, span.to_position
        while len(self._in_flight) >= MESSAGES_IN_FLIGHT_MAX:
            self._take_answer()
        session = self._session()
        if isinstance(session, PipelinedSession):
            message = span.message(self._acked)
            with self._sessions.waiting(CALLS_MAX):  # it may open the stream first
                in_flight = session.start_shipping(message)
            self._in_flight.append(SentMessage(span, message, in_flight))
        else:
            self._send(span)

    def _take_answer(self) -> None:
        """Take the answer to the first message in flight. All messages before it are acknowledged."""
        sent = self._in_flight.popleft()
        try:
            acked = self._answer_of(sent)
        except PermanentError as error:
            self._narrow(sent.span, error)
        except TransientError as error:
            if isinstance(error, NoAnswerError) or (isinstance(error, GapError) and not is_pipelined(sent.message)):
                raise
            self._send(sent.span)
            self._await_answers()  # the peer declined the messages behind it: new ones behind those would be, too
        else:
            self._note_acked(sent.span, sent.message, acked)

    def _answer_of(self, sent: SentMessage) -> Acked:
        try:
            with self._sessions.waiting(), errors_of_peer():
                return sent.in_flight.wait()
        except BaseException:
            self._sessions.forget(self._current)
            raise
        finally:
            self._count_sends(sent.message, sent.in_flight.sends)

    def _ignore_answers(self) -> None:
        """After the end of the stream: wait until none of its messages is in flight, and ignore the answers. A later
        run sends again what is not acknowledged, and the peer drops duplicates.
        """
        while self._in_flight:
            with suppress(BookkeeperError):
                self._answer_of(self._in_flight.popleft())

    def _send(self, span: MessageSpan) -> None:
        """Ship a span and wait for its acknowledgement. All spans before it are acknowledged."""
        message = span.message(self._acked)
        try:
            acked = self._ship(message)
        except PermanentError as error:
            self._narrow(span, error)
        else:
            self._note_acked(span, message, acked)

    def _note_acked(self, span: MessageSpan, message: Message, acked: Acked) -> None:
        self._count(message, acked)
        self._reach(span.to, span.to_position)
        last = span.parts[-1]
        self._confirmed = AckedBlock(self._current.file, last.block.first_offset, last.position)
        self._counts.block = self._confirmed

    def _narrow(self, span: MessageSpan, error: PermanentError) -> None:
        """Halve a span that the peer refuses for its records: the blocks before the refused one are shipped, and
        the result names the refused one.
        """
        if not is_about_records(error):
            raise error
        if len(span.parts) == 1:
            self._failed = span.blocks
            raise error
        for half in span.halves():
            self._send(half)

    def _reach(self, offset: int, position: int) -> None:
        """Note that all records for the target up to ``offset`` are durable at the peer."""
        self._acked = offset
        self._counts.position = position
        while self._shares and self._shares[0][0] <= offset:
            self._counts.share = self._shares.popleft()[1]
        self._sent, self._sent_position = max((self._sent, self._sent_position), (offset, position))

    def _session(self) -> ReplicaSession:
        with errors_of_peer():
            session = self._sessions.session(self._current)
        if isinstance(session, ConfirmingSession):
            session.check_when_opened(partial(self._check, session))
        return session

    def _check(self, session: ConfirmingSession) -> None:
        """The peer has what it acknowledged. Raises PeerOlderError, TransientError."""
        if self._confirmed is not None and self._volume is not None and not self._current.run_id:
            check_peer(self._volume, session, self._confirmed, self._current, self._message_of)

    def _message_of(self, block: Block, r: Range) -> Message | None:
        part = self._part(block, r, 0)
        if part is None:
            return None
        provenance, before = filters.provenance_for(block.header, r.own_instance_id), block.first_offset - 1
        return Message(provenance, before, before, block.last_offset, (part.block,))

    @property
    def _current(self) -> Range:
        return self._ranges[self._index]

    def _ship(self, message: Message) -> Acked:
        session = self._session()
        before = session.sends
        try:
            with self._sessions.waiting(CALLS_MAX), errors_of_peer():
                return session.ship(message)
        except BaseException:
            self._sessions.forget(self._current)
            raise
        finally:
            self._count_sends(message, session.sends - before)

    def _count_sends(self, message: Message, times: int) -> None:
        self._counts.sent_records += times * record_count(message)
        self._counts.sent_bytes += times * message_bytes(message)

    def _count(self, message: Message, acked: Acked) -> None:
        expected = message.acked_offset if is_pipelined(message) else message.to_offset
        if acked.offset < expected:
            raise IncompatibleError(
                f"the peer answered {acked.offset} to a message up to {message.to_offset}: it must be all or an error",
                {FAILED_AT: AT_PEER},
            )
        if not 0 <= acked.dropped <= record_count(message):
            raise IncompatibleError(
                f"the peer says that it had {acked.dropped} of {record_count(message)} records before",
                {FAILED_AT: AT_PEER},
            )
        self._counts.records += record_count(message)
        self._counts.bytes += message_bytes(message)
        self._counts.resent += acked.dropped

    def _complete(self) -> None:
        current, counts, now_ns = self._current, self._counts, self._clock.boot_ns()
        self._results.append(
            RangeResult(
                range_id=current.range_id,
                acked_offset=min(self._acked, current.last),
                acked_position=counts.position,
                high_water=self._high_water,
                records=counts.records,
                bytes=counts.bytes,
                filtered=counts.filtered,
                resent=counts.resent,
                blocks=counts.blocks,
                sent_records=counts.sent_records,
                sent_bytes=counts.sent_bytes,
                error=self._error,
                host=socket.gethostname(),
                pid=os.getpid(),
                seconds=(now_ns - self._started_ns) / 1e9,
                failed=self._failed,
                share_records=counts.share[0],
                share_bytes=counts.share[1],
                block_first=counts.block.first if counts.block else 0,
                block_position=counts.block.position if counts.block else 0,
            )
        )
        self._failed = None
        self._index += 1
        self._counts, self._started_ns = _Counts(), now_ns
