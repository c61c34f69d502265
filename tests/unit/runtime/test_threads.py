"""Threads whose death ends their process, and retries that end."""

from __future__ import annotations

import random
import threading

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.errors import InvalidInputError, LeaseLostError, UnavailableError
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.runtime.threads import BackgroundThread, start_thread
from bookkeeper.tserver.maintenance.sorter import Sorter

PATIENCE_S = 30.0


class FakeLease:
    """A session that a test ends."""

    session_id = "s"

    def __init__(self) -> None:
        self.valid = True

    def is_valid(self) -> bool:
        return self.valid

    def check(self) -> None:
        if not self.valid:
            raise LeaseLostError("over")

    def close(self) -> None:
        self.valid = False


def test_a_thread_that_dies_takes_the_process_down() -> None:
    reasons: list[str] = []

    def fails() -> None:
        raise RuntimeError("unforeseen")

    start_thread("t", fails, reasons.append).join(PATIENCE_S)
    assert len(reasons) == 1
    assert "unforeseen" in reasons[0]


def test_transient_failures_are_retried_and_permanent_ones_are_not() -> None:
    lease, tries = FakeLease(), []
    retries = SessionRetries(lease, SystemClock(), random.Random(1))

    def act() -> str:
        tries.append(1)
        if len(tries) < 4:
            raise UnavailableError("not yet")
        return "done"

    assert retries.retry("it", act) == "done"
    assert len(tries) == 4

    def refuse() -> None:
        tries.append(1)
        raise InvalidInputError("never")

    with pytest.raises(InvalidInputError):
        retries.retry("it", refuse)
    assert len(tries) == 5


def test_retries_end_with_the_session_and_after_stop() -> None:
    lease = FakeLease()

    def end_lease() -> None:
        lease.valid = False
        raise UnavailableError("not yet")

    with pytest.raises(LeaseLostError):
        SessionRetries(lease, SystemClock(), random.Random(1)).retry("it", end_lease)
    retries = SessionRetries(FakeLease(), SystemClock(), random.Random(1))

    def stop() -> None:
        retries.stop()
        raise UnavailableError("not yet")

    with pytest.raises(UnavailableError):
        retries.retry("it", stop)


def test_a_background_thread_works_when_it_is_woken_and_a_last_time_on_request() -> None:
    for once_more in (False, True):
        background, woken = BackgroundThread("t", SystemClock(), pytest.fail), threading.Event()
        done: list[bool] = []

        def work(
            thread: BackgroundThread = background, done: list[bool] = done, woken: threading.Event = woken
        ) -> None:
            done.append(thread.closing.is_set())
            woken.set()

        background.start(work, 3_600_000, once_more=once_more)
        background.wake()
        assert woken.wait(PATIENCE_S)
        background.close()
        assert done == [False, True][: 1 + once_more]
        background.close()


def test_a_background_thread_works_by_itself_and_takes_the_process_down_when_it_dies() -> None:
    reasons: list[str] = []
    died = threading.Event()

    def die(reason: str) -> None:
        reasons.append(reason)
        died.set()

    turns = iter([None, None])
    BackgroundThread("t", SystemClock(), die).start(lambda: next(turns), 1)
    assert died.wait(PATIENCE_S)
    assert "the thread t died: StopIteration()" in reasons


def test_equal_sorting_work_that_waits_is_done_once() -> None:
    sorter, done, last = Sorter(SystemClock(), pytest.fail), [], threading.Event()

    def sort() -> None:
        done.append(1)

    for _ in range(5):
        sorter.later(sort)
    sorter.later(last.set)
    sorter.start()
    assert last.wait(PATIENCE_S)
    sorter.close()
    assert done == [1]
