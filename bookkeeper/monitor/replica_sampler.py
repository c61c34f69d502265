"""The monitor's thread that reads hosts and replicas: only what somebody looks at, and one thing at a time.

A host that hangs delays a call, so these reads have a thread of their own: the other pages stay fresh. A subject is
read when it is asked for the first time, then again and again while somebody asks, at most 5 % of the time; many
viewers cost the hosts as much as one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from concurrent.futures import Future

from msgspec import Struct, field
from msgspec.structs import replace

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, NotFoundError
from bookkeeper.monitor.observation import Source
from bookkeeper.monitor.sampler import pause_ms
from bookkeeper.rpc.contract.messages import HostInfo, TabletReplicas

LOG = logging.getLogger(__name__)

SUBJECTS_MAX = 16
"""Subjects that are read again and again; with more, the one that waited longest for a question is forgotten."""

FORGET_MS = 30_000
"""A subject that nobody asked for in this time is forgotten."""

FIRST_WAIT_S = 3.0
"""Longest wait of an answer for the first sample of a subject."""


class Subject(Struct, frozen=True):
    """The hosts (no table), the tablets of a table, or one tablet, named by its directory."""

    table: str = ""
    directory: str = ""


HOSTS = Subject()

UNREAD = "the hosts have not answered yet: try again in some seconds"


class ReplicaSample(Struct, frozen=True):
    """A sample of one subject. ``problem``: why it could not be read the last time, with the values of before;
    ``is_missing``: there is no such table or tablet.
    """

    at_ms: int
    hosts: tuple[HostInfo, ...] = ()
    tablets: tuple[TabletReplicas, ...] = ()
    problem: str = ""
    is_missing: bool = False

    @property
    def has_values(self) -> bool:
        """Whether there is something to show."""
        return not self.problem or bool(self.hosts or self.tablets)


class _Watch(Struct):
    """A subject that somebody looks at. Changed under the sampler's lock."""

    asked_ns: int
    due_ns: int
    latest: Future[ReplicaSample] = field(default_factory=Future)

    def ask(self, now_ns: int) -> None:
        self.asked_ns = now_ns

    def answer(self, sample: ReplicaSample, due_ns: int) -> None:
        self.due_ns = due_ns
        if self.latest.done():
            self.latest = _future()
        self.latest.set_result(sample)


def _future() -> Future[ReplicaSample]:
    """One that its readers can't cancel."""
    found: Future[ReplicaSample] = Future()
    found.set_running_or_notify_cancel()
    return found


class ReplicaSampler:
    """Samples until it is stopped. Any thread may ask."""

    def __init__(self, source: Source, clock: Clock, interval_ms: int) -> None:
        self._source, self._clock, self._interval_ms = source, clock, interval_ms
        self._lock = threading.Lock()
        self._watches: OrderedDict[Subject, _Watch] = OrderedDict()
        self._wake = threading.Event()

    def look(self, subject: Subject) -> Future[ReplicaSample]:
        """The latest sample of a subject; of a new one, its first sample, which may take as long as a host hangs."""
        now_ns = self._clock.boot_ns()
        with self._lock:
            watch = self._watches.get(subject)
            if watch is None:
                watch = self._watches[subject] = _Watch(now_ns, now_ns, _future())
                self._wake.set()
            watch.ask(now_ns)
            self._watches.move_to_end(subject)
            gone = self._watches.popitem(last=False)[1] if len(self._watches) > SUBJECTS_MAX else None
            if gone is not None and not gone.latest.done():
                problem = f"more than {SUBJECTS_MAX} of these pages are asked for at once: try again"
                gone.latest.set_result(ReplicaSample(self._clock.wall_ms(), problem=problem))
            return watch.latest

    def run(self, stop: threading.Event) -> None:
        """Sample again and again until ``stop`` is set, and :meth:`wake` is called."""
        while not stop.is_set():
            self._clock.wait(self._wake, self._interval_ms)
            self._wake.clear()
            if not stop.is_set():
                self.sample()

    def wake(self) -> None:
        """Let the thread look at ``stop`` now."""
        self._wake.set()

    def sample(self) -> None:
        """Read each subject that is due."""
        began_ns = self._clock.boot_ns()
        with self._lock:
            for subject in [one for one, watch in self._watches.items() if is_forgotten(watch.asked_ns, began_ns)]:
                del self._watches[subject]
            due = [(subject, watch) for subject, watch in self._watches.items() if watch.due_ns <= began_ns]
        for subject, watch in due:
            sample = self._read(subject, watch)
            ended_ns = self._clock.boot_ns()
            took_ms = (ended_ns - began_ns) / 1e6
            with self._lock:
                if self._watches.get(subject) is watch:
                    watch.answer(sample, ended_ns + int(pause_ms(self._interval_ms, took_ms) * 1e6))

    def _read(self, subject: Subject, watch: _Watch) -> ReplicaSample:
        at_ms = self._clock.wall_ms()
        try:
            if subject == HOSTS:
                return ReplicaSample(at_ms, hosts=self._source.hosts())
            if not subject.directory:
                return ReplicaSample(at_ms, tablets=self._source.tablets(subject.table))
            return ReplicaSample(at_ms, tablets=(self._source.tablet(subject.table, subject.directory),))
        except NotFoundError as error:
            return ReplicaSample(at_ms, problem=error.message, is_missing=True)
        except BookkeeperError as error:
            LOG.info("the monitor can't read replicas now: %s", error.message)
            before = watch.latest.result() if watch.latest.done() else ReplicaSample(at_ms)
            return replace(before, problem=error.message, is_missing=False)


def is_forgotten(asked_ns: int, now_ns: int) -> bool:
    """Whether nobody has asked for a subject for so long that it is read no more."""
    return now_ns - asked_ns > FORGET_MS * 1_000_000


async def read_in_time(latest: Future[ReplicaSample]) -> ReplicaSample:
    """The latest sample; one with a problem when the first one is not there in time."""
    try:
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(latest)), FIRST_WAIT_S)
    except TimeoutError:
        return ReplicaSample(0, problem=UNREAD)
