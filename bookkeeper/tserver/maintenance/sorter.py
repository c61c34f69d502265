"""A thread that sorts memtables beside the commit thread.

Equal work that waits runs once, so the queue is bounded by the number of memtables. Without the sorter, scans sort the
blocks that they read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from bookkeeper.clock import Clock
from bookkeeper.runtime.threads import SELDOM_MS, BackgroundThread, Die

Task = Callable[[], None]


class Sorter:
    """Runs tasks in order of arrival; equal ones that wait are one."""

    def __init__(self, clock: Clock, die: Die) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Task, None] = {}
        self._thread = BackgroundThread("sorter", clock, die)

    def later(self, task: Task) -> None:
        """Run ``task`` soon; never waits. After :meth:`close` nothing is run."""
        with self._lock:
            self._waiting.setdefault(task)
        self._thread.wake()

    def start(self) -> None:
        """Begin to sort."""
        self._thread.start(self._sort, SELDOM_MS)

    def close(self) -> None:
        """End the thread after the task under way."""
        self._thread.close()

    def _sort(self) -> None:
        while not self._thread.closing.is_set():
            with self._lock:
                task = next(iter(self._waiting), None)
                if task is None:
                    return
                del self._waiting[task]
            task()
