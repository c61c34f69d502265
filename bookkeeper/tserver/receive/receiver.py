"""The steps of a message from another cluster, from top to bottom.

In the thread of the call (:meth:`Receiver.replicate`):

1. Admit: the provenance, the token of the stream, the table, the offsets (R20, R21, R23).
2. Decode the blocks, check them, and split them into a slice for each tablet.
3. Order: wait for the message in front, if it is on its way, too (R19).
4. Apply each slice, here or at the tserver of its tablet, and wait until all are durable.
5. Answer: the offset up to which every tablet is durable.

In the commit thread of the tablet's server (:meth:`SliceApply.prepare`):

1. Check that the tablet takes writes and can't have forgotten the stream (R20).
2. Drop the blocks below the high-water, and decline a gap (R18, R19).
3. Drop the records that another path has brought (R22).
4. Stage the new records as one WAL block, whose header raises the high-water (R18).

A crash loses no acknowledged record: the sender sends again a message that some tablets took, and they drop it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from operator import is_
from typing import cast

import pyarrow as pa

from bookkeeper.errors import (
    BookkeeperError,
    GapError,
    InvalidInputError,
    NotServingError,
    OverloadedError,
    UnavailableError,
)
from bookkeeper.model import Extent, Origin
from bookkeeper.origins import Root, RootIntervals
from bookkeeper.rpc.contract.messages import ApplyRequest, ReplicateRequest, ReplicateResult
from bookkeeper.storage.wal.blocks.block import DraftBlock, PlacedBlock
from bookkeeper.tserver.commit.submission import AppendPoint, Durability
from bookkeeper.tserver.maintenance.flusher import Flusher
from bookkeeper.tserver.origins import origin_dedup
from bookkeeper.tserver.origins.partial_high_water import unknown_parts
from bookkeeper.tserver.receive.message_admission import MessageAdmission
from bookkeeper.tserver.receive.message_decoding import PeerLimits, decode_blocks, limits_of_slices
from bookkeeper.tserver.receive.message_order import MessageOrder, MessageRange
from bookkeeper.tserver.receive.slice_decision import Accept, Decision, Gap, decide
from bookkeeper.tserver.receive.slice_delivery import SliceDelivery, range_of
from bookkeeper.tserver.receive.tablet_slice import Applied, ReceivedRange
from bookkeeper.tserver.tablets.tablet import Moment, ReceivedBlock, ServedTablet, TabletRecords, Undo
from bookkeeper.tserver.tablets.tablet_registry import Registry
from bookkeeper.tserver.write import write_guards
from bookkeeper.tserver.write.commit_path import CommitPath
from bookkeeper.tserver.write.write_context import WriteContext

LOG = logging.getLogger(__name__)

NO_SESSION = ""
"""The session of a message that no other one waits for."""

ROOM_WAIT_MS = 1_500
"""ms that a slice waits for room in a tablet's memory; less than the message behind it waits for this one."""


