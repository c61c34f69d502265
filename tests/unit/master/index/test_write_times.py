"""The age of the first record that a target lacks: true to a tenth, in a few hundred steps, or unknown."""

from __future__ import annotations

from random import Random

import pytest

from bookkeeper.master.index.write_times import AGE_PARTS, APART_NS, Look, Step, WriteTimes, from_headers, with_growth
from tests.support.faults import fault
from tests.support.master_values import EAST, NORTH, name

W1 = name("s1")
KEY = (W1, EAST)
SECOND = 1_000_000_000
DAY_MS = 86_400_000


def check_steady_writes(pause_ns: int, share_of_finished: float, seed: int) -> int:
    """Writes in a steady stream, of which the peer gets a part: returns the most steps there were."""
    rng, times = Random(seed), WriteTimes()
    written: list[int] = []
    now_ns = most = finished = 0
    for _ in range(1_500):
        now_ns += rng.randrange(2 * pause_ns)
        before = len(written)
        written += [now_ns] * rng.randint(1, 5)
        times.note_growth(KEY, finished, before, len(written), Look(now_ns))
        finished = max(finished, int(len(written) * share_of_finished) - rng.randrange(9))
        shown = times.written_ns(KEY, finished, now_ns)
        true = written[finished] if finished < len(written) else now_ns
        assert shown is not None
        error = abs(shown - true)
        assert error <= max(APART_NS, (now_ns - true) // AGE_PARTS), f"{error / SECOND} s wrong"
        most = max(most, len(times.steps[KEY]))
    return most


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("pause_ms", [1, 50, 5_000, 3_600_000])
def test_under_steady_writes_the_age_is_true_to_a_tenth(pause_ms: int, share: float) -> None:
    most = check_steady_writes(pause_ms * 1_000_000, share, seed=pause_ms)
    assert most < 400


def test_if_the_time_restarts_only_when_nothing_is_missing_the_age_grows_for_ever() -> None:
    with fault("lag-restarts-when-complete"), pytest.raises(AssertionError, match="s wrong"):
        check_steady_writes(50_000_000, 0.9, seed=1)


def test_a_peer_with_everything_lacks_a_record_since_the_next_look() -> None:
    times = WriteTimes()
    times.note_growth(KEY, 0, 0, 5, Look(SECOND))
    times.note_growth(KEY, 5, 5, 6, Look(9 * SECOND))
    assert times.written_ns(KEY, 5, 10 * SECOND) == 9 * SECOND
    times.note_look(until_ns=12 * SECOND)
    assert times.written_ns(KEY, 6, 10 * SECOND) == 10 * SECOND, "a record that no read has noted yet is new"
    assert times.written_ns(KEY, 6, 13 * SECOND) is None, "the books were not read for a while"


def test_a_file_that_this_leader_did_not_see_growing_is_unknown_until_its_headers_tell() -> None:
    times = WriteTimes()
    assert times.written_ns(KEY, 0, 0) is None
    times.note_growth(KEY, 3, 5, 9, Look(20 * SECOND))
    assert times.take_unread() == {KEY}
    assert times.written_ns(KEY, 4, 30 * SECOND) is None, "record 5 was written before"
    assert times.written_ns(KEY, 5, 30 * SECOND) == 20 * SECOND
    times.note_headers(KEY, 3, 5, (Step(4, 7 * SECOND, 7 * SECOND), Step(5, 8 * SECOND, 8 * SECOND)))
    found = [times.written_ns(KEY, finished, 30 * SECOND) for finished in (3, 4, 5)]
    assert found == [7 * SECOND, 8 * SECOND, 20 * SECOND]
    assert times.is_known_from(KEY, 3)


def test_a_file_of_which_nothing_was_missing_is_known_from_its_next_record_on() -> None:
    times = WriteTimes()
    times.note_growth(KEY, 5, 5, 9, Look(20 * SECOND))
    assert times.written_ns(KEY, 5, 30 * SECOND) == 20 * SECOND
    assert times.take_unread() == set()


def test_growth_that_a_late_read_finds_is_unknown() -> None:
    times = WriteTimes()
    times.note_growth(KEY, 0, 0, 5, Look(SECOND))
    times.note_growth(KEY, 0, 5, 7, Look(60 * SECOND, is_timely=False))
    times.note_growth(KEY, 0, 7, 8, Look(61 * SECOND, is_timely=False))
    times.note_growth(KEY, 0, 8, 9, Look(62 * SECOND))
    found = [times.written_ns(KEY, finished, 99 * SECOND) for finished in (4, 5, 7, 8)]
    assert found == [SECOND, None, None, 62 * SECOND]
    assert times.take_unread() == {KEY}


def test_headers_that_were_read_in_part_leave_the_rest_unknown_and_change_no_known_step() -> None:
    times = WriteTimes()
    times.note_headers(KEY, 2, 100, (Step(4, SECOND, SECOND), Step(40, 3 * SECOND, 3 * SECOND)))
    found = [times.written_ns(KEY, finished, 9 * SECOND) for finished in (2, 4, 40, 99)]
    assert found == [SECOND, 3 * SECOND, None, None]
    times.note_headers(KEY, 3, 100, (Step(100, 8 * SECOND, 8 * SECOND),))
    assert times.written_ns(KEY, 3, 9 * SECOND) == SECOND
    times.note_headers(KEY, 40, 100, (Step(100, 8 * SECOND, 8 * SECOND),))
    assert times.written_ns(KEY, 40, 9 * SECOND) == 8 * SECOND


def test_an_old_file_has_one_step() -> None:
    times = WriteTimes()
    for second in range(600):
        times.note_growth(KEY, 0, second, second + 1, Look(second * SECOND))
    assert len(times.steps[KEY]) > 10
    times.thin(7_200 * SECOND)
    assert [step.records for step in times.steps[KEY]] == [600]
    assert times.written_ns(KEY, 599, 7_200 * SECOND) == 0


def test_files_that_are_not_outstanding_are_forgotten() -> None:
    times = WriteTimes()
    for key in (KEY, (name("s2"), EAST), (W1, NORTH)):
        for at in (1, 2):
            times.note_growth(key, 0, 0, at, Look(at * 60 * SECOND))
    times.forget_all_but({W1})
    times.thin(99 * SECOND)
    assert set(times.steps) == {KEY, (W1, NORTH)}


def test_a_range_in_quarantine_keeps_its_time_until_it_ends() -> None:
    times = WriteTimes()
    times.note_range((W1, EAST, 3), 7)
    times.note_range((W1, EAST, 9), None)
    assert times.ranges == {(W1, EAST, 3): 7}
    times.keep_ranges({(W1, EAST, 3)})
    assert times.ranges == {(W1, EAST, 3): 7}
    times.keep_ranges(set())
    assert not times.ranges


def test_times_of_headers_count_from_now_and_a_clock_that_was_ahead_counts_for_nothing() -> None:
    now_ns, now_ms = 1_000 * SECOND, 5_000_000
    read = [(1, now_ms - 40_000), (2, now_ms + DAY_MS), (3, now_ms - 30_000), (4, now_ms + DAY_MS)]
    steps = from_headers(read, now_ns, now_ms)
    assert [(step.records, step.first_ns) for step in steps] == [
        (1, 960 * SECOND),
        (3, 970 * SECOND),
        (4, now_ns),
    ], "record 2 is not younger than record 3"


def test_growth_that_headers_noted_first_has_the_time_of_its_look() -> None:
    times = WriteTimes()
    times.note_headers(KEY, 0, 4, (Step(3, SECOND, SECOND),))  # the snapshot has four records, the log three so far
    assert times.written_ns(KEY, 3, 60 * SECOND) is None
    times.note_growth(KEY, 0, 3, 4, Look(60 * SECOND))
    assert (times.written_ns(KEY, 0, 61 * SECOND), times.written_ns(KEY, 3, 61 * SECOND)) == (SECOND, 60 * SECOND)


@pytest.mark.parametrize(("before", "unknown"), [(3, ()), (4, (Step(4, None),))])
def test_records_from_before_the_look_stay_unknown(before: int, unknown: tuple[Step, ...]) -> None:
    steps = (Step(3, SECOND, SECOND), Step(5, None))
    new = Step(5, 60 * SECOND, 60 * SECOND)
    assert with_growth(steps, 0, before, 5, Look(60 * SECOND)) == (steps[0], *unknown, new)
    assert with_growth(steps, 0, before, 5, Look(60 * SECOND, is_timely=False)) == steps, "late: headers have to tell"


def test_growth_behind_finished_records_drops_their_steps() -> None:
    steps = (Step(2, 0, 0), Step(4, 60 * SECOND, 60 * SECOND))
    assert with_growth(steps, 2, 4, 5, Look(120 * SECOND)) == (*steps[1:], Step(5, 120 * SECOND, 120 * SECOND))
    assert with_growth(steps, 0, 3, 4, Look(120 * SECOND)) == steps, "a repeated look adds nothing"
