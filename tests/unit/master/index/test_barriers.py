"""Barriers of many tablets and logs: few of them say all that they say."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.master.index import barriers as rules
from bookkeeper.master.index.barriers import BARRIERS_MAX, FileBarrier, log_directory, necessary_barriers
from tests.support.faults import fault
from tests.support.master_values import name

OWN = [name("s1", number) for number in range(1, 8)]
OTHERS = [name("s2", number) for number in range(1, 8)]
IMPORTS = [name("import", 0).replace(b"000000", b"%02x-1" % number) for number in range(1, 8)]
FILE, END = name("s1", 8), 9

offsets = st.integers(1, END)
logs = st.sampled_from(OWN + OTHERS + IMPORTS)
named = st.lists(st.builds(FileBarrier, offsets, logs, offsets, st.just(False)), max_size=30)
any_barriers = st.lists(st.builds(FileBarrier, offsets, logs, offsets, st.booleans()), max_size=12)
reached = st.fixed_dictionaries({log: st.integers(0, END) for log in OWN + OTHERS + IMPORTS})


def _holds(found: Iterable[FileBarrier], offset: int, finished: Mapping[bytes, int]) -> bool:
    """Whether some barrier keeps ``offset`` back while logs, of ``END`` records each, are finished that far."""

    def lacks(barrier: FileBarrier) -> bool:
        directory = log_directory(barrier.file) if barrier.all_before else None
        older = [log for log in finished if directory is not None and log_directory(log) == directory]
        return finished[barrier.file] < barrier.until_offset or any(
            finished[log] < END for log in older if log < barrier.file
        )

    return any(barrier.offset <= offset and lacks(barrier) for barrier in found)


@given(any_barriers, reached)
def test_leaving_out_barriers_that_others_imply_changes_nothing_that_they_hold_back(
    found: list[FileBarrier], finished: dict[bytes, int]
) -> None:
    found = [barrier._replace(all_before=barrier.all_before and barrier.file not in IMPORTS) for barrier in found]
    kept = necessary_barriers(found)
    assert set(kept) <= set(found)
    assert list(kept) == sorted(kept)
    for offset in range(END + 2):
        assert _holds(kept, offset, finished) == _holds(found, offset, finished)


@given(any_barriers)
def test_a_barrier_is_implied_if_it_is_left_out_beside_the_others(found: list[FileBarrier]) -> None:
    *others, last = necessary_barriers(found) or (FileBarrier(1, OWN[0], 1),)
    for barrier in (*found, last):
        beside = necessary_barriers(other for other in others if other != barrier)
        assert rules.imply(beside, barrier) == (barrier not in necessary_barriers((*beside, barrier)))


def check_that_coarser_barriers_hold_back_no_less(found: list[FileBarrier], finished: Mapping[bytes, int]) -> None:
    kept = rules.coarser_barriers(FILE, necessary_barriers(found))
    for offset in range(END + 2):
        assert _holds(kept, offset, finished) >= _holds(found, offset, finished), "R24: coarser barriers hold back less"


@given(named, reached)
def test_barriers_made_coarser_are_few_hold_back_no_less_and_stay_as_they_are(
    found: list[FileBarrier], finished: dict[bytes, int]
) -> None:
    check_that_coarser_barriers_hold_back_no_less(found, finished)
    kept = rules.coarser_barriers(FILE, necessary_barriers(found))
    assert list(kept) == sorted(kept)
    assert len([barrier for barrier in kept if barrier.file in OWN]) <= BARRIERS_MAX
    others = [barrier for barrier in kept if barrier.file in OTHERS]
    reach = [(barrier.file, barrier.until_offset) for barrier in others if barrier.all_before]
    assert reach == sorted(set(reach))
    assert len(others) - len(reach) < BARRIERS_MAX or not reach
    assert rules.coarser_barriers(FILE, necessary_barriers((*kept, *found))) == kept


@given(named)
def test_what_is_waited_for_of_others_is_not_newer_than_what_a_tablet_waits_for(found: list[FileBarrier]) -> None:
    """Else files could wait for each other in a circle."""
    kept = rules.coarser_barriers(FILE, necessary_barriers(found))
    assert all(barrier._replace(all_before=False) in found for barrier in kept if barrier.file not in OWN)
    assert not any(barrier.all_before for barrier in kept if barrier.file in IMPORTS)
    for barrier in kept:
        assert any(b.offset <= barrier.offset for b in found if (b.file in OWN) == (barrier.file in OWN))


def test_barriers_of_many_tablets_made_coarser_hold_back_no_less() -> None:
    for log in OWN:
        finished = {other: 0 if other == log else END for other in OWN}
        check_that_coarser_barriers_hold_back_no_less([FileBarrier(n, OWN[-n], n) for n in range(1, 8)], finished)
        check_that_coarser_barriers_hold_back_no_less([FileBarrier(n, OWN[0], n) for n in range(1, 8)], finished)


def test_barriers_of_another_tservers_logs_wait_for_no_record_that_came_later() -> None:
    one_log = tuple(FileBarrier(n, OTHERS[0], n) for n in range(1, 10))
    kept = rules.coarser_barriers(FILE, one_log)
    assert kept == (*one_log[:3], *(barrier._replace(all_before=True) for barrier in one_log[3:])), (
        "R24: a barrier waits for a record that came later"
    )
    own = tuple(FileBarrier(n, OWN[0], n) for n in range(1, 10))
    assert rules.coarser_barriers(FILE, own) == (*own[:3], FileBarrier(4, OWN[0], 9))


def test_barriers_of_thousands_of_logs_become_a_handful() -> None:
    numbers = random.Random(1).sample(range(5_000), 5_000)
    idle = [FileBarrier(1 + at, name("s1", number), at) for at, number in enumerate(numbers)]
    moved = [FileBarrier(1 + at, name("s2", number), at) for at, number in enumerate(numbers)]
    kept = rules.coarser_barriers(name("s1", 9_000), necessary_barriers(idle + moved))
    assert len([barrier for barrier in kept if barrier.file.startswith(b"wal/s1/")]) == BARRIERS_MAX
    assert len(kept) < 20


def test_only_numbered_logs_have_older_ones() -> None:
    assert log_directory(name("s1", 12)) == b"wal/s1/"
    assert [log_directory(file) for file in (IMPORTS[0], b"000001.wal", b"/w/1.wal", b"/w/0000001.wal")] == [None] * 4


@pytest.mark.parametrize(
    ("switch", "law", "says"),
    [
        (
            "barriers-beyond-a-few-are-dropped",
            test_barriers_of_many_tablets_made_coarser_hold_back_no_less,
            "coarser barriers hold back less",
        ),
        (
            "barriers-of-any-log-become-one",
            test_barriers_of_another_tservers_logs_wait_for_no_record_that_came_later,
            "a barrier waits for a record that came later",
        ),
    ],
)
def test_a_switch_breaks_the_law_of_coarser_barriers(switch: str, law: Callable[[], None], says: str) -> None:
    with fault(switch), pytest.raises(AssertionError, match=says):
        law()
