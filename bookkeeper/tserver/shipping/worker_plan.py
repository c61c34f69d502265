"""The plan of one lane: which ranges it ships next, and what the result of a range means. Pure.

The master hands ranges out, also repeated, overlapping or stale ones. Each range to ship begins right behind the
finished offset of its stream. After a crash the finished offsets are in the books, and the master hands the remaining
ranges out again. Rules: R13, R19 and R24.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

import combiners
from bookkeeper.bulk.import_log import is_import_log
from bookkeeper.errors import AT_BOOKS, BookkeeperError, IncompatibleError, OverloadedError, PeerOlderError
from bookkeeper.model import BlockRange, TargetKey
from bookkeeper.replay.ranges import Range, RangeError, RangeResult
from bookkeeper.rpc.contract.messages import WorkItem, WorkReport

ShareBehind = Callable[[BlockRange], tuple[int, int]]
"""Of a file up to the end of these blocks: records and bytes for a target; zeros when no header has them."""

StreamId = tuple[str, TargetKey, str]
"""File, target and run id ("" but for a run that ships records again on purpose)."""

GAPS_MAX = 8
"""A peer may report less than the books this often in a row; then the range is reported as failed."""

PROGRESS_MAX = 10_000
"""Streams whose finished offset and position are remembered; a forgotten one is read from the books again."""


class Confirmed(Struct, frozen=True):
    """The last block that a peer acknowledged: its first record, and a byte position at or before it. The peer had
    confirmed the check-in of ``checked_in_ms`` before.
    """

    first: int
    position: int
    checked_in_ms: int


class StreamProgress(Struct, frozen=True):
    """The progress of a stream. ``offset``: the peer has all records up to it, durably. ``recorded``: the offset in the
    books.

    They differ only after a gap: then ``offset`` is the high-water that the peer reports (R19). ``position`` is the
    byte position behind ``offset``, 0 = unknown. ``records`` and ``size``: of the file up to ``recorded``, the records
    and bytes for the target, by the last block for it. ``confirmed``: None = not known, or the peer lacks it.
    """

    offset: int
    recorded: int
    position: int = 0
    records: int = 0
    size: int = 0
    confirmed: Confirmed | None = None


class Queued(Struct, frozen=True):
    """A queued range: ship the missing records up to ``item.last_offset``; the lowest ``turn`` comes first.

    ``is_read``: the books were asked about the range as it is. ``first_seq``: of an import, the number of the file's
    first record in its tablet.
    """

    item: WorkItem
    turn: int
    gaps: int = 0
    is_read: bool = False
    first_seq: int = 0


class Outcome(Struct, frozen=True):
    """The meaning of a result row: the new progress, the range that stays queued (or None), and the error to report.

    ``served`` False: the run ended before the stream's turn came, so the stream keeps its turn.
    """

    progress: StreamProgress
    queued: Queued | None
    error: RangeError | None
    served: bool = True


def stream_of(item: WorkItem) -> StreamId:
    """The stream that a work item belongs to."""
    return item.file, item.target, item.run_id


def merged_item(previous: WorkItem, new: WorkItem) -> WorkItem:
    """One item for both: up to the later end, with the fields of the newer master. A repeated item changes nothing."""
    newer = previous if previous.epoch > new.epoch else new
    return replace(newer, last_offset=max(previous.last_offset, new.last_offset))


def must_read_books(progress: StreamProgress | None, item: WorkItem) -> bool:
    """Whether this worker has no progress of the stream, or an older one than the master. The books have none of a
    repeated run: the stream of its file went past its range.
    """
    if item.run_id:
        return False
    return progress is None or item.first_offset - 1 > progress.recorded


def is_stale(progress: StreamProgress, item: WorkItem) -> bool:
    """Whether the whole range is finished already: the worker only reports it."""
    return progress.offset >= item.last_offset


def skip_quarantined(
    progress: StreamProgress, passed: Iterable[BlockRange], share_behind: ShareBehind
) -> StreamProgress:
    """The progress behind quarantined ranges that follow it directly. Like a range that the filter drops wholly, they
    hold no record that this stream brings to the target, so the progress moves past them (R19). A row of the books has
    them until a person decides.
    """
    for blocks in sorted(passed):
        if blocks.first == progress.offset + 1:
            records, size = share_behind(blocks)
            progress = StreamProgress(
                blocks.last,
                max(progress.recorded, blocks.last),
                blocks.end_position,
                max(progress.records, records),
                max(progress.size, size),
                progress.confirmed,
            )
    return progress


def last_to_ship(item: WorkItem, progress: StreamProgress) -> int:
    """The end of a range that begins behind the progress: the end of the item, or the next quarantined range."""
    return min([item.last_offset, *(blocks.first - 1 for blocks in item.passed if blocks.first > progress.offset + 1)])


def range_to_ship(queued: Queued, progress: StreamProgress, range_id: int, own_instance_id: str) -> Range:
    """The range that begins right behind the progress: behind a hole, it would claim the hole (R19)."""
    item = queued.item
    return Range(
        range_id=range_id,
        file=item.file,
        first=progress.offset + 1,
        last=last_to_ship(item, progress),
        position_hint=progress.position,
        target=item.target,
        peer_quorum=item.peer_quorum,
        peer_instance_id=item.peer_instance_id,
        own_instance_id=own_instance_id,
        finished=progress.offset,
        order_key=queued.turn,
        first_seq=queued.first_seq,
        run_id=item.run_id,
        passed_to=max((blocks.last for blocks in item.passed if blocks.last <= progress.offset), default=0),
        confirm_file=item.file if progress.confirmed else "",
        confirm_first=progress.confirmed.first if progress.confirmed else 0,
        confirm_position=progress.confirmed.position if progress.confirmed else 0,
    )


def behind_earlier_log(
    r: Range, progress_of: Mapping[StreamId, StreamProgress], is_there: Callable[[str], bool]
) -> Range:
    """The range that begins a log, with the last block that the peer acknowledged of an earlier log of the same target:
    no other range asks the peer for that one any more. ``is_there``: whether a log is one of this session.
    """
    if r.finished or r.run_id or not is_there(r.file):
        return r
    earlier = [
        (file, progress.confirmed)
        for (file, target, run_id), progress in progress_of.items()
        if target == r.target and not run_id and progress.confirmed and file < r.file and is_there(file)
    ]
    if not earlier:
        return r
    file, confirmed = max(earlier, key=lambda found: found[0])
    return replace(r, confirm_file=file, confirm_first=confirmed.first, confirm_position=confirmed.position)


def is_older(result: RangeResult) -> bool:
    """Whether the peer lacks what it had acknowledged."""
    return result.error is not None and result.error.code == PeerOlderError.code


def outcome_after(queued: Queued, progress: StreamProgress, result: RangeResult, checked_in_ms: int = 0) -> Outcome:
    """The outcome of a run for a stream. ``checked_in_ms``: of the last check-in that the peer confirmed before it.

    A peer that came back older was noted: the rest is shipped without that question.

    A short run without an error: the remaining range stays queued. A gap: ship again from the peer's high-water. Any
    other error: the stream leaves the queue, and the master hands it out again.
    """
    advanced = advance(progress, result, queued.item.last_offset, checked_in_ms)
    if is_older(result):
        return Outcome(replace(advanced, confirmed=None), replace(queued, gaps=0), None)
    if result.error is None:
        remaining = replace(queued, gaps=0) if advanced.offset < queued.item.last_offset else None
        return Outcome(advanced, remaining, None, served=result.blocks > 0)
    if result.high_water is not None and result.high_water < advanced.offset and queued.gaps < GAPS_MAX:
        lowered = replace(advanced, offset=result.high_water, position=0)
        return Outcome(lowered, replace(queued, gaps=queued.gaps + 1), None)
    return Outcome(advanced, None, result.error)


def advance(progress: StreamProgress, result: RangeResult, needed: int, checked_in_ms: int = 0) -> StreamProgress:
    """The progress after a result row; it never goes backwards. ``needed``: the last offset that was handed out. Raises
    IncompatibleError when the row has more.
    """
    if result.acked_offset <= progress.offset:
        return progress
    before = combiners.ReplicationStatus(replication_needed_offset=needed, replication_finished_offset=progress.offset)
    try:
        after = combiners.finish(before, result.acked_offset - progress.offset)
    except combiners.StatusError as error:
        raise IncompatibleError(f"the replay process answered more than it was asked for: {error}") from error
    return StreamProgress(
        after.replication_finished_offset,
        max(progress.recorded, after.replication_finished_offset),
        result.acked_position,
        max(progress.records, result.share_records),
        max(progress.size, result.share_bytes),
        Confirmed(result.block_first, result.block_position, checked_in_ms)
        if result.block_first
        else progress.confirmed,
    )


class LanePlan(Struct):
    """The queue of one lane: at most one entry a stream, ``ranges_max`` entries in all. Used under the lane's lock."""

    ranges_max: int
    queue: dict[StreamId, Queued] = field(default_factory=dict)
    running: dict[StreamId, Queued] = field(default_factory=dict)
    progress_of: OrderedDict[StreamId, StreamProgress] = field(default_factory=OrderedDict)
    """Of streams that have a cell in the books (R20), and of repeated runs."""
    turns: int = 0

    def __len__(self) -> int:
        """Ranges that wait or are being shipped."""
        return len(self.queue.keys() | self.running.keys())

    def offer(self, item: WorkItem) -> None:
        """Queue a range, or extend the queued one; raises OverloadedError when the queue is full."""
        key = stream_of(item)
        previous = self.queue.get(key)
        if previous is not None:
            self.queue[key] = extended(previous, item)
            return
        under_way = self.running.get(key)
        if under_way is not None and covers(under_way.item, item):
            return
        if under_way is None and len(self) >= self.ranges_max:
            raise OverloadedError(
                f"{self.ranges_max} ranges wait for {item.target.cluster} here; hand out more when some are done"
            )
        self.queue[key] = Queued(item, self._turn())

    def waits_for_books(self, queued: Queued) -> bool:
        """Whether a range needs the books before it is shipped: for the cell and the progress of its stream, or for the
        place of an import.
        """
        item, progress = queued.item, self.progress_of.get(stream_of(queued.item))
        if queued.is_read and (progress is not None or item.run_id):
            return False
        return is_import_log(item.file) or must_read_books(progress, item)

    def open(self, item: WorkItem, progress: StreamProgress, first_seq: int) -> None:
        """The books were asked about a range: they have its stream's cell, and this progress."""
        key = stream_of(item)
        known, queued = self.progress_of.get(key), self.queue.get(key)
        if known is None or progress.recorded > known.recorded:
            self.remember(key, progress)
        if queued is not None:
            is_read = queued.item.first_offset <= item.first_offset
            self.queue[key] = replace(queued, is_read=is_read, first_seq=first_seq)

    def take(self, is_ready: Callable[[Queued], bool] = lambda _: True) -> list[Queued]:
        """Take all queued ranges that are ready, the least recently served first; they are running from now on."""
        found = {key: queued for key, queued in self.queue.items() if is_ready(queued)}
        self.queue = {key: queued for key, queued in self.queue.items() if key not in found}
        self.running = found
        return sorted(found.values(), key=lambda queued: queued.turn)

    def progress_before(self, batch: Sequence[Queued]) -> list[StreamProgress]:
        """The progress of each stream of a batch; none of a repeated run that begins."""
        return [self.progress_of.get(stream_of(queued.item), StreamProgress(0, 0)) for queued in batch]

    def settle(self, outcomes: Iterable[tuple[Queued, Outcome]]) -> None:
        """The run of :meth:`take` is over."""
        self.running = {}
        for queued, outcome in outcomes:
            key = stream_of(queued.item)
            self.remember(key, outcome.progress)
            if outcome.queued is None:
                continue
            remaining, newer = outcome.queued, self.queue.get(key)
            if outcome.served:
                remaining = replace(remaining, turn=self._turn())
            self.queue[key] = remaining if newer is None else extended(remaining, newer.item)

    def remember(self, key: StreamId, progress: StreamProgress) -> None:
        """Remember how far a stream is."""
        self.progress_of[key] = progress
        self.progress_of.move_to_end(key)
        if len(self.progress_of) > PROGRESS_MAX:
            self.progress_of.popitem(last=False)

    def confirm_nothing(self) -> None:
        """The peer lacks what it acknowledged, and that was noted: it is not asked for that again."""
        for key, progress in self.progress_of.items():
            self.progress_of[key] = replace(progress, confirmed=None)

    def _turn(self) -> int:
        self.turns += 1
        return self.turns


