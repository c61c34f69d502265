"""The replication worker of a tserver: one lane for each peer cluster, so that none waits for another.

The master hands ranges out, and lanes ship the logs of this session by themselves. A lane ships each batch of ranges
in one replay run, or by a task that follows, writes the acknowledged offsets to the books, and then reports each range.
Each file and target has a finished cell, ranked by the finished offset: a worker that lost its ranges to another one
can't turn it back. A range with an error leaves the queue; the master backs off and hands it out again. The finished
offsets survive a crash.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

from bookkeeper.clock import Clock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import BookkeeperError, OverloadedError, UnavailableError
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.model import TargetKey
from bookkeeper.rpc.contract.messages import WorkItem, WorkReport
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.tserver.shipping.follower import ENDED
from bookkeeper.tserver.shipping.open_streams import Destination
from bookkeeper.tserver.shipping.own_log import OwnLogs
from bookkeeper.tserver.shipping.worker_lane import Lane, Report
from bookkeeper.tserver.shipping.worker_lane_tools import LaneTools

LOG = logging.getLogger(__name__)

LANES_MAX = 256
"""Peer clusters that one worker ships to."""

REPORTS_MAX = 10_000
"""Reports that :meth:`ReplicationWorker.reports` has, one for each transaction, file, target and run."""


class ReplicationWorker:
    """The worker of one tserver. Thread-safe. ``report`` sends reports to the master, and may fail: the books have the
    finished offsets, and :meth:`reports` the latest reports.
    """

    def __init__(
        self,
        settings: Settings,
        volume: Volume,
        metadata: MetadataTable,
        coordination: Coordination,
        pool: RpcPool,
        report: Report,
        own_address: str,
        own_logs: OwnLogs,
        destinations: Callable[[], Mapping[TargetKey, Destination]],
        clock: Clock,
    ) -> None:
        """``own_address``: where this tserver answers; a replay process of the same host is preferred. ``own_logs``:
        the logs that lanes ship by themselves. ``destinations``: of the targets that the configuration in force has;
        another mapping when it has changed.
        """
        self._tools = LaneTools(
            settings, volume, metadata, coordination, pool, own_address, own_logs, destinations, clock
        )
        self._report = report
        self._lock = threading.Lock()
        self._lanes: dict[str, Lane] = {}
        self._latest: OrderedDict[tuple[str, str, TargetKey, str], WorkReport] = OrderedDict()
        self._stopped = False
        self._is_unheard = False
        """Whether the last reports did not reach the master, and the log says so."""
        self._lanes_of: Mapping[TargetKey, Destination] = {}
        """The configuration whose peers have lanes."""
        own_logs.listen(self._wake_lanes)
        own_logs.ask_followed(self._is_followed)

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
            lane.join(timeout_ms)

    def follow(self, cluster: str, run: str, results: bytes, wait_ms: int) -> bytes:
        """A poll of a task that follows the logs of this session for a peer; see the contract."""
        with self._lock:
            lane = self._lanes.get(cluster)
        return ENDED if lane is None else lane.follow(run, results, wait_ms)

    def _is_followed(self) -> bool:
        with self._lock:
            lanes = list(self._lanes.values())
        return bool(lanes) and all(lane.is_followed() for lane in lanes)

    def _wake_lanes(self) -> None:
        """Own logs have more durable records: they may be the first ones for a peer."""
        tools = self._tools
        with self._lock:
            destinations = tools.destinations()
            if destinations is not self._lanes_of and not self._stopped:
                self._lanes_of = destinations
                for cluster in sorted({key.cluster for key, to in destinations.items() if to.takes_small_messages}):
                    if cluster not in self._lanes and len(self._lanes) < LANES_MAX:
                        self._lanes[cluster] = Lane(cluster, tools, self._report_all)
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.wake()

    def _lane(self, cluster: str) -> Lane:
        with self._lock:
            if self._stopped:
                raise UnavailableError("this tserver is shutting down; its ranges go to another one")
            if cluster not in self._lanes:
                if len(self._lanes) >= LANES_MAX:
                    raise OverloadedError(f"{LANES_MAX} peer clusters have a lane here; no room for {cluster}")
                self._lanes[cluster] = Lane(cluster, self._tools, self._report_all)
            return self._lanes[cluster]

    def _report_all(self, reports: Sequence[WorkReport]) -> None:
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
            if not self._is_unheard:
                LOG.warning("reports do not reach the master, and wait until it asks for them: %s", error)
            self._is_unheard = True
        else:
            self._is_unheard = False
