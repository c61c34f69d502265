"""A replay process's progress of its streams: nothing goes out twice, and a peer that has less is believed."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from bookkeeper.clock import SystemClock
from bookkeeper.errors import OverloadedError
from bookkeeper.replay.progress import STREAMS_MAX, AckedEnd, StreamProgress, missing_part
from bookkeeper.replay.ranges import Range, RangeError, RangeResult, check_range
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.ranges import a_range

LIMIT_MS = 60_000
AWAY = RangeError("unavailable", "away", transient=True)


def result(r: Range, acked: int, position: int = 0, high_water: int | None = None) -> RangeResult:
    error = None if acked == r.last else AWAY
    return RangeResult(r.range_id, acked, position, high_water, 0, 0, 0, 0, 0, 0, 0, error, "h", 1, 0.0)


def shipped(progress: StreamProgress, r: Range, acked: int, position: int = 0, high_water: int | None = None) -> None:
    """A run of one range."""
    with progress.exclusive([r], LIMIT_MS) as (rests, _):
        assert [rest.range_id for rest in rests] == [r.range_id]
        progress.record(rests, [result(r, acked, position, high_water)])


def rests_of(progress: StreamProgress, *ranges: Range) -> tuple[list[Range], list[RangeResult]]:
    with progress.exclusive(ranges, LIMIT_MS) as found:
        return found


def test_of_a_range_that_the_peer_has_in_part_the_rest_begins_right_behind() -> None:
    r = a_range("a", 5, 9)
    assert missing_part(r, None) == missing_part(r, AckedEnd(4, 77)) == missing_part(r, AckedEnd(2, 77)) == r
    rest = missing_part(r, AckedEnd(7, 77))
    assert rest == replace(r, first=8, finished=7, position_hint=77)
    check_range(rest)
    assert missing_part(r, AckedEnd(9, 77)) is missing_part(r, AckedEnd(12, 77)) is None


def test_a_later_range_of_a_stream_begins_at_the_same_fact() -> None:
    r = replace(a_range("a", 5, 9), finished=0)
    assert missing_part(r, AckedEnd(4, 77)) == replace(r, finished=4)
    assert missing_part(r, AckedEnd(2, 77)) == replace(r, finished=2)


def check_nothing_goes_twice() -> None:
    progress, r = StreamProgress(SystemClock()), a_range("a", 1, 9)
    shipped(progress, r, 7, 77)
    rests, known = rests_of(progress, r)
    assert rests == [replace(r, first=8, finished=7, position_hint=77)], "shipped records go out again"
    assert known == []
    shipped(progress, replace(r, first=8, finished=7), 9, 99)
    rests, known = rests_of(progress, r)
    assert rests == []
    assert [(row.range_id, row.acked_offset, row.sent_records, row.error) for row in known] == [
        (r.range_id, 9, 0, None)
    ]


def check_less_is_believed() -> None:
    progress, r = StreamProgress(SystemClock()), a_range("a", 1, 9)
    shipped(progress, r, 7, 77)
    shipped(progress, replace(r, first=8, finished=7), 7, 0, high_water=2)
    assert rests_of(progress, replace(r, first=3, finished=2))[0] == [replace(r, first=3, finished=2)], (
        "the peer lacks records that are not sent"
    )


def check_one_sender() -> None:
    progress, r = StreamProgress(SystemClock()), a_range("a", 1, 9)
    other = a_range("b", 1, 9, range_id=2)
    found: list[list[Range]] = []
    with progress.exclusive([r], LIMIT_MS) as (rests, _):
        second = threading.Thread(target=lambda: found.append(rests_of(progress, r, other)[0]), daemon=True)
        second.start()
        with must_raise(OverloadedError, "a stream has two senders", match="another run"):
            progress.exclusive([r], 0).__enter__()
        assert found == [], "a stream has two senders"
        progress.record(rests, [result(r, 9, 99)])
    second.join(LIMIT_MS / 1000)
    assert found == [[other]]


def test_what_was_shipped_is_not_sent_again() -> None:
    check_nothing_goes_twice()


def test_r19_a_peer_that_has_less_than_it_said_gets_it_again() -> None:
    check_less_is_believed()


def test_a_stream_has_one_sender_at_a_time() -> None:
    check_one_sender()


@pytest.mark.parametrize(
    ("name", "law", "says"),
    [
        ("progress-is-not-remembered", check_nothing_goes_twice, "go out again"),
        ("a-peer-with-less-is-not-believed", check_less_is_believed, "lacks records"),
    ],
)
def test_without_its_rule_a_law_is_red(name: str, law: Callable[[], None], says: str) -> None:
    with fault(name), pytest.raises(AssertionError, match=says):
        law()


def test_without_waiting_a_stream_has_two_senders() -> None:
    with fault("streams-have-two-senders"), pytest.raises(AssertionError, match="a stream has two senders"):
        check_one_sender()


def test_runs_and_targets_of_a_file_are_streams_of_their_own() -> None:
    progress, r = StreamProgress(SystemClock()), a_range("a", 1, 9)
    shipped(progress, r, 9)
    again = replace(r, run_id="again")
    elsewhere = replace(r, peer_instance_id="another")
    assert rests_of(progress, again, elsewhere)[0] == [again, elsewhere]


def test_a_range_that_failed_leaves_what_was_known() -> None:
    progress, r = StreamProgress(SystemClock()), a_range("a", 1, 9)
    shipped(progress, r, 7, 77)
    rest = replace(r, first=8, finished=7)
    shipped(progress, rest, 7)
    assert rests_of(progress, r)[0] == [replace(rest, position_hint=77)]


def test_the_memory_is_bounded_and_the_longest_unused_goes() -> None:
    progress = StreamProgress(SystemClock())
    ranges = [a_range(f"{n}", 1, 9, range_id=n) for n in range(STREAMS_MAX + 1)]
    progress.record(ranges, [result(r, 9) for r in ranges])
    assert rests_of(progress, ranges[0])[0] == [ranges[0]]
    assert rests_of(progress, ranges[1])[0] == []
