"""The monitor's one thread that reads the master, and its latest :class:`Sample`.

A request reads the latest sample, which is immutable, so many viewers cost the master as much as one. After a slow
sample the thread pauses for many times as long.
"""

from __future__ import annotations

import logging
import threading

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError
from bookkeeper.monitor.lag_history import History, point_of
from bookkeeper.monitor.observation import Observation, RetainedFile, Source

LOG = logging.getLogger(__name__)

PAUSE_FACTOR = 19
"""Pause after a sample, as a multiple of its duration: the thread samples at most 5 % of the time."""

RETAINED_INTERVAL_MS = 5_000
"""Minimum ms between reads of the retained files: each reads all references in the books, as the collector does."""

PAUSE_MAX_MS = 120_000


class Sample(Struct, frozen=True):
    """One sample. ``took_ms`` is the duration of the observation. ``retained`` may be some seconds older;
    ``retained_at_ms`` 0 = not read yet.
    """

    observation: Observation
    took_ms: float
    retained: tuple[RetainedFile, ...] = ()
    retained_at_ms: int = 0
    retained_problem: str = ""
    sampled_ns: int = 0
    """Boot clock when the sample began."""


def pause_ms(interval_ms: float, took_ms: float) -> float:
    """ms to pause after a sample."""
    return max(interval_ms, min(PAUSE_FACTOR * took_ms, PAUSE_MAX_MS))


class Sampler:
    """Samples until it is stopped. Any thread may read ``latest`` and ``history``."""

    def __init__(self, source: Source, clock: Clock, interval_ms: int) -> None:
        self._source, self._clock, self._interval_ms = source, clock, interval_ms
        self._latest: Sample | None = None
        self._retained_due_ns = 0
        self.history = History()

    @property
    def latest(self) -> Sample:
        """The latest sample; the first call takes one."""
        return self._latest or self.sample()

    def run(self, stop: threading.Event) -> None:
        """Sample again and again until ``stop`` is set."""
        while True:
            began_ns = self._clock.boot_ns()
            self.sample()
            took_ms = (self._clock.boot_ns() - began_ns) / 1e6
            if self._clock.wait(stop, pause_ms(self._interval_ms, took_ms)):
                return

    def sample(self) -> Sample:
        """Take one sample; read the retained files only when that is due."""
        began_ns = self._clock.boot_ns()
        observation = self._source.observe()
        took_ms = (self._clock.boot_ns() - began_ns) / 1e6
        previous = self._latest or Sample(observation, took_ms)
        sample = replace(previous, observation=observation, took_ms=took_ms, sampled_ns=began_ns)
        if observation.books is not None:
            self.history.add(point_of(observation.at_ms, observation.books.lags))
        if self._clock.boot_ns() >= self._retained_due_ns:
            sample = self._sample_retained(sample)
        self._latest = sample
        return sample

    def _sample_retained(self, sample: Sample) -> Sample:
        began_ns = self._clock.boot_ns()
        try:
            files = self._source.retained()
            extended = replace(sample, retained=files, retained_at_ms=sample.observation.at_ms, retained_problem="")
        except BookkeeperError as error:
            LOG.info("the monitor can't read the retained files now: %s", error.message)
            extended = replace(sample, retained_problem=error.message)
        ended_ns = self._clock.boot_ns()
        self._retained_due_ns = ended_ns + int(pause_ms(RETAINED_INTERVAL_MS, (ended_ns - began_ns) / 1e6) * 1e6)
        return extended