class Receiver:
    """Takes the messages of other clusters, and the slices that other tservers of this cluster forward."""

    def __init__(
        self,
        admission: MessageAdmission,
        order: MessageOrder,
        delivery: SliceDelivery,
        local: LocalApply,
        limits: PeerLimits,
    ) -> None:
        self._admission = admission
        self._order = order
        self._delivery = delivery
        self._local = local
        self._limits = limits
        self._warned_of: set[str] = set()
        """The peers whose records came under origins that their secrets do not name, each logged once."""

    def close(self) -> None:
        """Let calls to other tservers end, and answer messages that wait for tablets."""
        self._delivery.close()

    def replicate(self, request: ReplicateRequest, origins: Collection[str] | None = None) -> ReplicateResult:
        """Take ``(after, to]`` of a stream. ``origins``: see :func:`decode_blocks`. Returns once every tablet with
        records of it has them durably. Raises GapError with the lowest high-water (R19), StreamExpiredError,
        RefusedError, NotFoundError, other TransientErrors.
        """
        if request.confirms:
            return self._confirm(request, origins)
        table = self._admission.admit_message(request)
        blocks = decode_blocks(request, self._limits.batch, self._limits.latest_ms(), origins)
        if origins is not None:
            self._warn_of_origins(request, blocks)
        slices = self._delivery.split(table.table_id, blocks)
        offsets = MessageRange(
            request.stream_session, request.stream.file, request.acked_offset, request.after_offset, request.to_offset
        )
        with self._order.ordered(offsets, [one.tablet for one in slices]) as message:
            applied = self._delivery.deliver(request, slices, message)
        self._admission.note_durable(request.stream, message.durable_to)
        return answer(message.durable_to, applied)

    def _confirm(self, request: ReplicateRequest, origins: Collection[str] | None) -> ReplicateResult:
        """Count the records of an acknowledged message that this cluster lacks, and take none. Raises the errors of
        :meth:`replicate`.
        """
        table = self._admission.admit_confirmation(request)
        blocks = decode_blocks(request, self._limits.batch, self._limits.latest_ms(), origins)
        slices = self._delivery.split(table.table_id, blocks)
        offsets = MessageRange(
            NO_SESSION, request.stream.file, request.acked_offset, request.after_offset, request.to_offset
        )
        with self._order.ordered(offsets, [one.tablet for one in slices]) as message:
            found = self._delivery.deliver(request, slices, message)
        return confirmation(request.to_offset, found)

    def _warn_of_origins(self, request: ReplicateRequest, blocks: Sequence[ReceivedBlock]) -> None:
        source = request.stream.source_instance_id
        is_named = any(block.block_origins is not None for block in request.blocks)
        if is_named and source not in self._warned_of and any(block.block_origins is None for block in blocks):
            self._warned_of.add(source)
            LOG.warning(
                "instance %s sends on records of clusters (%s) that its secret does not name: they count as its own, "
                "and come twice if another path brings them, too (bookkeeper secret relays)",
                source,
                ", ".join(request.provenance[:-1]) or "unnamed",
            )

    def apply_replicated(self, request: ApplyRequest) -> ReplicateResult:
        """Apply one slice of a message that another tserver has split. Raises the errors of :meth:`replicate`."""
        self._admission.admit_slice(request)
        blocks = tuple(decode_blocks(request, limits_of_slices(self._limits.batch)))
        refuse_outside(request, blocks)
        applied = self._local.begin(request.extent, range_of(request, blocks))()
        if request.confirms:
            return confirmation(applied.high_water, [applied])
        return answer(applied.high_water, [applied])


def answer(offset: int, applied: Sequence[Applied]) -> ReplicateResult:
    """Everything up to ``offset`` is durable; ``applied``: the outcome at each tablet."""
    return ReplicateResult(offset, sum(one.applied for one in applied), sum(one.dropped for one in applied))


def confirmation(offset: int, found: Sequence[Applied]) -> ReplicateResult:
    """The records of a message up to ``offset`` that are missing, and those that are here; ``found`` at each tablet."""
    return ReplicateResult(offset, 0, sum(one.dropped for one in found), sum(one.applied for one in found))


def refuse_outside(request: ApplyRequest, blocks: Sequence[ReceivedBlock]) -> None:
    """Raise InvalidInputError when a block has rows outside of the slice's tablet."""
    for block in blocks:
        if not (request.extent.contains(block.records.min_row) and request.extent.contains(block.records.max_row)):
            raise InvalidInputError(f"a block of {request.stream.file} does not lie in tablet {request.extent}")


class LocalApply:
    """Applies slices to the tablets of this server."""

    def __init__(self, registry: Registry, flusher: Flusher, admission: MessageAdmission, path: CommitPath) -> None:
        self._registry = registry
        self._flusher = flusher
        self._admission = admission
        self._path = path

    def begin(self, extent: Extent, received: ReceivedRange) -> Callable[[], Applied]:
        """Submit a slice, and return the wait for its outcome. Raises NotServingError, OverloadedError, RefusedError
        when the stream is over (R20), other TransientErrors.
        """
        tablet = self._registry.serving(extent)
        if received.confirms:
            forgotten_count = self._admission.admit_check(tablet, received.stream)
            found = self._path.submit(SliceCheck(self._path.context, tablet, received, forgotten_count))
            return lambda: cast("Applied", self._path.wait_for(found, "a confirmation"))
        self._flusher.make_room(tablet, ROOM_WAIT_MS)
        forgotten_count = self._admission.admit_to_tablet(
            tablet, received.stream, origin_dedup.logs_in(received.blocks)
        )
        future = self._path.submit(SliceApply(self._path.context, tablet, received, forgotten_count))
        return lambda: cast("Applied", self._path.wait_for(future, "a replicated range"))


