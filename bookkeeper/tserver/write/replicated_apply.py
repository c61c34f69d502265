"""Replicated ranges in the commit thread: what is new of one goes into one block, with its place in the stream.

Arrives: one tablet's share of a range, decoded and checked. Leaves: a draft for the group committer, or the news that
nothing of it is new. Survives a crash: the block, whose header says which part of the stream it is (R18) and where its
records were first written (R22). Rules: R18-R20 and R22.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import is_

import pyarrow as pa

from bookkeeper.errors import (
    BookkeeperError,
    GapError,
    InvalidInputError,
    NotServingError,
    OverloadedError,
    UnavailableError,
)
from bookkeeper.model import Origin, StreamKey
from bookkeeper.origins import Root, RootIntervals
from bookkeeper.storage.wal import DraftBlock, PlacedBlock
from bookkeeper.tserver.commit.submission import AppendPoint, Durability
from bookkeeper.tserver.origins import origin_dedup
from bookkeeper.tserver.origins.partial_high_water import unknown_parts
from bookkeeper.tserver.tablets.tablet import Moment, ReceivedBlock, ServedTablet, Share, Undo
from bookkeeper.tserver.write import write_guards
from bookkeeper.tserver.write.share_decision import Accept, Gap, decide
from bookkeeper.tserver.write.write_context import WriteContext


@dataclass(frozen=True, slots=True)
class ReceivedRange:
    """One tablet's share of ``(after, to]`` of a source file."""

    stream: StreamKey
    provenance: tuple[str, ...]
    acked: int
    after: int
    to: int
    blocks: tuple[ReceivedBlock, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a range at one tablet: records written now, and records that were here already."""

    high_water: int
    applied: int
    dropped: int


def join_shares(blocks: Sequence[ReceivedBlock]) -> Share:
    """The records of some blocks as one, in order, for one WAL block (rule R18). Raises InvalidInputError when a column
    of them is longer than 2 GiB: the sender halves its message then.
    """
    shares = [block.share for block in blocks]
    if len(shares) == 1:
        return shares[0]
    try:
        batch = pa.concat_batches([share.batch for share in shares])
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"{len(shares)} blocks are too long to be one: {error}; send fewer at once") from error
    return Share(
        batch,
        sorted({family for share in shares for family in share.families}),
        min(share.min_row for share in shares),
        max(share.max_row for share in shares),
    )


def was_forgotten(knows: bool, forgets: int, now_forgets: int) -> bool:
    """Rule R20: the tablet knows nothing of a stream that the books still had when ``forgets`` streams were forgotten
    here; more were since, and it may be one of them.
    """
    return not knows and forgets != now_forgets


class ReplicatedApply:
    """One tablet's share of a replicated range; applied at most once, whoever else sends it at the same time.

    ``forgets``: of the tablet, before the stream was found in the books or among the tablet's marks.
    """

    durability = Durability.SYNC

    def __init__(self, context: WriteContext, tablet: ServedTablet, received: ReceivedRange, forgets: int) -> None:
        self.approx_bytes = sum(int(block.share.batch.nbytes) for block in received.blocks)
        self._context = context
        self._tablet = tablet
        self._received = received
        self._forgets = forgets
        self._whole = join_shares(received.blocks) if received.blocks else None
        self._high_water = 0
        self._undo: Undo | None = None
        self._held: Mapping[Root, RootIntervals] = {}
        self._held_before: Mapping[Root, RootIntervals | None] = {}

    def prepare(self, point: AppendPoint) -> list[DraftBlock]:
        """See :class:`Submission`. Raises GapError (R19), NotServingError, NotFoundError, InvalidInputError,
        RefusedError, and OverloadedError when too much would have to be remembered of what came by one path only (R22).
        """
        tablet, received = self._tablet, self._received
        if not tablet.accepting:
            raise NotServingError(f"tablet {tablet.extent} leaves this server: locate it again")
        write_guards.refuse_exhausted(tablet.extent, tablet.next_seq)
        if was_forgotten(tablet.received.has_stream(received.stream), self._forgets, tablet.received.forgotten_count):
            raise UnavailableError(
                f"{received.stream.file} may be over by now for tablet {tablet.extent}: send it again"
            )
        moment = self._context.moment(tablet.extent.table_id, point)
        known = tablet.received.staged_high_water(received.stream)
        blocks = received.blocks
        if received.stream in tablet.received.partial_high_waters:
            blocks = unknown_parts(blocks, tablet.received.partial_high_waters[received.stream])
        decision = decide(known, received.acked, received.after, received.to, blocks)
        if isinstance(decision, Gap):
            raise GapError(
                f"{received.stream.file} is here up to {decision.high_water}, the range starts after {received.after}",
                {"high_water": str(decision.high_water)},
            )
        self._high_water = decision.high_water
        fresh = self._unknown(decision.blocks, moment) if isinstance(decision, Accept) else None
        if fresh is None or not fresh.blocks:
            self._undo = tablet.stage_high_water(received.stream, decision.high_water)
            return []
        origin = Origin(received.stream, received.after, decision.high_water)
        block_origins = origin_dedup.origins_of_header(fresh, received.stream, bool(moment.view.block_targets))
        draft, self._undo = tablet.stage(self._share(fresh.blocks), moment, received.provenance, origin, block_origins)
        return [draft]

    def _unknown(self, blocks: Sequence[ReceivedBlock], moment: Moment) -> origin_dedup.Taken:
        """What no other path has brought (R22); from here on it is on its way."""
        tablet = self._tablet
        stretch = (moment.wal_uri, moment.since)
        begins = partial(tablet.received.origin_intervals.begins, stretch=stretch)
        taken = origin_dedup.take(
            blocks, tablet.extent.rows, tablet.received.origin_intervals.known, begins, moment.now_ms
        )
        if not tablet.received.origin_intervals.has_room(taken.held):
            raise OverloadedError(
                f"tablet {tablet.extent} remembers too much that came by one path only: {self._received.stream.file} "
                "waits for the others"
            )
        self._held, self._held_before = taken.held, tablet.received.origin_intervals.stage(taken.held)
        return taken

    def _share(self, blocks: Sequence[ReceivedBlock]) -> Share:
        whole, received = self._whole, self._received.blocks
        if whole is not None and len(blocks) == len(received) and all(map(is_, blocks, received)):
            return whole
        return join_shares(blocks)

    def applied(self, blocks: list[PlacedBlock]) -> Applied:
        """See :class:`Submission`."""
        for block in blocks:
            self._tablet.apply(block)
        self._tablet.received.origin_intervals.apply(self._held)
        self._tablet.received.apply_high_water(self._received.stream, self._high_water)
        written = sum(block.batch.num_rows for block in blocks)
        total = 0 if self._whole is None else self._whole.batch.num_rows
        return Applied(self._high_water, written, total - written)

    def failed(self, error: BookkeeperError) -> None:
        """See :class:`Submission`."""
        del error
        self._tablet.received.origin_intervals.take_back(self._held_before)
        if self._undo is not None:
            self._tablet.take_back(self._undo)
