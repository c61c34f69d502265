"""One lane of the replication worker: the queue and the thread of one peer cluster.

The thread takes a batch of ranges, ships it in one replay run, and leaves the books and the reports to ``lane_books``.
It takes only streams that the books know. If it dies, the process dies with it. ``worker_plan`` decides.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial

from bookkeeper.errors import (
    BookkeeperError,
    CorruptionError,
    NotFoundError,
    UnavailableError,
    is_away,
)
from bookkeeper.model import BlockRange
from bookkeeper.replay.ranges import RangeResult
from bookkeeper.replay.stream.filters import share_up_to
from bookkeeper.rpc.contract.messages import WorkItem, WorkReport
from bookkeeper.runtime.threads import guarded_thread
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.reading.block_reader import read_headers
from bookkeeper.tserver.shipping.follower import ENDED, Follower, is_for_runs
from bookkeeper.tserver.shipping.lane_books import LaneBooks
from bookkeeper.tserver.shipping.older_peers import OlderPeers
from bookkeeper.tserver.shipping.open_streams import OpenStreams
from bookkeeper.tserver.shipping.worker_lane_tools import LaneTools
from bookkeeper.tserver.shipping.worker_plan import (
    LanePlan,
    Queued,
    StreamId,
    behind_earlier_log,
    failed,
    outcome_of,
    ranges_of,
    skip_quarantined,
    stream_of,
)

LOG = logging.getLogger(__name__)

REPLAY_KIND = "replay"

Report = Callable[[Sequence[WorkReport]], None]


class Lane:
    """The queue and the thread of one peer cluster; starts at once."""

    def __init__(self, cluster: str, tools: LaneTools, report: Report) -> None:
        """``report`` gets the reports of ranges whose offsets are in the books."""
        self._cluster = cluster
        self._tools = tools
        self._plan = LanePlan(tools.settings.tserver.lane_ranges_max)
        self._open = OpenStreams(cluster, tools.own_logs, tools.destinations, tools.clock)
        self._older = OlderPeers(tools.coordination, tools.clock)
        self._follower: Follower | None = None
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._stopped = False
        self._books = LaneBooks(cluster, tools, self._open, self._plan, self._lock, self._wake_all, report)
        self._thread = guarded_thread(f"replication-{cluster}", self._run)
        self._thread.start()

    def offer(self, item: WorkItem) -> None:
        """Queue a range; raises OverloadedError."""
        with self._changed:
            self._open.open(item)
            if self._follower is None or not self._follower.follows(item):
                self._plan.offer(item)
            elif self._follower is not None:
                self._follower.wake()
            self._changed.notify_all()

    def follow(self, run: str, results: bytes, wait_ms: int) -> bytes:
        """A poll of a task that follows; see the contract."""
        return ENDED if self._follower is None else self._follower.poll(run, results, wait_ms)

    def is_followed(self) -> bool:
        """Whether a task ships all records of this session for the peer at once, or there are none."""
        with self._changed:
            if not self._open.newest:
                return True
            return self._follower is not None and self._follower.is_active and self._open.flows

    def wake(self) -> None:
        """A log of this session has more durable records."""
        with self._changed:
            if self._follower is not None:
                self._follower.wake()
            if self._follower is None or not self._follower.is_active:
                self._changed.notify_all()

    def stop(self) -> None:
        """End after the batch under way."""
        with self._changed:
            self._stopped = True
            if self._follower is not None:
                self._follower.stop()
            self._changed.notify_all()

    def join(self, timeout_ms: int) -> None:
        """Wait for the end of the lane's threads after :meth:`stop`, for so long each."""
        self._thread.join(timeout_ms / 1000)
        with self._changed:
            self._books.stop()
        self._books.join(timeout_ms)

    def _run(self) -> None:
        while batch := self._next():
            self._work(batch)

    def _next(self) -> list[Queued]:
        while True:
            with self._changed:
                if self._stopped:
                    return []
                for item in self._due():
                    self._plan.offer(item)
                self._books.open_soon(one.item for one in self._plan.queue.values() if self._plan.waits_for_books(one))
                if self._open.must_look:
                    self._books.look_soon()
                busy: Collection[StreamId] = ()
                if self._follower is not None:
                    self._follower.take_over()
                    busy = self._follower.busy
                if batch := self._plan.take(partial(self._is_ready, busy)):
                    return batch
                self._changed.wait(self._wait_ms() / 1000)

    def _is_ready(self, busy: Collection[StreamId], queued: Queued) -> bool:
        """Whether a run may take a range: no task has its stream, and it needs nothing of the books."""
        return stream_of(queued.item) not in busy and not self._plan.waits_for_books(queued)

    def _wake_all(self) -> None:
        """The books told what ranges wait for."""
        self._changed.notify_all()
        if self._follower is not None:
            self._follower.wake()

    def _wait_ms(self) -> float:
        return self._open.wait_ms() if self._follower is None else min(self._open.wait_ms(), self._follower.wait_ms)

    def _due(self) -> list[WorkItem]:
        """Ranges of open streams for a run: all while no task follows, and else those that are not for a task."""
        if self._follower is None:
            found = self._open.due(self._plan)
            if not self._open.may_be_followed():
                return found
            self._follower = self._new_follower()
        self._follower.give_up_overdue()
        found = self._open.due(self._plan, self._follower.busy)
        if found and not self._follower.is_active:
            self._follower.note_record()
        self._follower.begin_due()
        if self._follower.is_active:
            return [item for item in found if is_for_runs(item, item.first_offset - 1)]
        return found

    def _new_follower(self) -> Follower:
        return Follower(
            self._cluster,
            self._tools,
            self._open,
            self._plan,
            self._changed,
            self._lock,
            self._books,
        )

    def _work(self, batch: list[Queued]) -> None:
        with self._changed:
            before = self._plan.progress_before(batch)
            known = dict(self._plan.progress_of)
        results: dict[int, RangeResult] = {}
        try:
            progress_of = [
                skip_quarantined(progress, queued.item.passed, partial(share_behind, self._tools.volume, queued.item))
                for queued, progress in zip(batch, before, strict=True)
            ]
            ranges = ranges_of(batch, progress_of, self._tools.settings.instance.instance_id)
            ranges = [behind_earlier_log(r, known, self._tools.goes_on_here) for r in ranges]
            checked_in = self._older.checked_in(ranges)
            ranges, away = self._tools.placed(ranges)
            results = self._tools.ship(ranges) if ranges else {}
            if self._older.note(ranges, results, progress_of, known, checked_in):
                with self._changed:
                    self._plan.confirm_nothing()
            outcomes = [
                failed(progress_of[n], away[n])
                if n in away
                else outcome_of(queued, progress_of[n], results.get(n), checked_in.get(queued.item.peer_instance_id, 0))
                for n, queued in enumerate(batch)
            ]
        except BookkeeperError as error:
            LOG.warning("shipping %d ranges to %s failed: %s", len(batch), self._cluster, error)
            results = {}
            outcomes = [failed(progress, error) for progress in before]
        settled = list(zip(batch, outcomes, strict=True))
        with self._changed:
            self._plan.settle(settled)
            self._open.settle(settled)
            for n, (queued, outcome) in enumerate(settled):
                self._books.add_run(queued.item, before[n], outcome, results.get(n))
            if self._follower is not None:
                self._follower.wake()


def share_behind(volume: Volume, item: WorkItem, blocks: BlockRange) -> tuple[int, int]:
    """Records and bytes for the item's target in its file up to the end of some blocks, by their headers. Damaged
    headers add nothing; the next block for the target has the sum again.
    """
    found = (0, 0)
    try:
        for at in read_headers(volume, item.file, blocks.start_position or None):
            if at.last_offset > blocks.last:
                break
            found = share_up_to(at.header, item.target) or found
    except (CorruptionError, NotFoundError) as error:
        LOG.info("the share of %s up to record %d for %s is unknown: %s", item.file, blocks.last, item.target, error)
    except UnavailableError as error:
        if not is_away(error):
            raise
        LOG.info("the share of %s waits for its host: %s", item.file, error)
    return found
