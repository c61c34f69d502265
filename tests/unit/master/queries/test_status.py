"""The status that an operator sees."""

from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from bookkeeper.master.index.file_entry import FileEntry
from bookkeeper.master.index.shipments import Flight, Shipments
from bookkeeper.master.index.target_progress import NO_AMOUNT, Amount
from bookkeeper.master.index.write_times import Look
from bookkeeper.master.queries import causes
from bookkeeper.master.queries.causes import Now
from bookkeeper.master.queries.target_states import TargetState, pending_of_marks, target_states
from bookkeeper.master.queries.why import seconds_since
from tests.support.master_values import EAST, NORTH, by_name, entry, name, report, scopes, shipping, target

W1, W2, W3 = name("s1"), name("s2"), name("s1", 2)
NOW = Now(boot_ns=1_000_000_000, wall_ms=61_000)


def _state(made: FileEntry, work: Shipments | None = None, *others: FileEntry) -> TargetState:
    (found,) = target_states(by_name(made), work or shipping(), NOW, lambda t: t.key == EAST, 5)
    if others:
        states = target_states(by_name(made, *others), work or shipping(), NOW, lambda t: t.key == EAST, 5)
        found = next(state for state in states if state.file == made.name())
    return found


def test_a_file_that_waits_shows_its_lag_in_records_bytes_and_seconds() -> None:
    state = _state(entry(W1, 9, done={EAST: 4}))
    assert (state.phase, state.needed, state.finished, state.lag_records, state.lag_bytes) == ("waiting", 9, 4, 5, 500)


def test_the_age_of_what_this_master_did_not_see_written_is_unknown_and_sorts_by_the_file() -> None:
    state = _state(entry(W1, 9, done={EAST: 4}))
    assert (state.lag_seconds, state.age_max_s) == (None, 60.0)
    assert _state(entry(W1, 9, created=0)).age_max_s == inf


def test_lag_is_the_targets_share_of_the_log_and_not_the_log() -> None:
    made = entry(W1, 100_010, done={EAST: 4}, amount=Amount(10, 900))
    state = _state(made)
    assert (state.needed, state.finished) == (100_010, 4)
    assert (state.lag_records, state.lag_bytes) == (6, 500), "of 10 records of the target, 4 are there"


def test_a_log_without_a_record_for_the_target_lacks_nothing_though_it_is_not_passed_yet() -> None:
    made = entry(W1, 9, amount=NO_AMOUNT)
    state = _state(made)
    assert (state.phase, state.lag_records, state.lag_bytes, state.lag_seconds) == ("waiting", 0, 0, 0.0)


def test_a_report_that_is_newer_than_the_books_counts() -> None:
    work = shipping()
    work.report(replace(report(W1, 6), share=Amount(5, 500)), 0)
    state = _state(entry(W1, 9, done={EAST: 4}), work)
    assert (state.finished, state.lag_records, state.lag_bytes) == (6, 4, 400)


def test_the_lag_is_the_age_of_the_first_missing_record() -> None:
    work = shipping()
    for records, ago_ns in ((3, 900_000_000), (9, 500_000_000)):
        work.times.note_growth((W1, EAST), 0, 0, records, Look(NOW.boot_ns - ago_ns))
    work.report(replace(report(W1, 3), share=Amount(3, 300)), 0)
    assert _state(entry(W1, 9), work).lag_seconds == 0.5


def test_a_wait_in_the_course_of_things_lasts_since_its_first_missing_record_was_written() -> None:
    work, behind = shipping(), entry(W2, 9, barriers=[(1, W1, 9)])
    for file, ago_ns in ((W1, 500_000_000), (W2, 300_000_000)):
        work.times.note_growth((file, EAST), 0, 0, 9, Look(NOW.boot_ns - ago_ns))
    assert since_s(_state(entry(W1, 9), work)) == (causes.WAITING, 0.5)
    assert since_s(_state(behind, work, entry(W1, 9))) == (causes.BEHIND, 0.3)
    work.hand_out((W1, EAST), Flight("s7", "t", 1, 9, NOW.boot_ns))
    assert since_s(_state(entry(W1, 9), work)) == (causes.SHIPPING, 0.5)
    assert since_s(_state(entry(W1, 9, safe=0), work)) == (causes.NOT_READ, 0.5)


def test_nobody_guesses_since_when_records_wait_that_this_master_did_not_see_written() -> None:
    assert since_s(_state(entry(W1, 9, done={EAST: 4}))) == (causes.WAITING, None)
    assert since_s(_state(entry(W1, 9, amount=NO_AMOUNT))) == (causes.WAITING, None)


def test_a_wait_for_a_fault_lasts_since_the_fault_also_behind_another_file() -> None:
    work, behind = shipping(), entry(W2, 9, barriers=[(1, W1, 9)])
    for file in (W1, W2):
        work.times.note_growth((file, EAST), 0, 0, 9, Look(NOW.boot_ns - 500_000_000))
    work.report(report(W1, 0, error="refused", transient=False), NOW.boot_ns - 200_000_000)
    assert since_s(_state(entry(W1, 9), work)) == (causes.PEER_REFUSES, 0.2)
    assert since_s(_state(behind, work, entry(W1, 9))) == (causes.BEHIND, 0.2)


