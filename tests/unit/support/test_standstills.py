"""A check of a short time begins again when the machine stood still, and not otherwise."""

from __future__ import annotations

import pytest

from tests.support.jumping_clock import StandingClock
from tests.support.standstills import TRIES, undisturbed


class Check:
    """Fails at its first tries; the machine stands still in each of them when ``stands_ms`` says so."""

    def __init__(self, fails: int, stands_ms: float) -> None:
        self.clock = StandingClock()
        self.calls = 0
        self._fails = fails
        self._stands_ms = stands_ms

    def __call__(self) -> int:
        self.calls += 1
        self.clock.jump(self._stands_ms)
        assert self.calls > self._fails, "too late"
        return self.calls


def test_a_check_that_a_standstill_disturbed_begins_again() -> None:
    check = Check(fails=2, stands_ms=1_000)
    assert undisturbed(check, check.clock) == 3


def test_a_failure_without_a_standstill_counts_at_once() -> None:
    check = Check(fails=1, stands_ms=100)
    with pytest.raises(AssertionError, match="too late"):
        undisturbed(check, check.clock)
    assert check.calls == 1


def test_a_check_that_fails_again_and_again_has_failed() -> None:
    check = Check(fails=TRIES, stands_ms=1_000)
    with pytest.raises(AssertionError, match="too late"):
        undisturbed(check, check.clock)
    assert check.calls == TRIES
