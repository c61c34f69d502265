"""What a lane of the replication worker ships next, and what an outcome means: pure.

Arrives: ranges that the master hands out (repeated, overlapping, out of date), and result rows. Leaves: the next
ranges to ship, each right behind what the books call finished, and what is to be written and reported. Survives a
crash: nothing; the finished offsets are in the books, and the master hands the rest out again.
Rules: R13, R19 and R24.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from bookkeeper.errors import BookkeeperError, OverloadedError
from bookkeeper.model import BlockRange, TargetKey
from bookkeeper.replay.ranges import Range, RangeError, RangeResult
from bookkeeper.rpc.contract.messages import WorkItem, WorkReport

ShareBehind = Callable[[BlockRange], tuple[int, int]]
"""What of a file up to the end of these blocks is a target's, records and bytes; zeros when they do not say."""

StreamId = tuple[str, TargetKey, str]
"""File, target and run id ("" but for what is shipped again on purpose)."""

GAPS_MAX = 8
"""Times in a row that a peer may say it has less than the books do; beyond it the range is reported as failed."""

FACTS_MAX = 10_000
"""Streams whose finished offset and position are remembered; a forgotten one is read from the books again."""


@dataclass(frozen=True, slots=True)
class Fact:
    """How far a stream is. ``offset``: everything up to it is durable at the peer. ``booked``: the books say so.

    They differ only after a gap: then ``offset`` is what the peer says it has (R19). ``position`` is the byte position
    behind ``offset``, 0 when not known. ``records`` and ``size``: what of the file up to ``booked`` is the target's, as
    the last block for it that was read says.
    """

    offset: int
    booked: int
    position: int = 0
    records: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Queued:
    """Ship what is missing up to ``item.last_offset``, never further. ``turn`` orders: least recently served first."""

    item: WorkItem
    turn: int
    gaps: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a result row means: the new fact, what stays queued (None: nothing), and the error to report.

    ``served`` False: the time of the run was up before the stream's turn came, so it keeps its place.
    """

    fact: Fact
    queued: Queued | None
    error: RangeError | None
    served: bool = True


def stream_of(item: WorkItem) -> StreamId:
    """The stream that a work item belongs to."""
    return item.file, item.target, item.run_id


def merged(known: WorkItem, new: WorkItem) -> WorkItem:
    """One item for both: as far as the farther, in the words of the newer master. The same again changes nothing."""
    words = known if known.epoch > new.epoch else new
    return replace(words, last_offset=max(known.last_offset, new.last_offset))


def needs_books(fact: Fact | None, item: WorkItem) -> bool:
    """Nothing is known of the stream here, or the master knows more: another worker has shipped some of it."""
    return fact is None or item.first_offset - 1 > fact.booked


def is_stale(fact: Fact, item: WorkItem) -> bool:
    """Finished is already past the range: there is nothing to ship, only to report."""
    return fact.offset >= item.last_offset


def pass_over(fact: Fact, passed: Iterable[BlockRange], share_behind: ShareBehind) -> Fact:
    """The fact behind what is in quarantine right behind it: like a range that is filtered wholly, it holds nothing
    that the target is to get from this stream, so the fact moves past it (R19). A row of the books keeps it meanwhile.
    """
    for blocks in sorted(passed):
        if blocks.first == fact.offset + 1:
            records, size = share_behind(blocks)
            fact = Fact(
                blocks.last,
                max(fact.booked, blocks.last),
                blocks.end_position,
                max(fact.records, records),
                max(fact.size, size),
            )
    return fact


def last_to_ship(item: WorkItem, fact: Fact) -> int:
    """Where a range ends that begins behind the fact: with the item, or before what is in quarantine."""
    return min([item.last_offset, *(blocks.first - 1 for blocks in item.passed if blocks.first > fact.offset + 1)])


def range_to_ship(queued: Queued, fact: Fact, range_id: int, own_instance_id: str) -> Range:
    """The range from right behind the fact as far as it goes: a hole would make the fact a claim (R19)."""
    item = queued.item
    return Range(
        range_id=range_id,
        file=item.file,
        first=fact.offset + 1,
        last=last_to_ship(item, fact),
        position_hint=fact.position,
        target=item.target,
        peer_quorum=item.peer_quorum,
        peer_instance_id=item.peer_instance_id,
        own_instance_id=own_instance_id,
        finished=fact.offset,
        order_key=queued.turn,
        run_id=item.run_id,
        passed_to=max((blocks.last for blocks in item.passed if blocks.last <= fact.offset), default=0),
    )


def judge(queued: Queued, fact: Fact, result: RangeResult) -> Outcome:
    """What becomes of a stream after a run.

    Short without an error: the rest stays queued. A gap below the fact: read on behind the peer's high-water. Any
    other error: the stream leaves the queue, and the master decides when it comes back.
    """
    advanced = advance(fact, result)
    if result.error is None:
        rest = replace(queued, gaps=0) if advanced.offset < queued.item.last_offset else None
        return Outcome(advanced, rest, None, served=result.blocks > 0)
    if result.high_water is not None and result.high_water < advanced.offset and queued.gaps < GAPS_MAX:
        lowered = replace(advanced, offset=result.high_water, position=0)
        return Outcome(lowered, replace(queued, gaps=queued.gaps + 1), None)
    return Outcome(advanced, None, result.error)


def advance(fact: Fact, result: RangeResult) -> Fact:
    """The fact after what a result row acknowledges; never backwards."""
    if result.acked_offset <= fact.offset:
        return fact
    return Fact(
        result.acked_offset,
        max(fact.booked, result.acked_offset),
        result.acked_position,
        max(fact.records, result.share_records),
        max(fact.size, result.share_bytes),
    )


@dataclass(slots=True)
class LanePlan:
    """The queue of one lane: at most one entry a stream, ``ranges_max`` entries in all. Used under the lane's lock."""

    ranges_max: int
    queue: dict[StreamId, Queued] = field(default_factory=dict)
    running: dict[StreamId, Queued] = field(default_factory=dict)
    facts: OrderedDict[StreamId, Fact] = field(default_factory=OrderedDict)
    turns: int = 0

    def __len__(self) -> int:
        """Ranges that wait or are being shipped."""
        return len(self.queue.keys() | self.running.keys())

    def offer(self, item: WorkItem) -> None:
        """Queue a range, or stretch the one that is queued; raises OverloadedError when there is no room for it."""
        key = stream_of(item)
        known = self.queue.get(key)
        if known is not None:
            self.queue[key] = replace(known, item=merged(known.item, item))
            return
        under_way = self.running.get(key)
        if under_way is not None and covers(under_way.item, item):
            return
        if under_way is None and len(self) >= self.ranges_max:
            raise OverloadedError(
                f"{self.ranges_max} ranges wait for {item.target.cluster} here; hand out more when some are done"
            )
        self.queue[key] = Queued(item, self._turn())

    def take(self) -> list[Queued]:
        """Everything that waits, least recently served first; it is running from now on."""
        batch = sorted(self.queue.values(), key=lambda queued: queued.turn)
        self.running = {stream_of(queued.item): queued for queued in batch}
        self.queue = {}
        return batch

    def settle(self, outcomes: Iterable[tuple[Queued, Outcome]]) -> None:
        """The run of :meth:`take` is over."""
        self.running = {}
        for queued, outcome in outcomes:
            key = stream_of(queued.item)
            self.learn(key, outcome.fact)
            if outcome.queued is None:
                continue
            rest, newer = outcome.queued, self.queue.get(key)
            if outcome.served:
                rest = replace(rest, turn=self._turn())
            self.queue[key] = rest if newer is None else replace(rest, item=merged(rest.item, newer.item))

    def learn(self, key: StreamId, fact: Fact) -> None:
        """Remember how far a stream is."""
        self.facts[key] = fact
        self.facts.move_to_end(key)
        if len(self.facts) > FACTS_MAX:
            self.facts.popitem(last=False)

    def _turn(self) -> int:
        self.turns += 1
        return self.turns


