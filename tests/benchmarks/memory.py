"""How much memory a family of processes takes while something runs.

Arrives: a function that names the processes. Leaves: :class:`MemoryWatch`, whose ``most`` is the peak.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Self

import psutil

from bookkeeper.clock import SystemClock

SAMPLE_MS = 100


class MemoryWatch:
    """The most memory (RSS) that all of them had together while the block ran, in MB."""

    def __init__(self, family: Callable[[], Sequence[psutil.Process]]) -> None:
        self._family = family
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.most = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        clock = SystemClock()
        while not clock.wait(self._over, SAMPLE_MS):
            total = 0
            for member in self._family():
                with contextlib.suppress(psutil.NoSuchProcess):
                    total += member.memory_info().rss
            self.most = max(self.most, total / 1e6)
