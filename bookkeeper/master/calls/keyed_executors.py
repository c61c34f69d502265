"""Lanes: one thread for each destination, so that a slow tserver delays no other one.

Arrives: jobs with the name of their lane. Leaves: calls, executed one after another within a lane; each job reports its
own result.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Collection

from msgspec import Struct, field

from bookkeeper.errors import BookkeeperError
from bookkeeper.runtime.threads import start_thread

LOG = logging.getLogger(__name__)

QUEUE_MAX = 1_000

Job = Callable[[], None]


class KeyedExecutors(Struct):
    """Named threads with bounded queues. Thread-safe."""

    _queues: dict[str, queue.Queue[Job | None]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: bool = False

    def submit(self, lane: str, job: Job) -> bool:
        """Queue a job; False when the lane is full or everything was stopped. Jobs handle their own errors."""
        with self._lock:
            if self._stopped:
                return False
            jobs = self._queues.get(lane)
            if jobs is None:
                jobs = self._queues[lane] = queue.Queue(QUEUE_MAX)
                self._start(lane, jobs)
        try:
            jobs.put_nowait(job)
        except queue.Full:
            return False
        return True

    def retain(self, lanes: Collection[str]) -> None:
        """End all other lanes, once they have done their queued jobs."""
        with self._lock:
            gone = [self._queues.pop(lane) for lane in list(self._queues) if lane not in lanes]
        for jobs in gone:
            self._end(jobs)

    def stop(self) -> None:
        """End every lane without a wait for running calls; idempotent."""
        with self._lock:
            self._stopped = True
        self.retain(())

    def _start(self, lane: str, jobs: queue.Queue[Job | None]) -> None:
        name = f"lane-{lane}"
        start_thread(name, lambda: _serve(name, jobs))

    def _end(self, jobs: queue.Queue[Job | None]) -> None:
        try:
            jobs.put_nowait(None)
        except queue.Full:
            jobs.get_nowait()
            jobs.put_nowait(None)


def _serve(name: str, jobs: queue.Queue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        try:
            job()
        except BookkeeperError as error:
            LOG.warning("%s: %s", name, error.message)
