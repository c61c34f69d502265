"""One lane of the replication worker: the queue and the thread of one peer cluster, and what it does with a batch.

Arrives: ranges for one peer. Leaves: replay runs, finished cells, reports. The thread either waits or works; if it
dies, the process dies with it. Survives a crash: the finished cells. Decisions are in ``worker_plan``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bookkeeper.config import Settings
from bookkeeper.coordination.coordination_protocol import Coordination, SessionInfo
from bookkeeper.errors import BookkeeperError, CorruptionError, NotFoundError, UnavailableError
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.model import BlockRange
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
from bookkeeper.storage.wal import read_headers
from bookkeeper.tserver.shipping import worker_books
from bookkeeper.tserver.shipping.worker_plan import (
    Fact,
    LanePlan,
    Outcome,
    Queued,
    failed,
    needs_books,
    outcome_of,
    pass_over,
    ranges_of,
    report_of,
    stream_of,
)

LOG = logging.getLogger(__name__)

REPLAY_KIND = "replay"

Tell = Callable[[Sequence[WorkReport]], None]


@dataclass(frozen=True, slots=True)
class LaneTools:
    """What all lanes of a worker share. ``own_address``: where this tserver answers."""

    settings: Settings
    metadata: MetadataTable
    coordination: Coordination
    pool: RpcPool
    own_address: str

    def facts(self, batch: Sequence[Queued], plan: LanePlan) -> list[Fact]:
        """How far each stream of the batch is: remembered, or read from the books, which know nothing of runs."""
        found = []
        for queued in batch:
            fact = plan.facts.get(stream_of(queued.item))
            if fact is None and queued.item.run_id:
                fact = Fact(0, 0)
            elif fact is None or needs_books(fact, queued.item):
                fact = worker_books.read_fact(self.metadata, queued.item)
            found.append(fact)
        return found

    def announce(self, batch: Sequence[Queued], facts: Sequence[Fact]) -> None:
        """Let every stream that begins have its cell before anything of it leaves (R20)."""
        items = [(queued.item, fact) for queued, fact in zip(batch, facts, strict=True)]
        fresh = [item for item, fact in items if not (fact.booked or item.run_id)]
        if fresh:
            worker_books.announce(self.metadata, fresh)

    def ship(self, ranges: Sequence[Range]) -> dict[int, RangeResult]:
        """One replay run; results by range id. Raises UnavailableError when no replay process answers."""
        address = pick_replay(self.coordination.sessions(REPLAY_KIND), self.own_address)
        replay = self.settings.replay
        raw = encode_table(ranges_to_table(ranges).to_batches(), RANGE_SCHEMA)
        answer = self.pool.replay(address, replay.run_timeout_ms + replay.start_timeout_ms).run(raw)
        results = {result.range_id: result for result in results_from_table(decode_table(answer, RESULT_SCHEMA))}
        missing = [r.range_id for r in ranges if r.range_id not in results]
        if missing:
            raise UnavailableError(f"{address} left out {len(missing)} of {len(ranges)} ranges in its answer")
        for r in ranges:
            if way := results[r.range_id].way:
                LOG.info("%s goes to %s as %s", r.file, r.target.cluster, way)
        return results

    def commit(self, outcomes: Sequence[tuple[Queued, Outcome]], before: Sequence[Fact]) -> None:
        """Write what became finished; one call for each offset that several streams share."""
        worker_books.write_finished(
            self.metadata,
            [
                (queued.item, outcome.fact)
                for (queued, outcome), fact in zip(outcomes, before, strict=True)
                if outcome.fact.booked > fact.booked and not queued.item.run_id
            ],
        )


class Lane:
    """The queue and the thread of one peer cluster; starts at once."""

    def __init__(self, cluster: str, tools: LaneTools, tell: Tell) -> None:
        """``tell`` takes the reports of each batch."""
        self._cluster = cluster
        self._tools = tools
        self._tell = tell
        self._plan = LanePlan(tools.settings.tserver.lane_ranges_max)
        self._changed = threading.Condition()
        self._stopped = False
        self.thread = guarded_thread(f"replication-{cluster}", self._run)
        self.thread.start()

    def offer(self, item: WorkItem) -> None:
        """Queue a range; raises OverloadedError."""
        with self._changed:
            self._plan.offer(item)
            self._changed.notify_all()

    def stop(self) -> None:
        """End after the batch under way."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _run(self) -> None:
        while batch := self._next():
            self._work(batch)

    def _next(self) -> list[Queued]:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._plan.queue)
            return [] if self._stopped else self._plan.take()

    def _work(self, batch: list[Queued]) -> None:
        before: list[Fact] = []
        results: dict[int, RangeResult] = {}
        try:
            before = self._tools.facts(batch, self._plan)
            facts = [
                pass_over(fact, queued.item.passed, partial(share_behind, queued.item))
                for queued, fact in zip(batch, before, strict=True)
            ]
            ranges = ranges_of(batch, facts, self._tools.settings.instance.instance_id)
            self._tools.announce(batch, before)
            results = self._tools.ship(ranges) if ranges else {}
            outcomes = [outcome_of(queued, facts[n], results.get(n)) for n, queued in enumerate(batch)]
            self._tools.commit(list(zip(batch, outcomes, strict=True)), before)
        except BookkeeperError as error:
            LOG.warning("shipping %d ranges to %s failed: %s", len(batch), self._cluster, error)
            results = {}
            outcomes = [failed(before[n] if before else Fact(0, 0), error) for n in range(len(batch))]
        with self._changed:
            self._plan.settle(zip(batch, outcomes, strict=True))
            waiting = len(self._plan)
        self._tell([report_of(queued.item, outcomes[n], results.get(n), waiting) for n, queued in enumerate(batch)])


def share_behind(item: WorkItem, blocks: BlockRange) -> tuple[int, int]:
    """What of the item's file up to the end of some blocks is its target's, by their headers. Damaged ones say nothing;
    the next block for the target says the sum all the same.
    """
    found = (0, 0)
    try:
        for at in read_headers(item.file, blocks.start_position or None):
            if at.last_offset > blocks.last:
                break
            found = share_up_to(at.header, item.target) or found
    except (CorruptionError, NotFoundError) as error:
        LOG.info("what of %s up to record %d is for %s is not known: %s", item.file, blocks.last, item.target, error)
    return found


def pick_replay(sessions: Sequence[SessionInfo], own_address: str) -> str:
    """Address of a live replay process, one of this host first; raises UnavailableError when there is none."""
    host = own_address.rpartition(":")[0]
    alive = sorted((s for s in sessions if s.alive), key=lambda s: (s.address.rpartition(":")[0] != host, s.session_id))
    if not alive:
        raise UnavailableError("no replay process is running; its supervisor starts it again, and its log says more")
    return alive[0].address
