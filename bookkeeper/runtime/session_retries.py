"""Retries that end when this process may be believed dead.

Arrives: calls that may fail for a while. Leaves: their results, or the error that ended the retries.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

import tenacity

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, LeaseLostError, TransientError

LOG = logging.getLogger(__name__)

RETRY_MIN_MS = 10.0
RETRY_MAX_MS = 1_000.0

T = TypeVar("T")


class Lease(Protocol):
    """The right of this process to act."""

    def check(self) -> None:
        """Raises LeaseLostError when the right is over."""


class SessionRetries:
    """Repeats what fails for a while, for as long as the session lives, with growing, jittered waits."""

    def __init__(self, session: Lease, clock: Clock, rng: random.Random) -> None:
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

    def retry(self, what: str, act: Callable[[], T], unless: type[TransientError] = LeaseLostError) -> T:
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