# ---- in the commit thread


def may_be_forgotten(has_stream: bool, forgotten_before: int, forgotten_now: int) -> bool:
    """Rule R20: whether the tablet may have forgotten a stream that the books had at the admission: the tablet has no
    high-water of the stream, and it has forgotten streams since (``forgotten_before`` is the count at the admission).
    """
    return not has_stream and forgotten_before != forgotten_now


def joined_records(blocks: Sequence[ReceivedBlock]) -> TabletRecords:
    """The records of some blocks, in order, for one WAL block (R18). Raises InvalidInputError when a column is longer
    than 2 GiB: the sender halves its message then.
    """
    parts = [block.records for block in blocks]
    if len(parts) == 1:
        return parts[0]
    try:
        batch = pa.concat_batches([part.batch for part in parts])
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"{len(parts)} blocks are too long to be one: {error}; send fewer at once") from error
    return TabletRecords(
        batch,
        sorted({family for part in parts for family in part.families}),
        min(part.min_row for part in parts),
        max(part.max_row for part in parts),
    )


class SliceApply:
    """The submission of one slice: its tablet applies new records once, however many senders send them at the same
    time. See :class:`bookkeeper.tserver.commit.submission.Submission`.

    ``forgotten_count``: how many streams the tablet had forgotten before the slice was admitted.
    """

    durability = Durability.SYNC

    def __init__(
        self, context: WriteContext, tablet: ServedTablet, received: ReceivedRange, forgotten_count: int
    ) -> None:
        self.approx_bytes = sum(int(block.records.batch.nbytes) for block in received.blocks)
        self._context = context
        self._tablet = tablet
        self._received = received
        self._forgotten_count = forgotten_count
        self._joined = joined_records(received.blocks) if received.blocks else None
        self._high_water = 0
        self._undo: Undo | None = None
        self._origins: Mapping[Root, RootIntervals] = {}
        self._origins_before: Mapping[Root, RootIntervals | None] = {}

    def prepare(self, point: AppendPoint) -> list[DraftBlock]:
        """See the class. Raises GapError (R19), NotServingError, NotFoundError, InvalidInputError, RefusedError,
        UnavailableError (R20), and OverloadedError when the tablet would have to remember too many records of one path
        only (R22).
        """
        self._check_tablet()
        moment = self._context.moment(self._tablet.extent.table_id, point)
        decision = self._dedup_by_high_water()
        new = self._new_records(decision, moment)
        self._stage_origins(new)
        return self._stage(new, moment)

    def _check_tablet(self) -> None:
        tablet, stream = self._tablet, self._received.stream
        if not tablet.accepting:
            raise NotServingError(f"tablet {tablet.extent} leaves this server: locate it again")
        write_guards.refuse_exhausted(tablet.extent, tablet.next_seq)
        state = tablet.received
        if may_be_forgotten(state.has_stream(stream), self._forgotten_count, state.forgotten_count):
            raise UnavailableError(
                f"the stream of {stream.file} may have ended for tablet {tablet.extent}: send it again"
            )

    def _dedup_by_high_water(self) -> Decision[ReceivedBlock]:
        """Rules R18 and R19: the blocks that the tablet does not have by this stream."""
        received, state = self._received, self._tablet.received
        blocks = received.blocks
        if received.stream in state.partial_high_waters:
            blocks = unknown_parts(blocks, state.partial_high_waters[received.stream])
        high_water = state.staged_high_water(received.stream)
        # R18: the sender also counts records that only the tail of a given-up log has; the tablet asks for them again
        # (R19), or the tail brings them.
        acked = 0 if self._tablet.given_up.awaits_tails else received.acked
        decision = decide(high_water, acked, received.after, received.to, blocks)
        if isinstance(decision, Gap):
            raise GapError(
                f"{received.stream.file} is here up to {decision.high_water}, the range starts after {received.after}",
                {"high_water": str(decision.high_water)},
            )
        self._high_water = decision.high_water
        return decision

    def _new_records(self, decision: Decision[ReceivedBlock], moment: Moment) -> origin_dedup.NewRecords | None:
        """Rule R22: the records that no other path has brought. None = no block is new."""
        if not isinstance(decision, Accept):
            return None
        tablet, intervals = self._tablet, self._tablet.received.origin_intervals
        span_start = partial(intervals.span_start, span=(moment.wal_name, moment.since))
        return origin_dedup.new_records(decision.blocks, tablet.extent.rows, intervals.of, span_start, moment.now_ms)

    def _stage_origins(self, new: origin_dedup.NewRecords | None) -> None:
        """Rule R22: stage the origins of new records."""
        if new is None:
            return
        tablet, intervals = self._tablet, self._tablet.received.origin_intervals
        if not intervals.has_room(new.intervals):
            raise OverloadedError(
                f"tablet {tablet.extent} remembers too many records of one path only: {self._received.stream.file} "
                "waits for the other paths"
            )
        self._origins, self._origins_before = new.intervals, intervals.stage(new.intervals)

    def _stage(self, new: origin_dedup.NewRecords | None, moment: Moment) -> list[DraftBlock]:
        """The new records as one block, or a higher high-water without a block."""
        tablet, received = self._tablet, self._received
        if new is None or not new.blocks:
            self._undo = tablet.stage_high_water(received.stream, self._high_water)
            return []
        origin = Origin(received.stream, received.after, self._high_water)
        block_origins = origin_dedup.origins_of_header(new, received.stream, bool(moment.view.block_targets))
        draft, self._undo = tablet.stage(
            self._records_of(new.blocks), moment, received.provenance, origin, block_origins
        )
        return [draft]

    def _records_of(self, blocks: Sequence[ReceivedBlock]) -> TabletRecords:
        """The records of the new blocks; usually all of them are new, and they were joined before."""
        received = self._received.blocks
        if self._joined is not None and len(blocks) == len(received) and all(map(is_, blocks, received)):
            return self._joined
        return joined_records(blocks)

    def applied(self, blocks: list[PlacedBlock]) -> Applied:
        """See the class."""
        for block in blocks:
            self._tablet.apply(block)
        self._tablet.received.origin_intervals.apply(self._origins)
        self._tablet.received.apply_high_water(self._received.stream, self._high_water)
        written = sum(block.batch.num_rows for block in blocks)
        total = 0 if self._joined is None else self._joined.batch.num_rows
        return Applied(self._high_water, written, total - written)

    def failed(self, error: BookkeeperError) -> None:
        """See the class."""
        del error
        self._tablet.received.origin_intervals.take_back(self._origins_before)
        if self._undo is not None:
            self._tablet.take_back(self._undo)


class SliceCheck(SliceApply):
    """The submission of a slice that was acknowledged before: its tablet counts the records that it would take now, and
    takes none. So it may come again, or late.
    """

    _missing: int = 0

    def prepare(self, point: AppendPoint) -> list[DraftBlock]:
        """See the class."""
        self._check_tablet()
        # A record that a given-up log's tail may bring is not missing: the tablet asks for it again (R19).
        if not self._tablet.given_up.awaits_tails:
            moment = self._context.moment(self._tablet.extent.table_id, point)
            new = self._new_records(self._dedup_by_high_water(), moment)
            self._missing = 0 if new is None else sum(block.records.batch.num_rows for block in new.blocks)
        return []

    def applied(self, blocks: list[PlacedBlock]) -> Applied:
        """See the class."""
        del blocks
        total = 0 if self._joined is None else self._joined.batch.num_rows
        return Applied(self._received.to, self._missing, total - self._missing)
