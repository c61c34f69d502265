"""One lane of the replication worker: the queue and the thread of one peer cluster.

The thread takes a batch of ranges, ships it in one replay run, writes finished cells, and reports. If it dies, the
process dies with it. ``worker_plan`` decides, and ``worker_books`` writes the cells.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from bookkeeper.errors import (
    AT_LOG,
    FAILED_AT,
    BookkeeperError,
    CorruptionError,
    LogAwayError,
    NotFoundError,
    UnavailableError,
    is_away,
)
from bookkeeper.log_homes.log_volume import LogVolume
from bookkeeper.model import BlockRange
from bookkeeper.replay.ranges import (
    Range,
    RangeResult,
)
from bookkeeper.replay.stream.filters import share_up_to
from bookkeeper.rpc.contract.messages import WorkItem, WorkReport
from bookkeeper.runtime.threads import guarded_thread
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.reading.block_reader import read_headers
from bookkeeper.tserver.shipping import worker_books
from bookkeeper.tserver.shipping.follower import ENDED, Follower, is_for_runs
from bookkeeper.tserver.shipping.older_peers import OlderPeers
from bookkeeper.tserver.shipping.open_streams import Elsewhere, OpenStreams
from bookkeeper.tserver.shipping.worker_lane_tools import LaneTools
from bookkeeper.tserver.shipping.worker_plan import (
    LanePlan,
    Queued,
    StreamProgress,
    behind_earlier_log,
    failed,
    outcome_of,
    ranges_of,
    report_of,
    skip_quarantined,
    stream_of,
)

LOG = logging.getLogger(__name__)

REPLAY_KIND = "replay"

Report = Callable[[Sequence[WorkReport]], None]


class Lane:
    """The queue and the thread of one peer cluster; starts at once."""

    def __init__(self, cluster: str, tools: LaneTools, report: Report) -> None:
        """``report`` gets the reports of each batch."""
        self._cluster = cluster
        self._tools = tools
        self._report = report
        self._plan = LanePlan(tools.settings.tserver.lane_ranges_max)
        self._open = OpenStreams(cluster, tools.own_logs, tools.destinations, tools.clock)
        self._older = OlderPeers(tools.coordination, tools.clock)
        self._follower: Follower | None = None
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._reporting = threading.Lock()
        """Its holder sends reports: an older one of a stream must not come behind a later one."""
        self._stopped = False
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
        if self._follower is not None:
            self._follower.books_thread.join(timeout_ms / 1000)

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
                wanted = self._open.take_look()
                if not wanted:
                    if batch := self._plan.take(() if self._follower is None else self._follower.busy):
                        return batch
                    self._changed.wait(self._wait_ms() / 1000)
            if wanted:
                self._look(wanted)

    def _wait_ms(self) -> float:
        return self._open.wait_ms() if self._follower is None else min(self._open.wait_ms(), self._follower.wait_ms)

    def _look(self, wanted: Sequence[Elsewhere]) -> None:
        """Read in the books how far other sessions shipped what streams wait for (R24)."""
        try:
            found = {key: worker_books.read_finished(self._tools.metadata, *key) for key in wanted}
        except BookkeeperError as error:
            LOG.warning("streams to %s wait for logs of other tservers: %s", self._cluster, error)
            return
        with self._changed:
            self._open.note_shipped_elsewhere(found)
            if self._follower is not None:
                self._follower.wake()

    def _due(self) -> list[WorkItem]:
        """Ranges of open streams for a run: all while no task follows, and else those that are not for a task."""
        if self._follower is None:
            found = self._open.due(self._plan)
            if self._open.may_be_followed():
                self._follower = self._new_follower()
                self._follower.begin_due()
            return found
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
            self._reporting,
            self._report,
        )

    def _work(self, batch: list[Queued]) -> None:
        before: list[StreamProgress] = []
        results: dict[int, RangeResult] = {}
        try:
            before = self._tools.progress_of(batch, self._plan)
            progress_of = [
                skip_quarantined(progress, queued.item.passed, partial(share_behind, self._tools.volume, queued.item))
                for queued, progress in zip(batch, before, strict=True)
            ]
            ranges = ranges_of(batch, progress_of, self._tools.settings.instance.instance_id)
            ranges = self._tools.numbered(ranges)
            with self._changed:
                known = dict(self._plan.progress_of)
            ranges = [behind_earlier_log(r, known, self._tools.goes_on_here) for r in ranges]
            checked_in = self._older.checked_in(ranges)
            self._tools.announce(batch, before)
            ranges, away = placed_ranges(ranges, self._tools.volume)
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
            self._tools.commit(list(zip(batch, outcomes, strict=True)), before)
        except BookkeeperError as error:
            LOG.warning("shipping %d ranges to %s failed: %s", len(batch), self._cluster, error)
            results = {}
            outcomes = [failed(before[n] if before else StreamProgress(0, 0), error) for n in range(len(batch))]
        settled = list(zip(batch, outcomes, strict=True))
        with self._changed:
            self._plan.settle(settled if before else [])
            self._open.settle(settled)
            if self._follower is not None:
                self._follower.wake()
                self._follower.drop_reports(stream_of(queued.item) for queued in batch)
            waiting = len(self._plan)
        with self._reporting:
            self._report(
                [report_of(queued.item, outcomes[n], results.get(n), waiting) for n, queued in enumerate(batch)]
            )


def placed_ranges(ranges: Sequence[Range], volume: Volume) -> tuple[list[Range], dict[int, LogAwayError]]:
    """The ranges, with the hosts that have their files; for each one whose host is away an error by its id, so that the
    others go on. Raises TransientError, CorruptionError.
    """
    found: list[Range] = []
    away: dict[int, LogAwayError] = {}
    for r in ranges:
        home = volume.home_of(r.file) if isinstance(volume, LogVolume) else None
        if home is None or not isinstance(volume, LogVolume):
            found.append(r)
        elif address := volume.address_of(home):
            found.append(replace(r, log_host=home.host, log_incarnation=home.incarnation, log_address=address))
        else:
            reason = f"log {r.file} lies on host {home.host}, which is away: start it"
            away[r.range_id] = LogAwayError(reason, {FAILED_AT: AT_LOG})
    return found, away


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
