"""The monitor's only thread that asks the master, and the latest answers for everybody who looks.

Arrives: a source, a clock. Leaves: one immutable :class:`Sample` at a time; a request reads it and waits for nobody, so
many viewers cost the master as much as one. A look that takes long is followed by a rest that is many times longer.
Nothing survives a crash.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError
from bookkeeper.monitor.lag_history import History, point_of
from bookkeeper.monitor.observation import KeptFile, Observation, Source

LOG = logging.getLogger(__name__)

REST_SHARE = 19
"""The thread rests at least so many times as long as it looked: a twentieth of a core is what it takes at most."""

KEPT_INTERVAL_MS = 5_000
"""ms between looks at what is kept, at least: it reads every reference in the books, as the collector does."""

REST_MAX_MS = 120_000


@dataclass(frozen=True, slots=True)
class Sample:
    """The latest look. ``kept`` may be some seconds older; ``kept_at_ms`` 0 = not looked yet. ``took_ms``: the look."""

    seen: Observation
    took_ms: float
    kept: tuple[KeptFile, ...] = ()
    kept_at_ms: int = 0
    kept_problem: str = ""
    looked_ns: int = 0
    """Boot clock at the look."""


def rest_ms(interval_ms: float, took_ms: float) -> float:
    """How long to rest after a look, ms."""
    return max(interval_ms, min(REST_SHARE * took_ms, REST_MAX_MS))


class Sampler:
    """Looks until it is stopped. ``latest`` and ``history`` may be read by any thread."""

    def __init__(self, source: Source, clock: Clock, interval_ms: int) -> None:
        self._source, self._clock, self._interval_ms = source, clock, interval_ms
        self._latest: Sample | None = None
        self._kept_due_ns = 0
        self.history = History()

    @property
    def latest(self) -> Sample:
        """The latest look; one is taken here when there is none yet."""
        return self._latest or self.look()

    def run(self, stop: threading.Event) -> None:
        """Look again and again until ``stop`` is set."""
        while True:
            began_ns = self._clock.boot_ns()
            self.look()
            took_ms = (self._clock.boot_ns() - began_ns) / 1e6
            if self._clock.wait(stop, rest_ms(self._interval_ms, took_ms)):
                return

    def look(self) -> Sample:
        """Take one look, at what is kept only when that is due."""
        began_ns = self._clock.boot_ns()
        seen = self._source.observe()
        took_ms = (self._clock.boot_ns() - began_ns) / 1e6
        before = self._latest
        sample = replace(before or Sample(seen, took_ms), seen=seen, took_ms=took_ms, looked_ns=began_ns)
        if seen.books is not None:
            self.history.add(point_of(seen.at_ms, seen.books.lags))
        if self._clock.boot_ns() >= self._kept_due_ns:
            sample = self._look_at_kept(sample)
        self._latest = sample
        return sample

    def _look_at_kept(self, sample: Sample) -> Sample:
        began_ns = self._clock.boot_ns()
        try:
            found = replace(sample, kept=self._source.kept(), kept_at_ms=sample.seen.at_ms, kept_problem="")
        except BookkeeperError as error:
            LOG.info("what is kept can't be read now: %s", error.message)
            found = replace(sample, kept_problem=error.message)
        ended_ns = self._clock.boot_ns()
        self._kept_due_ns = ended_ns + int(rest_ms(KEPT_INTERVAL_MS, (ended_ns - began_ns) / 1e6) * 1e6)
        return found
