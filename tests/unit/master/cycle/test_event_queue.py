"""The pace of cycles, news, and lanes."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import UnavailableError
from bookkeeper.master.calls.keyed_executors import QUEUE_MAX, KeyedExecutors
from bookkeeper.master.cycle.cycle import Pacer
from bookkeeper.master.cycle.event_queue import REPORTS_MAX, EventQueue
from bookkeeper.master.index.shipments import Report
from bookkeeper.model import TargetKey


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60))
def test_cycles_keep_their_pace_on_the_long_run_and_a_few_may_follow_at_once(pauses: list[int]) -> None:
    pacer, now, starts = Pacer(10, 3), 0, []
    for pause in pauses:
        starts.append(now)
        now += pacer.hold_ns(now, now) + pause
    for first in range(len(starts)):
        for last in range(first, len(starts)):
            assert last - first + 1 <= (starts[last] - starts[first]) / 10 + 3 + 1


def test_a_single_nudge_after_a_quiet_time_does_not_wait() -> None:
    pacer = Pacer(1_000, 3)
    assert [pacer.hold_ns(0, 0) for _ in range(4)] == [0, 0, 0, 1_000]
    assert pacer.hold_ns(50_000, 50_000) == 0


def test_news_are_taken_once_and_old_reports_make_room_for_new_ones() -> None:
    event_queue = EventQueue()
    event_queue.nudge("a")
    event_queue.nudge("a")
    event_queue.ask_place()
    assert event_queue.event.is_set()
    news = event_queue.take()
    assert (news.sessions, news.place, news.full) == ({"a"}, True, False)
    assert not event_queue.event.is_set()
    assert event_queue.take().sessions == set()
    key = TargetKey("east", "r", "1", 1)
    event_queue.report(Report("s", "t", b"f", key, n, 0, 0, 0, None, False) for n in range(REPORTS_MAX + 5))
    reports = event_queue.take().reports
    assert (len(reports), reports[0].finished) == (REPORTS_MAX, 5)


def test_a_slow_lane_delays_no_other_and_a_full_one_says_so() -> None:

    lanes, gate, done = KeyedExecutors(), threading.Event(), threading.Event()
    assert lanes.submit("slow", lambda: wait_for(gate))
    assert lanes.submit("quick", done.set)
    assert done.wait(30)
    accepted = sum(lanes.submit("slow", lambda: None) for _ in range(QUEUE_MAX + 5))
    assert accepted <= QUEUE_MAX
    gate.set()
    lanes.stop()
    assert not lanes.submit("quick", done.set)


def wait_for(gate: threading.Event) -> None:
    assert gate.wait(30)


def test_an_error_of_a_job_ends_neither_lane_nor_process() -> None:

    lanes, done = KeyedExecutors(), threading.Event()

    def fails() -> None:
        raise UnavailableError("away")

    lanes.submit("a", fails)
    lanes.submit("a", done.set)
    assert done.wait(30)
    lanes.retain(())
    lanes.submit("a", done.set)
    lanes.stop()
