"""Retries of calls with transient errors; they end with the lease, after which this process may count as dead."""

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
    """The part of a session that retries need."""

    def check(self) -> None:
        """Raise LeaseLostError when the session is over."""


class SessionRetries:
    """Repeats calls with transient errors while the session lives, with growing, jittered waits."""

    def __init__(
        self, session: Lease, clock: Clock, rng: random.Random, confirm: Callable[[], None] = lambda: None
    ) -> None:
        """``confirm``: see :meth:`confirm`; not needed where others reach a fence of each log of the process."""
        self._session = session
        self._confirm = confirm
        self._clock = clock
        self._rng = rng
        self._stop = threading.Event()

    def stop(self) -> None:
        """End all waits; calls that fail from now on are not repeated."""
        self._stop.set()

    def check(self) -> None:
        """Raise LeaseLostError when the session is over."""
        self._session.check()

    def confirm(self) -> None:
        """Raise LeaseLostError when other processes count this one as dead; TransientError: nobody knows. The lease
        does not say so on a machine that was paused together with its clock.
        """
        self._session.check()
        self._confirm()

    def retry(self, action: str, act: Callable[[], T], unless: type[TransientError] = LeaseLostError) -> T:
        """Call ``act`` until it raises no TransientError. Checks the session before each try. Raises LeaseLostError
        when the session is over, and any other error of ``act``, also ``unless``. ``action`` names the call in log
        lines.
        """

        def attempt() -> T:
            self._session.check()
            return act()

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda e: _may_succeed_later(e) and not isinstance(e, unless)),
            stop=lambda _: self._stop.is_set(),
            wait=lambda state: self._wait_ms(state.attempt_number) / 1000,
            sleep=lambda seconds: self._sleep(seconds),
            before_sleep=lambda state: _log_retry(action, state),
            reraise=True,
        )
        return retrying(attempt)

    def _wait_ms(self, attempt: int) -> float:
        return self._rng.uniform(RETRY_MIN_MS, min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** min(attempt, 10)))

    def _sleep(self, seconds: float) -> None:
        self._clock.wait(self._stop, seconds * 1000)


def _may_succeed_later(error: BaseException) -> bool:
    return isinstance(error, TransientError) and not isinstance(error, LeaseLostError)


def _log_retry(action: str, state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    reason = error.message if isinstance(error, BookkeeperError) else error
    LOG.warning("%s failed (try %d): %s; trying again", action, state.attempt_number, reason)
