"""One lane of the replication worker: the queue and the thread of one peer cluster.

The thread takes a batch of ranges, ships it in one replay run, writes finished cells, and reports. If it dies, the
process dies with it. ``worker_plan`` decides, and ``worker_books`` writes the cells.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.bulk.import_log import is_import_log
from bookkeeper.bulk.import_places import read_first_seq, read_first_seq_of_range
from bookkeeper.clock import Clock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.coordination_protocol import Coordination, SessionInfo
from bookkeeper.errors import (
    AT_LOG,
    AT_REPLAY,
    FAILED_AT,
    BookkeeperError,
    CorruptionError,
    LogAwayError,
    NotFoundError,
    UnavailableError,
    failing_at,
    is_away,
)
from bookkeeper.log_homes.log_volume import LogVolume
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.model import BlockRange, TargetKey
from bookkeeper.replay.ranges import (
    RANGE_SCHEMA,
    RESULT_SCHEMA,
    Range,
    RangeResult,
    decode_table,
    encode_table,
    ranges_to_table,
    results_from_table,
)
from bookkeeper.replay.stream.filters import share_up_to
from bookkeeper.rpc.contract.messages import WorkItem, WorkReport
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.runtime.threads import guarded_thread
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.reading.block_reader import read_headers
from bookkeeper.tserver.shipping import worker_books
from bookkeeper.tserver.shipping.older_peers import OlderPeers
from bookkeeper.tserver.shipping.open_streams import Destination, Elsewhere, OpenStreams
from bookkeeper.tserver.shipping.own_log import OwnLogs
from bookkeeper.tserver.shipping.worker_plan import (
    LanePlan,
    Outcome,
    Queued,
    StreamProgress,
    behind_earlier_log,
    failed,
    must_read_books,
    outcome_of,
    ranges_of,
    report_of,
    skip_quarantined,
    stream_of,
)

LOG = logging.getLogger(__name__)

REPLAY_KIND = "replay"

Report = Callable[[Sequence[WorkReport]], None]


class LaneTools(Struct, frozen=True):
    """Collaborators that all lanes of a worker share. ``own_address``: where this tserver answers."""

    settings: Settings
    volume: Volume
    metadata: MetadataTable
    coordination: Coordination
    pool: RpcPool
    own_address: str
    own_logs: OwnLogs
    destinations: Callable[[], Mapping[TargetKey, Destination]]
    clock: Clock

    def progress_of(self, batch: Sequence[Queued], plan: LanePlan) -> list[StreamProgress]:
        """The progress of each stream of the batch: cached, or read from the books (none of repeated runs)."""
        found = []
        for queued in batch:
            progress = plan.progress_of.get(stream_of(queued.item))
            if progress is None and queued.item.run_id:
                progress = StreamProgress(0, 0)
            elif progress is None or must_read_books(progress, queued.item):
                progress = worker_books.read_progress(self.metadata, queued.item)
            found.append(progress)
        return found

    def numbered(self, ranges: Sequence[Range]) -> list[Range]:
        """The ranges, those of imports with the number of the file's first record in its tablet."""
        return [replace(r, first_seq=self._first_seq(r)) if is_import_log(r.file) else r for r in ranges]

    def _first_seq(self, r: Range) -> int:
        found = read_first_seq(self.metadata, r.file, r.target)
        if not found and r.run_id:  # the queue has passed the range, and the log's own cells may be gone
            return read_first_seq_of_range(self.metadata, r.file, r.target, r.first)
        return found

    def announce(self, batch: Sequence[Queued], progress_of: Sequence[StreamProgress]) -> None:
        """Write the cell of each new stream before its first message leaves (R20)."""
        items = [(queued.item, progress) for queued, progress in zip(batch, progress_of, strict=True)]
        fresh = [item for item, progress in items if not (progress.recorded or item.run_id)]
        if fresh:
            worker_books.announce(self.metadata, fresh)

    def ship(self, ranges: Sequence[Range]) -> dict[int, RangeResult]:
        """One replay run; results by range id. Raises UnavailableError when no replay process answers."""
        with failing_at(AT_REPLAY):
            return self._ship(ranges)

    def _ship(self, ranges: Sequence[Range]) -> dict[int, RangeResult]:
        address = pick_replay(self.coordination.sessions(REPLAY_KIND), self.own_address)
        replay = self.settings.replay
        raw = encode_table(ranges_to_table(ranges).to_batches(), RANGE_SCHEMA)
        answer = self.pool.replay(address, replay.run_timeout_ms + replay.start_timeout_ms).run(raw)
        results = {result.range_id: result for result in results_from_table(decode_table(answer, RESULT_SCHEMA))}
        missing = [r.range_id for r in ranges if r.range_id not in results]
        if missing:
            raise UnavailableError(f"{address} left out {len(missing)} of {len(ranges)} ranges in its answer")
        for r in ranges:
            if transfer := results[r.range_id].way:
                LOG.info("%s goes to %s as %s", r.file, r.target.cluster, transfer)
        return results

    def commit(self, outcomes: Sequence[tuple[Queued, Outcome]], before: Sequence[StreamProgress]) -> None:
        """Write the new finished offsets, in one call for each offset."""
        worker_books.write_finished(
            self.metadata,
            [
                (queued.item, outcome.progress)
                for (queued, outcome), progress in zip(outcomes, before, strict=True)
                if outcome.progress.recorded > progress.recorded and not queued.item.run_id
            ],
        )


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
        self._changed = threading.Condition()
        self._stopped = False
        self.thread = guarded_thread(f"replication-{cluster}", self._run)
        self.thread.start()

    def offer(self, item: WorkItem) -> None:
        """Queue a range; raises OverloadedError."""
        with self._changed:
            self._plan.offer(item)
            self._open.open(item)
            self._changed.notify_all()

    def wake(self) -> None:
        """A log of this session has more durable records."""
        with self._changed:
            self._changed.notify_all()

    def _goes_on_here(self, name: str) -> bool:
        """Whether a log is of this session, its file is there, and this lane goes on with it by itself."""
        log = self._tools.own_logs.find(name)
        return log is not None and not log.through_master

    def stop(self) -> None:
        """End after the batch under way."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _run(self) -> None:
        while batch := self._next():
            self._work(batch)

    def _next(self) -> list[Queued]:
        while True:
            with self._changed:
                if self._stopped:
                    return []
                for item in self._open.due(self._plan):
                    self._plan.offer(item)
                wanted = self._open.take_look()
                if not wanted:
                    if self._plan.queue:
                        return self._plan.take()
                    self._changed.wait(self._open.wait_ms() / 1000)
            if wanted:
                self._look(wanted)

    def _look(self, wanted: Sequence[Elsewhere]) -> None:
        """Read in the books how far other sessions shipped what streams wait for (R24)."""
        try:
            found = {key: worker_books.read_finished(self._tools.metadata, *key) for key in wanted}
        except BookkeeperError as error:
            LOG.warning("streams to %s wait for logs of other tservers: %s", self._cluster, error)
            return
        with self._changed:
            self._open.note_shipped_elsewhere(found)

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
            known = self._plan.progress_of
            ranges = [behind_earlier_log(r, known, self._goes_on_here) for r in self._tools.numbered(ranges)]
            checked_in = self._older.checked_in(ranges)
            self._tools.announce(batch, before)
            ranges, away = placed_ranges(ranges, self._tools.volume)
            results = self._tools.ship(ranges) if ranges else {}
            if self._older.note(ranges, results, progress_of, known, checked_in):
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
            waiting = len(self._plan)
        self._report([report_of(queued.item, outcomes[n], results.get(n), waiting) for n, queued in enumerate(batch)])


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


def pick_replay(sessions: Sequence[SessionInfo], own_address: str) -> str:
    """Address of a live replay process, one of this host first; raises UnavailableError when there is none."""
    host = own_address.rpartition(":")[0]
    alive = sorted((s for s in sessions if s.alive), key=lambda s: (s.address.rpartition(":")[0] != host, s.session_id))
    if not alive:
        raise UnavailableError("no replay process is running; its supervisor starts it again, and its log says more")
    return alive[0].address
