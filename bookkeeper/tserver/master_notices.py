"""The way to the leading master: nudges, coalesced, and reports of the replication worker.

Arrives: any number of nudges, reports. Leaves: for the nudges that came since the last one a single call, from a
thread of its own, so that an absent master delays nobody. Survives a crash: nothing; a lost nudge costs latency only,
the master looks by itself now and then, and the books have the truth that reports are about.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from bookkeeper.clock import Clock
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import TransientError, UnavailableError
from bookkeeper.rpc.contract.messages import WorkReport
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.runtime.threads import SELDOM_MS, BackgroundThread, Die

LOG = logging.getLogger(__name__)

PAUSE_AFTER_FAILURE_MS = 500
TIMEOUT_MS = 2_000
LEADER_KNOWN_MS = 1_000
"""A leader's address is used for this long: these calls have no answer, so a deposed leader can't say what it is."""


class MasterLink:
    """Calls the leader on behalf of one session."""

    def __init__(self, coordination: Coordination, pool: RpcPool, session_id: str, clock: Clock, die: Die) -> None:
        self._coordination = coordination
        self._pool = pool
        self._session_id = session_id
        self._clock = clock
        self._lock = threading.Lock()
        self._leader: str | None = None
        self._leader_read_ns = 0
        self._thread = BackgroundThread("nudger", clock, die)

    def nudge(self) -> None:
        """There is something new to replicate; never waits."""
        self._thread.wake()

    def report(self, reports: Sequence[WorkReport]) -> None:
        """Tell the leader what the worker did; raises TransientError."""
        try:
            self._pool.master(self._leader_address(), TIMEOUT_MS).report_work(self._session_id, reports)
        except TransientError:
            self._forget_leader()
            raise

    def start(self) -> None:
        """Begin to nudge."""
        self._thread.start(self._call, SELDOM_MS, once_more=True)

    def close(self) -> None:
        """Make a last call, for one may have been asked for, and end the thread."""
        self._thread.close()

    def _call(self) -> None:
        try:
            self._pool.master(self._leader_address(), TIMEOUT_MS).nudge(self._session_id)
        except TransientError as error:
            LOG.info("the master could not be nudged, it will look by itself: %s", error)
            self._forget_leader()
            self._clock.wait(self._thread.closing, PAUSE_AFTER_FAILURE_MS)

    def _leader_address(self) -> str:
        now_ns = self._clock.boot_ns()
        with self._lock:
            if self._leader is not None and now_ns - self._leader_read_ns <= LEADER_KNOWN_MS * 1_000_000:
                return self._leader
        leader = self._coordination.leader()
        if leader is None:
            raise UnavailableError("no master leads now")
        with self._lock:
            self._leader, self._leader_read_ns = leader.address, now_ns
        return leader.address

    def _forget_leader(self) -> None:
        with self._lock:
            self._leader = None
