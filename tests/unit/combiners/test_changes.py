"""``append``, ``finish`` and ``close``: their changes, and their logic errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from combiners import (
    CLOSED,
    OPEN,
    CombinerError,
    ReplicationStatus,
    State,
    StatusError,
    append,
    close,
    combine,
    finish,
    is_fully_replicated,
    range_needing_replication,
)
from tests.support.status_strategies import statuses


def _status(state: State.ValueType = OPEN, needed: int = 0, finished: int = 0) -> ReplicationStatus:
    return ReplicationStatus(state=state, replication_needed_offset=needed, replication_finished_offset=finished)


def test_finished_100_and_needed_300_leaves_101_to_300() -> None:
    assert range_needing_replication(_status(needed=300, finished=100)) == (101, 300)


@pytest.mark.parametrize(("needed", "finished"), [(0, 0), (7, 7), (0, 5), (7, 8)])
def test_nothing_left_has_no_range(needed: int, finished: int) -> None:
    assert range_needing_replication(_status(needed=needed, finished=finished)) is None


def test_one_record_left_is_a_range_of_one() -> None:
    assert range_needing_replication(_status(needed=1)) == (1, 1)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (_status(OPEN, 7, 7), False),
        (_status(OPEN, 0, 0), False),
        (_status(OPEN, 0, 7), False),
        (_status(CLOSED, 7, 6), False),
        (_status(CLOSED, 7, 7), True),
        (_status(CLOSED, 0, 0), True),
        (_status(CLOSED, 7, 8), True),
        (_status(State.ValueType(2), 7, 7), False),
    ],
)
def test_only_closed_with_nothing_left_is_fully_replicated(status: ReplicationStatus, expected: bool) -> None:
    assert is_fully_replicated(status) is expected


def test_the_life_of_a_file() -> None:
    born = ReplicationStatus(created_time=1_000)
    written = append(append(born, 200, needed_bytes=4_096), 100, needed_bytes=8_192)
    shipped = finish(written, 100, finished_bytes=4_000)
    assert range_needing_replication(shipped) == (101, 300)
    closed = close(shipped)
    assert not is_fully_replicated(closed)
    done = finish(closed, 200, finished_bytes=8_192)
    assert is_fully_replicated(done)
    assert (done.created_time, done.needed_bytes, done.finished_bytes) == (1_000, 8_192, 8_192)
    assert born == ReplicationStatus(created_time=1_000)


@given(statuses(), st.integers(0, 2**64))
def test_changes_climb_and_leave_their_argument_alone(status: ReplicationStatus, records: int) -> None:
    before = status.SerializeToString()
    changed = []
    for change in (lambda s: append(s, records), lambda s: finish(s, records), close):
        try:
            changed.append(change(status))
        except StatusError:
            continue
    assume(changed)
    for result in changed:
        assert combine([status, result]) == combine([result])
    assert status.SerializeToString() == before


@given(statuses(newer=False), st.integers(0, 2**64 - 1))
def test_append_adds_and_only_to_open(status: ReplicationStatus, records: int) -> None:
    before = status.replication_needed_offset
    if status.state == OPEN and before + records < 2**64:
        assert append(status, records).replication_needed_offset == before + records
    else:
        with pytest.raises(StatusError):
            append(status, records)


@given(statuses(newer=False), st.integers(0, 2**64 - 1))
def test_finish_adds_up_to_needed_in_any_state(status: ReplicationStatus, records: int) -> None:
    finished = status.replication_finished_offset + records
    if finished <= status.replication_needed_offset:
        assert finish(status, records).replication_finished_offset == finished
    else:
        with pytest.raises(StatusError):
            finish(status, records)


def test_anything_after_closed_but_finish_is_an_error() -> None:
    closed = _status(CLOSED, needed=5)
    with pytest.raises(StatusError, match="after CLOSED only finish"):
        append(closed, 0)
    with pytest.raises(StatusError, match="after CLOSED only finish"):
        close(closed)
    assert finish(closed, 5).replication_finished_offset == 5


@pytest.mark.parametrize("change", [append, finish])
def test_a_negative_count_is_an_error(change: Callable[[ReplicationStatus, int], ReplicationStatus]) -> None:
    with pytest.raises(StatusError, match="-1 records"):
        change(_status(needed=5, finished=3), -1)


def test_byte_positions_never_go_back() -> None:
    status = ReplicationStatus(replication_needed_offset=5, needed_bytes=100, finished_bytes=50)
    assert append(status, 1, needed_bytes=100).needed_bytes == 100
    with pytest.raises(StatusError, match="byte position 99"):
        append(status, 1, needed_bytes=99)
    with pytest.raises(StatusError, match="byte position 49"):
        finish(status, 1, finished_bytes=49)


def test_status_errors_share_the_base_of_the_room() -> None:
    assert issubclass(StatusError, CombinerError)
