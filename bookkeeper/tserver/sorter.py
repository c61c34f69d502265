"""Sorts memtables beside the commit thread.

Arrives: sorting work of tablets, the same work many times while it waits. Leaves: it done, once, by a thread of its
own. Survives a crash: nothing; without it scans sort what they meet. Bounded by the number of memtables.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from bookkeeper.tserver.threads import Die, start_thread

Task = Callable[[], None]


class Sorter:
    """Runs tasks in order of arrival; equal ones that wait are one."""

    def __init__(self, die: Die) -> None:
        self._die = die
        self._changed = threading.Condition()
        self._waiting: dict[Task, None] = {}
        self._closed = False
        self._thread: threading.Thread | None = None

    def later(self, task: Task) -> None:
        """Run ``task`` soon; never waits. After :meth:`close` nothing is run."""
        with self._changed:
            if task not in self._waiting:
                self._waiting[task] = None
                self._changed.notify()

    def start(self) -> None:
        """Begin to sort."""
        self._thread = start_thread("sorter", self._run, self._die)

    def close(self) -> None:
        """End the thread after the task under way."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                task = next(iter(self._waiting))
                del self._waiting[task]
            task()
