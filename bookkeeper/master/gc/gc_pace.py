"""How often the collector runs: seldom enough that its work takes a tenth of the time, whatever else it waited for.

Arrives: what a run took, and what its thread computed. Leaves: how long to rest. A run over many files loads the store,
the disk and this process; only disk space waits for it, so it rests nine times as long as it worked. A run that waited
for a store that was away, or on a machine that was stopped, did not work meanwhile: it goes on after its interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bookkeeper.clock import Clock, thread_cpu_ns

REST_SHARE = 9
"""Times that a rest is as long as the work before it."""

REST_MAX_MS = 600_000
"""ms that a rest lasts at most, unless the interval is longer."""

WORK_PER_CPU = 4
"""Times that a run's work is longer than what its thread computed, at most. Beside the thread work the store's server
and the disk, and other threads: 60,000 rows took 3 to 4 times as long, from SQLite and from HBase, on a machine with
three processes a core. Longer waits are those of an outage.
"""


@dataclass(slots=True)
class GcPace:
    """Used by the collector's thread. ``cpu_ns``: what the calling thread has computed."""

    clock: Clock
    interval_ms: float
    cpu_ns: Callable[[], int] = lambda: thread_cpu_ns()
    _worked_ms: float = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """One run, however it ends."""
        began_ns, computed_ns = self.clock.boot_ns(), self.cpu_ns()
        try:
            yield
        finally:
            took_ms = (self.clock.boot_ns() - began_ns) / 1e6
            self._worked_ms = worked_ms(took_ms, (self.cpu_ns() - computed_ns) / 1e6)

    @property
    def rest_ms(self) -> float:
        """How long to rest before the next run, ms."""
        return rest_ms(self.interval_ms, self._worked_ms)


def worked_ms(took_ms: float, computed_ms: float) -> float:
    """How long a run worked, ms, that took so long and computed so long."""
    return min(took_ms, WORK_PER_CPU * computed_ms)


def rest_ms(interval_ms: float, worked_ms: float) -> float:
    """How long to rest after so much work, ms."""
    return max(interval_ms, min(REST_SHARE * worked_ms, REST_MAX_MS))
