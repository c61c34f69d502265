"""The time of records: the wall clock, up to what the store knows (N7)."""

from __future__ import annotations

import pytest

from bookkeeper.errors import UnavailableError
from bookkeeper.tserver.write.server_times import LimitedTimes, UnlimitedTimes
from tests.support.faults import fault
from tests.support.jumping_clock import TestClock

AHEAD_MS = 10_000
JUMP_MS = 300_000


class Store:
    """Has a limit, unless it is away."""

    def __init__(self) -> None:
        self.limit_ms, self.raised, self.is_away = 0, 0, False

    def raise_limit(self, time_ms: int) -> None:
        if self.is_away:
            raise UnavailableError("away")
        self.limit_ms, self.raised = time_ms, self.raised + 1


class StandingWall(TestClock):
    """Its wall clock stands still until a test sets it."""

    def wall_ms(self) -> int:
        return 1_000_000 + self.set_by_ms


def made(store: Store, clock: StandingWall) -> LimitedTimes:
    times = LimitedTimes(clock, store.raise_limit, AHEAD_MS, pytest.fail)
    times.look()
    return times


def test_n7_no_record_has_a_time_that_the_store_does_not_know() -> None:
    store, clock = Store(), StandingWall()
    times = made(store, clock)
    assert times.now_ms() == clock.wall_ms()
    clock.set_by_ms = JUMP_MS
    assert times.now_ms() <= store.limit_ms, "N7: the store does not know this time"
    times.look()
    assert times.now_ms() == clock.wall_ms() <= store.limit_ms


def test_n7_red_the_clock_decides() -> None:
    with fault("times-are-raised-later"), pytest.raises(AssertionError, match="N7: the store does not know this time"):
        test_n7_no_record_has_a_time_that_the_store_does_not_know()


def test_the_time_stands_and_writes_go_on_while_the_store_is_away() -> None:
    store, clock = Store(), StandingWall()
    times, store.is_away = made(store, clock), True
    clock.set_by_ms = AHEAD_MS + 1
    with pytest.raises(UnavailableError):
        times.look()
    assert times.now_ms() == store.limit_ms
    store.is_away = False
    times.look()
    assert times.now_ms() == clock.wall_ms()


def test_the_store_is_asked_once_in_half_of_the_time_ahead() -> None:
    store, clock = Store(), StandingWall()
    times = made(store, clock)
    for _ in range(40):
        clock.set_by_ms += AHEAD_MS // 20
        times.look()
    assert store.raised <= 1 + 2 * 40 // 20
    assert times.now_ms() == clock.wall_ms()


def test_a_clock_that_is_set_back_asks_for_nothing() -> None:
    store, clock = Store(), StandingWall()
    times = made(store, clock)
    clock.set_by_ms = -JUMP_MS
    times.look()
    assert store.raised == 1
    assert times.now_ms() == clock.wall_ms()


def test_n7_a_tablet_that_is_ahead_of_the_clock_is_covered_before_it_is_served() -> None:
    store, clock = Store(), StandingWall()
    times = made(store, clock)
    ahead_ms = clock.wall_ms() + JUMP_MS
    times.cover(ahead_ms)
    assert store.limit_ms == ahead_ms
    assert times.now_ms() == clock.wall_ms()
    times.cover(ahead_ms - 1)
    assert store.raised == 2


def test_where_all_hosts_reach_the_logs_the_clock_decides() -> None:
    clock = StandingWall()
    times = UnlimitedTimes(clock)
    times.cover(clock.wall_ms() + JUMP_MS)
    clock.set_by_ms = JUMP_MS
    assert times.now_ms() == clock.wall_ms()
