"""Background threads that end the process when they fail unexpectedly, so that no process runs without one of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from bookkeeper.clock import Clock
from bookkeeper.runtime.process_exit import end_process

LOG = logging.getLogger(__name__)

SELDOM_MS = 60_000.0
"""Interval of background threads that other threads wake when there is work."""

Die = Callable[[str], None]


def guarded_thread(name: str, run: Callable[[], None], die: Die | None = None) -> threading.Thread:
    """A daemon thread, not started yet. When ``run`` raises, ``die`` ends the process."""

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            LOG.critical("the thread %s dies", name, exc_info=True)
            (die or end_process)(f"the thread {name} died: {error!r}")

    return threading.Thread(target=guarded, name=name, daemon=True)


def start_thread(name: str, run: Callable[[], None], die: Die | None = None) -> threading.Thread:
    """Start a :func:`guarded_thread`."""
    thread = guarded_thread(name, run, die)
    thread.start()
    return thread


class BackgroundThread:
    """A thread that works at an interval and after each :meth:`wake`, until :meth:`close` sets ``closing``."""

    def __init__(self, name: str, clock: Clock, die: Die) -> None:
        self._name = name
        self._clock = clock
        self._die = die
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self.closing = threading.Event()

    def start(self, work: Callable[[], object], every_ms: float, *, once_more: bool = False) -> None:
        """Call ``work`` ``every_ms`` after its last return; ``once_more``: also a last time when the thread is
        closed.
        """

        def run() -> None:
            is_over = False
            while not is_over:
                self._clock.wait(self._wake, every_ms)
                self._wake.clear()
                is_over = self.closing.is_set()
                if once_more or not is_over:
                    work()

        self._thread = start_thread(self._name, run, self._die)

    def wake(self) -> None:
        """Make the thread work now; does not wait for it."""
        self._wake.set()

    def close(self, timeout_ms: float | None = None) -> None:
        """End the thread after its current work, and wait up to ``timeout_ms`` for that; idempotent."""
        self.closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(None if timeout_ms is None else timeout_ms / 1000)