def extended(queued: Queued, new: WorkItem) -> Queued:
    """The range up to the end of a later item. The books are asked again if that begins later."""
    is_read = queued.is_read and new.first_offset <= queued.item.first_offset
    return replace(queued, item=merged_item(queued.item, new), is_read=is_read)


def covers(previous: WorkItem, new: WorkItem) -> bool:
    """Whether the range under way goes as far, with the same fields of the master."""
    same_order = (new.txid, new.epoch, new.passed) == (previous.txid, previous.epoch, previous.passed)
    return new.last_offset <= previous.last_offset and same_order


def ranges_of(batch: Sequence[Queued], progress_of: Sequence[StreamProgress], own_instance_id: str) -> list[Range]:
    """The ranges of a batch to ship, without stale ones; the id of a range is its index in the batch."""
    return [
        range_to_ship(queued, progress_of[index], index, own_instance_id)
        for index, queued in enumerate(batch)
        if not is_stale(progress_of[index], queued.item)
    ]


def outcome_of(queued: Queued, progress: StreamProgress, result: RangeResult | None, checked_in_ms: int = 0) -> Outcome:
    """The outcome of one range of a batch; a stale range was not shipped, and is done."""
    return Outcome(progress, None, None) if result is None else outcome_after(queued, progress, result, checked_in_ms)


def failed(progress: StreamProgress, error: BookkeeperError) -> Outcome:
    """The outcome when the run failed, or the books could not be written: the progress stays as it was."""
    return Outcome(progress, None, RangeError.of(error, AT_BOOKS))


def report_of(item: WorkItem, outcome: Outcome, result: RangeResult | None, queued: int) -> WorkReport:
    """The report on one range. Counts are those of this run; the finished offset is in the books, but for runs that
    ship records again.
    """
    error = outcome.error
    return WorkReport(
        txid=item.txid,
        file=item.file,
        target=item.target,
        finished_offset=outcome.progress.recorded,
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
        share_records=outcome.progress.records,
        share_bytes=outcome.progress.size,
        failed_at=error.failed_at if error else None,
    )
