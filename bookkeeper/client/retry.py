"""Retries after TransientError: bounded in time, with exponential pauses and jitter, on the injected clock."""

from __future__ import annotations

import logging
import random
import threading

import tenacity

from bookkeeper.clock import Clock
from bookkeeper.errors import TransientError

LOG = logging.getLogger(__name__)

PAUSE_BASE_MS = 20
PAUSE_MAX_MS = 1_000


def pause_ms(attempt: int, rng: random.Random) -> float:
    """Milliseconds to wait after failure number ``attempt`` (counted from 1): half fixed, half random."""
    full = min(PAUSE_MAX_MS, PAUSE_BASE_MS << min(attempt - 1, 16))
    return full / 2 + rng.random() * full / 2


def retrying(
    clock: Clock, rng: random.Random, stopped: threading.Event, budget_ms: float, name: str
) -> tenacity.Retrying:
    """A retry for one operation: it repeats after TransientError for ``budget_ms`` or until ``stopped``, and then
    raises the last error. ``name`` stands in the log.
    """
    deadline_ns = clock.boot_ns() + int(budget_ms * 1e6)

    def is_over(state: tenacity.RetryCallState) -> bool:
        return stopped.is_set() or clock.boot_ns() + state.upcoming_sleep * 1e9 > deadline_ns

    def wait(state: tenacity.RetryCallState) -> float:
        return pause_ms(state.attempt_number, rng) / 1000

    def sleep(seconds: float) -> None:
        clock.wait(stopped, seconds * 1000)

    def log(state: tenacity.RetryCallState) -> None:
        failure = state.outcome.exception() if state.outcome is not None else None
        LOG.debug("%s: attempt %d: %s", name, state.attempt_number, failure)

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(TransientError),
        stop=is_over,
        wait=wait,
        sleep=sleep,
        before_sleep=log,
        reraise=True,
    )
