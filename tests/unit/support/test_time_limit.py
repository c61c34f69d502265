"""A machine that stands still does not use up the time of a test."""

from __future__ import annotations

from tests.support.jumping_clock import TestClock
from tests.support.time_limit import PAUSE_NS_MAX, TimeLimit


def test_a_limit_runs_out_by_polls_and_not_by_pauses_of_the_machine() -> None:
    clock = TestClock()
    limit = TimeLimit(3.5, clock)
    for _ in range(3):
        clock.jump(60_000)
        assert not limit.is_over(), f"a pause counts for more than {PAUSE_NS_MAX} ns"
    clock.jump(600)
    assert limit.is_over()
