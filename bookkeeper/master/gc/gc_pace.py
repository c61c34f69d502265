"""The pauses of the collector: its work takes at most a tenth of the time.

Arrives: the duration of a run and the CPU time of its thread. Leaves: the pause before the next run. A run over many
files loads the store, the disk and this process; only disk space waits for it, so it pauses for nine times its work. A
run that waited for an unavailable store, or on a stopped machine, did not work meanwhile: the next one follows after
the interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from bookkeeper.clock import Clock, thread_cpu_ns

PAUSE_SHARE = 9
"""The pause after a run, as a multiple of its work."""

PAUSE_MAX_MS = 600_000
"""Longest pause, ms, unless the interval is longer."""

WORK_PER_CPU = 4
"""A run's work counts as at most this multiple of its thread's CPU time. Besides the thread work the store's server and
the disk, and other threads: 60,000 rows took 3 to 4 times as long, from SQLite and from HBase, on a machine with three
processes a core. Longer waits are outages.
"""


class GcPace(Struct):
    """Used by the collector's thread. ``cpu_ns``: the CPU time of the calling thread."""

    clock: Clock
    interval_ms: float
    cpu_ns: Callable[[], int] = lambda: thread_cpu_ns()
    _worked_ms: float = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure one run, also a failed one."""
        began_ns, computed_ns = self.clock.boot_ns(), self.cpu_ns()
        try:
            yield
        finally:
            took_ms = (self.clock.boot_ns() - began_ns) / 1e6
            self._worked_ms = worked_ms(took_ms, (self.cpu_ns() - computed_ns) / 1e6)

    @property
    def pause_ms(self) -> float:
        """The pause before the next run, ms."""
        return pause_ms(self.interval_ms, self._worked_ms)


def worked_ms(took_ms: float, computed_ms: float) -> float:
    """The work of a run, ms, by its duration and its CPU time."""
    return min(took_ms, WORK_PER_CPU * computed_ms)


def pause_ms(interval_ms: float, worked_ms: float) -> float:
    """The pause after so much work, ms."""
    return max(interval_ms, min(PAUSE_SHARE * worked_ms, PAUSE_MAX_MS))
