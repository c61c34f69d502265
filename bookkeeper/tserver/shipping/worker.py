"""The replication worker of a tserver: one lane for each peer cluster, so that none waits for another.

Arrives: ranges from the master. Leaves: one replay run a batch of ranges; what a peer acknowledged, written to the
books (a cell of its own for each file and target, ranked by the finished offset: a worker that lost its work can't
turn it back); and a report for each range. An error is reported and the range leaves the queue: the master backs off
and hands it out again. Survives a crash: the finished offsets.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from bookkeeper.config import Settings
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import BookkeeperError, OverloadedError, UnavailableError
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.model import TargetKey
from bookkeeper.rpc.contract.messages import WorkItem, WorkReport
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.tserver.shipping.worker_lane import Lane, LaneTools, Tell

LOG = logging.getLogger(__name__)

LANES_MAX = 256
"""Peer clusters that one worker ships to."""

REPORTS_MAX = 10_000
"""Reports kept for :meth:`ReplicationWorker.reports`, one a (transaction, file, target, run); the oldest goes."""


class ReplicationWorker:
    """Thread-safe. ``report`` tells the master; what it raises is logged: the books have the truth, and
    :meth:`reports` the latest word.
    """

    def __init__(
        self,
        settings: Settings,
        metadata: MetadataTable,
        coordination: Coordination,
        pool: RpcPool,
        report: Tell,
        own_address: str = "",
    ) -> None:
        """``own_address``: where this tserver answers; a replay process of the same host is preferred."""
        self._tools = LaneTools(settings, metadata, coordination, pool, own_address)
        self._report = report
        self._lock = threading.Lock()
        self._lanes: dict[str, Lane] = {}
        self._latest: OrderedDict[tuple[str, str, TargetKey, str], WorkReport] = OrderedDict()
        self._stopped = False

    def assign(self, items: Iterable[WorkItem]) -> None:
        """Queue ranges; the same range again changes nothing. Raises OverloadedError at the first that finds no room
        (those before it are queued), UnavailableError when the worker was stopped.
        """
        for item in items:
            self._lane(item.target.cluster).offer(item)

    def reports(self) -> list[WorkReport]:
        """The latest report of each transaction, file and target; counts are those of its run."""
        with self._lock:
            return list(self._latest.values())

    def stop(self, timeout_ms: int = 5_000) -> None:
        """Take no more ranges, and wait for lanes that are between two runs; a run under way is left to itself."""
        with self._lock:
            self._stopped = True
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.stop()
        for lane in lanes:
            lane.thread.join(timeout_ms / 1000)

    def _lane(self, cluster: str) -> Lane:
        with self._lock:
            if self._stopped:
                raise UnavailableError("this tserver is shutting down; its ranges go to another one")
            if cluster not in self._lanes:
                if len(self._lanes) >= LANES_MAX:
                    raise OverloadedError(f"{LANES_MAX} peer clusters have a lane here; no room for {cluster}")
                self._lanes[cluster] = Lane(cluster, self._tools, self._tell)
            return self._lanes[cluster]

    def _tell(self, reports: Sequence[WorkReport]) -> None:
        with self._lock:
            for report in reports:
                key = (report.txid, report.file, report.target, report.run_id)
                self._latest[key] = report
                self._latest.move_to_end(key)
            while len(self._latest) > REPORTS_MAX:
                self._latest.popitem(last=False)
        try:
            self._report(reports)
        except BookkeeperError as error:
            LOG.warning("%d reports did not reach the master: %s", len(reports), error)
