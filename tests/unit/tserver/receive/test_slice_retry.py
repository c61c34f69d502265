"""A message waits for tablets that are away for a moment, for a bounded time and with few others."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from bookkeeper.errors import (
    BookkeeperError,
    GapError,
    InvalidInputError,
    NoSpaceError,
    NotServingError,
    OverloadedError,
    RefusedError,
    UnavailableError,
)
from bookkeeper.model import Extent
from bookkeeper.tserver.receive.receiving_tablets import Located
from bookkeeper.tserver.receive.slice_retry import PAUSE_MS, WAIT_MS, SliceRetry, Tried, is_away
from bookkeeper.tserver.receive.tablet_slice import Applied, FailedSlice, TabletSlice

AWAY = NotServingError("it loads")
TAKEN = Applied(9, 9, 0)


class StepClock:
    """A clock that stands still but for waiting."""

    def __init__(self) -> None:
        self.now_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms

    def boot_ns(self) -> int:
        return self.now_ms * 1_000_000

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        self.now_ms += int(timeout_ms)
        return event.is_set()


def failed_slice(error: BookkeeperError = AWAY) -> FailedSlice:
    return FailedSlice(TabletSlice(Located(Extent("1", None, None), "s", "h:1"), ()), error)


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (AWAY, True),
        (UnavailableError("killed"), True),
        (NoSpaceError("full"), False),
        (OverloadedError("memory"), False),
        (GapError("gap", {"high_water": "1"}), False),
        (RefusedError("over"), False),
        (InvalidInputError("garbage"), False),
    ],
)
def test_only_a_tablet_that_may_be_back_in_a_moment_is_waited_for(error: BookkeeperError, away: bool) -> None:
    assert is_away(error) == away
    tries: list[int] = []

    def again(slices: Sequence[FailedSlice]) -> Tried:
        tries.append(len(slices))
        return [TAKEN], []

    failed = [failed_slice(), failed_slice(error)]
    results, left = SliceRetry(StepClock(), 1).until_taken(0, failed, again)
    assert (results, left, tries) == (([TAKEN], [], [2]) if away else ([], failed, []))


def test_a_share_is_tried_until_it_is_taken() -> None:
    clock, left = StepClock(), iter([2, 1, 1, 0])

    def again(slices: Sequence[FailedSlice]) -> Tried:
        more = next(left)
        return [TAKEN] * (len(slices) - more), [failed_slice()] * more

    assert SliceRetry(clock, 1).until_taken(0, [failed_slice(), failed_slice()], again) == ([TAKEN, TAKEN], [])
    assert clock.now_ms == 4 * PAUSE_MS


def test_the_wait_ends_with_its_time_counted_from_when_the_message_came() -> None:
    clock = StepClock()
    clock.now_ms = 3_000
    tries: list[int] = []

    def again(slices: Sequence[FailedSlice]) -> Tried:
        tries.append(clock.now_ms)
        return [], list(slices)

    assert SliceRetry(clock, 1).until_taken(1_000 * 1_000_000, [failed_slice()], again) == ([], [failed_slice()])
    assert tries == list(range(3_000 + PAUSE_MS, 1_000 + WAIT_MS + 1, PAUSE_MS))


def test_another_error_decides_at_once() -> None:
    refused = failed_slice(RefusedError("over"))
    tries: list[int] = []

    def again(slices: Sequence[FailedSlice]) -> Tried:
        tries.append(len(slices))
        return [], [refused]

    assert SliceRetry(StepClock(), 1).until_taken(0, [failed_slice()], again) == ([], [refused])
    assert tries == [1]


def test_few_messages_wait_at_once_and_none_where_there_is_no_thread_for_it() -> None:
    retry, first, go_on = SliceRetry(StepClock(), 1), threading.Event(), threading.Event()

    def again(slices: Sequence[FailedSlice]) -> Tried:  # noqa: ARG001
        first.set()
        assert go_on.wait(60)
        return [TAKEN], []

    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(retry.until_taken, 0, [failed_slice()], again)
        assert first.wait(60)
        assert retry.until_taken(0, [failed_slice()], again) == ([], [failed_slice()])
        go_on.set()
        assert waits.result(60) == ([TAKEN], [])
    assert retry.until_taken(0, [failed_slice()], again) == ([TAKEN], [])
    assert SliceRetry(StepClock(), 0).until_taken(0, [failed_slice()], again) == ([], [failed_slice()])


def test_a_tserver_that_ends_lets_no_message_wait() -> None:
    retry = SliceRetry(StepClock(), 1)
    retry.close()

    def again(slices: Sequence[FailedSlice]) -> Tried:
        raise AssertionError(slices)

    assert retry.until_taken(0, [failed_slice()], again) == ([], [failed_slice()])
