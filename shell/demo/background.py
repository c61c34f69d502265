"""A background thread that repeats a step beside the main work; :meth:`Background.stop` raises a step's error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from bookkeeper.clock import Clock


class Background:
    """A thread that repeats ``step`` with ``pause_ms`` in between; a context manager."""

    def __init__(self, name: str, step: Callable[[], None], pause_ms: float, clock: Clock) -> None:
        self._step = step
        self._pause_ms = pause_ms
        self._clock = clock
        self._stop = threading.Event()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._running: Future[None] | None = None

    def stop(self) -> None:
        """End after the current step; idempotent. Raises the error of a step."""
        self._stop.set()
        self._executor.shutdown()
        if self._running is not None:
            self._running.result()

    def _run(self) -> None:
        while not self._clock.wait(self._stop, self._pause_ms):
            self._step()

    def __enter__(self) -> Background:
        self._running = self._executor.submit(self._run)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if value is None:
            self.stop()
        else:  # the error of the main work counts more than that of a step
            self._stop.set()
            self._executor.shutdown()
