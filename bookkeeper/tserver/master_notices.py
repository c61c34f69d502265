"""The link to the leading master: nudges, coalesced, and reports of the replication worker.

A thread of its own makes one call for all nudges since the last one, so that an absent master delays no caller. A lost
nudge costs latency only, because the master polls by itself now and then; the books have the facts of the reports. A
leader that does not answer is nudged until it does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bookkeeper.clock import Clock
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import TransientError, UnavailableError
from bookkeeper.rpc.contract.messages import WorkReport
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.runtime.threads import SELDOM_MS, BackgroundThread, Die

LOG = logging.getLogger(__name__)

PAUSE_AFTER_FAILURE_MS = 500
TIMEOUT_MS = 2_000
SILENCE_MS = 10_000
"""A leader that did not answer in time gets no reports for so long, or until it takes a nudge."""
LEADER_CACHED_MS = 1_000
"""A leader's address is cached for this long: these calls have no answer by which a deposed leader could refuse.
"""


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
        self._silent = ""
        """The address of a leader that did not answer in time."""
        self._silent_until_ns = 0
        self._thread = BackgroundThread("nudger", clock, die)

    def nudge(self) -> None:
        """New records wait for replication; never waits."""
        self._thread.wake()

    def report(self, reports: Sequence[WorkReport]) -> None:
        """Send the worker's reports to the leader; raises TransientError. A stopped leader takes connections and
        answers nothing: the caller waits for it once, because it begins no stream meanwhile.
        """
        address = self._leader_address()
        if address == self._silent and self._clock.boot_ns() < self._silent_until_ns:
            raise UnavailableError(f"the master at {address} did not answer lately")
        with self._noticing_silence(address):
            self._pool.master(address, TIMEOUT_MS).report_work(self._session_id, reports)

    def start(self) -> None:
        """Begin to nudge."""
        self._thread.start(self._call, SELDOM_MS, once_more=True)

    def close(self) -> None:
        """Make a last call, because a nudge may be due, and end the thread."""
        self._thread.close()

    def _call(self) -> None:
        try:
            address = self._leader_address()
            with self._noticing_silence(address):
                self._pool.master(address, TIMEOUT_MS).nudge(self._session_id)
        except TransientError as error:
            LOG.info("the master could not be nudged, it will poll by itself: %s", error)
            self._clock.wait(self._thread.closing, PAUSE_AFTER_FAILURE_MS)

    def _leader_address(self) -> str:
        now_ns = self._clock.boot_ns()
        with self._lock:
            if self._leader is not None and now_ns - self._leader_read_ns <= LEADER_CACHED_MS * 1_000_000:
                return self._leader
        leader = self._coordination.leader()
        if leader is None:
            raise UnavailableError("no master leads now")
        with self._lock:
            self._leader, self._leader_read_ns = leader.address, now_ns
        return leader.address

    @contextmanager
    def _noticing_silence(self, address: str) -> Iterator[None]:
        """A call: when it fails, the leader is read again, and one that did not answer in time counts as silent."""
        began_ns = self._clock.boot_ns()
        try:
            yield
        except TransientError:
            now_ns = self._clock.boot_ns()
            with self._lock:
                self._leader = None
                if now_ns - began_ns >= TIMEOUT_MS * 1_000_000:
                    self._silent, self._silent_until_ns = address, now_ns + SILENCE_MS * 1_000_000
                    self._thread.wake()
            raise
        with self._lock:
            if address == self._silent:
                self._silent = ""
