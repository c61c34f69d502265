"""Attempts of writers count upwards at each tablet, and memory of them is bounded."""

from __future__ import annotations

from bookkeeper.model import Extent
from bookkeeper.tserver.write.request_dedup import NO_ATTEMPT, Attempt, RequestDedup, is_for_another

LEFT, RIGHT = Extent("1", b"m", None), Extent("1", None, b"m")


def test_an_attempt_counts_until_a_later_one_came_to_the_same_tablet() -> None:
    attempts = RequestDedup()
    assert attempts.admit(Attempt("w", 2), LEFT)
    assert attempts.admit(Attempt("w", 2), LEFT), "one call may hold several batches of a tablet"
    assert not attempts.admit(Attempt("w", 1), LEFT)
    assert attempts.admit(Attempt("w", 1), RIGHT)
    assert attempts.admit(Attempt("v", 1), LEFT)
    assert attempts.admit(NO_ATTEMPT, LEFT)


def test_the_writer_that_is_silent_for_longest_is_forgotten() -> None:
    attempts = RequestDedup(writers_max=2)
    for writer in ("a", "b", "a", "c"):
        assert attempts.admit(Attempt(writer, 5), LEFT)
    assert not attempts.admit(Attempt("a", 4), LEFT)
    assert attempts.admit(Attempt("b", 4), LEFT)


def test_a_tserver_with_a_later_assignment_than_the_client_knows_refuses_its_write() -> None:
    assert is_for_another(4, 5)
    assert not is_for_another(5, 5)
    assert not is_for_another(6, 5), "a new master has written the location again"
    assert not is_for_another(None, 5)