def since_s(state: TargetState) -> tuple[str, float | None]:
    """The kind of a state's cause, and for how long it lasts."""
    return state.cause.kind, seconds_since(state.cause, NOW)


def test_a_wall_clock_that_jumps_does_not_change_the_lag() -> None:
    work = shipping()
    work.times.note_growth((W1, EAST), 0, 0, 9, Look(NOW.boot_ns - 500_000_000))
    ahead = replace(NOW, wall_ms=NOW.wall_ms + 86_400_000)
    (state,) = target_states(by_name(entry(W1, 9)), work, ahead, lambda t: t.key == EAST, 5)
    assert state.lag_seconds == 0.5


def test_a_file_that_a_worker_has_is_shipping_and_names_it() -> None:
    work = shipping()
    work.hand_out((W1, EAST), Flight("s7", "t", 1, 9, 0))
    state = _state(entry(W1, 9), work)
    assert (state.phase, state.worker) == ("shipping", "s7")


def test_a_failing_peer_shows_its_error_and_its_next_try() -> None:
    work = shipping(base_ms=10_000, max_ms=10_000)
    work.report(report(W2, 0, error="connection refused"), NOW.boot_ns)
    state = _state(entry(W1, 9), work)
    assert (state.phase, state.last_error) == ("backing_off", "connection refused")
    assert state.next_try_in_ms is not None
    assert 5_000 <= state.next_try_in_ms <= 10_000


def test_a_file_behind_a_barrier_is_blocked() -> None:
    assert _state(entry(W1, 9, barriers=[(1, W2, 5)]), None, entry(W2, 5)).phase == "blocked"


def test_a_file_of_which_one_host_has_the_next_records_alone_is_uncopied() -> None:
    now = replace(NOW, held_back={W1})

    def phase(safe: int) -> str:
        made = entry(W1, 9, done={EAST: 4}, safe=safe)
        (found,) = target_states(by_name(made), shipping(), now, lambda t: t.key == EAST, 5)
        return found.phase

    assert [phase(4), phase(6)] == ["uncopied", "waiting"]


def test_a_file_that_can_still_go_on_before_its_barrier_is_not_blocked() -> None:
    assert _state(entry(W1, 9, barriers=[(4, W2, 5)]), None, entry(W2, 5)).phase == "waiting"
    assert _state(entry(W1, 9, barriers=[(4, W2, 5)], done={EAST: 3}), None, entry(W2, 5)).phase == "blocked"


def test_a_file_without_anything_left_is_done_whatever_the_peer_does() -> None:
    work = shipping()
    work.report(report(W2, 0, error="connection refused"), NOW.boot_ns)
    state = _state(entry(W1, 9, done={EAST: 9}), work)
    assert (state.phase, state.lag_records, state.lag_bytes, state.lag_seconds) == ("done", 0, 0, 0.0)
    assert (state.last_error, state.next_try_in_ms) == (None, None)


def test_a_log_whose_tserver_died_is_not_done_before_it_is_sealed() -> None:
    lost = replace(NOW, has_lost_owner=lambda name: name != W2.decode())
    files = by_name(*(entry(file, 9, closed=file == W3, done={EAST: 9}) for file in (W1, W2, W3)))
    found = {state.file: state.phase for state in target_states(files, shipping(), lost, lambda t: t.key == EAST, 5)}
    assert found == {W1.decode(): "unsealed", W2.decode(): "done", W3.decode(): "done"}


def test_counts_of_reports_are_shown() -> None:
    work = shipping()
    work.report(report(W1, 4), 0)
    state = _state(entry(W1, 9), work)
    assert (state.finished, state.records_shipped, state.bytes_shipped) == (4, 4, 400)


def test_the_largest_lag_comes_first_and_the_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    files = by_name(*(entry(name("s1", n), 9, created=n * 1_000, known=scopes(EAST, NORTH)) for n in range(1, 6)))
    states = target_states(files, shipping(), NOW, lambda _: True, 5)
    assert len(states) == 10
    assert [s.age_max_s for s in states] == sorted((s.age_max_s for s in states), reverse=True)
    monkeypatch.setattr("bookkeeper.master.queries.target_states.STATUS_ROWS_MAX", 3)
    assert len(target_states(files, shipping(), NOW, lambda _: True, 5)) == 3


def test_below_a_mark_are_outstanding_files_that_are_not_finished_so_far() -> None:
    marks = {"w1": 5, "w2": 7, "w3": 9}
    outstanding = {"w1": (target(EAST), target(NORTH)), "w2": (target(EAST),)}
    finished = {("w1", EAST): 5, ("w1", NORTH): 4, ("w2", EAST): 8}
    found = pending_of_marks(marks, outstanding, lambda file, t: finished.get((file, t.key), 0))
    assert found == [("w1", target(NORTH))], "w3 has no books: it is done"
