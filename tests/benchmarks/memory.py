"""The memory of a family of processes during a benchmark: :class:`MemoryWatch`, whose ``most`` is the peak."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Self

import psutil

from bookkeeper.clock import SystemClock

SAMPLE_MS = 100
FAMILY_SAMPLES = 10
"""The family is asked for with each tenth sample: finding it reads what the system knows of every process."""


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
        family: Sequence[psutil.Process] = ()
        for sample in itertools.count():
            if clock.wait(self._over, SAMPLE_MS):
                return
            if sample % FAMILY_SAMPLES == 0:
                family = self._family()
            total = 0
            for member in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    total += member.memory_info().rss
            self.most = max(self.most, total / 1e6)
