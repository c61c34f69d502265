"""Threads that take the process down when they die, and retries that end with the session.

Arrives: work to do in the background, calls that may fail for a while. Leaves: nothing half-dead: a thread that fails
unexpectedly ends the process with code 70, and a retry stops when this process may be believed dead.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import TypeVar

import tenacity

from bookkeeper.clock import Clock
from bookkeeper.coordination.protocol import Session
from bookkeeper.errors import BookkeeperError, LeaseLostError, TransientError
from bookkeeper.storage.wal.ending import end_process

LOG = logging.getLogger(__name__)

RETRY_MIN_MS = 10.0
RETRY_MAX_MS = 1_000.0

SELDOM_MS = 60_000.0
"""How often those work who are woken when there is something to do."""

T = TypeVar("T")
Die = Callable[[str], None]


def start_thread(name: str, run: Callable[[], None], die: Die = end_process) -> threading.Thread:
    """Start a daemon thread; should ``run`` raise, the process ends."""

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            LOG.critical("the thread %s dies", name, exc_info=True)
            die(f"the thread {name} died: {error!r}")

    thread = threading.Thread(target=guarded, name=name, daemon=True)
    thread.start()
    return thread


class BackgroundThread:
    """Works every so often, and at once when it is woken, until it is closed. ``closing`` is set when it is to end."""

    def __init__(self, name: str, clock: Clock, die: Die) -> None:
        self._name = name
        self._clock = clock
        self._die = die
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self.closing = threading.Event()

    def start(self, work: Callable[[], object], every_ms: float, *, once_more: bool = False) -> None:
        """Call ``work`` whenever ``every_ms`` have passed since it returned; ``once_more``: and a last time when the
        thread is closed.
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
        """There is something to do; returns at once."""
        self._wake.set()

    def close(self, timeout_ms: float | None = None) -> None:
        """End the thread behind the work under way, and wait for that, for up to ``timeout_ms``; idempotent."""
        self.closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(None if timeout_ms is None else timeout_ms / 1000)


class Persistence:
    """Repeats what fails for a while, for as long as the session lives, with growing, jittered waits."""

    def __init__(self, session: Session, clock: Clock, rng: random.Random) -> None:
        self._session = session
        self._clock = clock
        self._rng = rng
        self._stop = threading.Event()

    def stop(self) -> None:
        """End waits at once; what fails from now on is not tried again."""
        self._stop.set()

    def check(self) -> None:
        """Raise LeaseLostError when the session is over."""
        self._session.check()

    def insist(self, what: str, act: Callable[[], T], unless: type[TransientError] = LeaseLostError) -> T:
        """``act`` until it does not raise TransientError. Raises LeaseLostError when the session is over before, and
        whatever else ``act`` raises, ``unless`` too. The session is checked before each try.
        """

        def attempt() -> T:
            self._session.check()
            return act()

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda e: _may_succeed_later(e) and not isinstance(e, unless)),
            stop=lambda _: self._stop.is_set(),
            wait=lambda state: self._wait_ms(state.attempt_number) / 1000,
            sleep=lambda seconds: self._sleep(seconds),
            before_sleep=lambda state: _say(what, state),
            reraise=True,
        )
        return retrying(attempt)

    def _wait_ms(self, attempt: int) -> float:
        return self._rng.uniform(RETRY_MIN_MS, min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** min(attempt, 10)))

    def _sleep(self, seconds: float) -> None:
        self._clock.wait(self._stop, seconds * 1000)


def _may_succeed_later(error: BaseException) -> bool:
    return isinstance(error, TransientError) and not isinstance(error, LeaseLostError)


def _say(what: str, state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    reason = error.message if isinstance(error, BookkeeperError) else error
    LOG.warning("%s failed (try %d): %s; trying again", what, state.attempt_number, reason)
