"""Which logs a tablet's state speaks of: those of the flush, and those whose first use may come late."""

from __future__ import annotations

from bookkeeper.tserver.tablets.flushed_logs import FlushedLogs

FLIGHT_MS = 10
NS = 1_000_000


def test_what_an_earlier_state_says_stays_until_no_first_use_can_come_late() -> None:
    logs = FlushedLogs({"before": 7}, FLIGHT_MS)
    assert logs.flush({"w1": 2}, "w1", 100 * NS) == {"before": 7, "w1": 2}
    assert logs.flush({}, "w1", 110 * NS) == {"before": 7, "w1": 2}
    assert logs.flush({}, "w1", 111 * NS) == {"w1": 2}


def test_the_log_that_is_written_stays_however_long_ago_it_was_needed() -> None:
    logs = FlushedLogs({}, FLIGHT_MS)
    logs.flush({"w1": 2}, "w1", 0)
    assert logs.flush({}, "w1", 900 * NS) == {"w1": 2}
    assert logs.flush({"w2": 1}, "w2", 901 * NS) == {"w1": 2, "w2": 1}
    assert logs.flush({}, "w2", 912 * NS) == {"w2": 1}


def test_a_log_that_is_needed_is_spoken_of_and_never_less_than_before() -> None:
    logs = FlushedLogs({"w1": 5}, FLIGHT_MS)
    logs.flush({}, "w2", 0)
    assert logs.flush({"w1": 4}, "w2", 5 * NS) == {"w1": 5}
    assert logs.flush({"w1": 6}, "w2", 900 * NS) == {"w1": 6}