def covers(known: WorkItem, new: WorkItem) -> bool:
    """The range under way already goes as far, in the words of the same master."""
    words = (new.txid, new.epoch, new.passed) == (known.txid, known.epoch, known.passed)
    return new.last_offset <= known.last_offset and words


def ranges_of(batch: Sequence[Queued], facts: Sequence[Fact], own_instance_id: str) -> list[Range]:
    """What is to be shipped of a batch; a range's id is its place. Stale items are left out."""
    return [
        range_to_ship(queued, facts[place], place, own_instance_id)
        for place, queued in enumerate(batch)
        if not is_stale(facts[place], queued.item)
    ]


def outcome_of(queued: Queued, fact: Fact, result: RangeResult | None) -> Outcome:
    """The outcome of one range of a batch; a stale one, which was not shipped, is done as it is."""
    return Outcome(fact, None, None) if result is None else judge(queued, fact, result)


def failed(fact: Fact, error: BookkeeperError) -> Outcome:
    """The run as a whole failed, or the books could not be written: nothing is finished beyond what they said."""
    return Outcome(fact, None, RangeError.of(error))


def report_of(item: WorkItem, outcome: Outcome, result: RangeResult | None, queued: int) -> WorkReport:
    """The worker's word on one range. Counts are those of this run; the finished offset is in the books, but for runs
    of their own.
    """
    error = outcome.error
    return WorkReport(
        txid=item.txid,
        file=item.file,
        target=item.target,
        finished_offset=outcome.fact.booked,
        records=result.records if result else 0,
        bytes=result.bytes if result else 0,
        filtered=result.filtered if result else 0,
        resends=result.resent if result else 0,
        error=error.message if error else None,
        error_transient=error.transient if error else False,
        queued_ranges=queued,
        error_code=error.code if error else None,
        failed=result.failed if error and result else None,
        run_id=item.run_id,
        share_records=outcome.fact.records,
        share_bytes=outcome.fact.size,
    )
