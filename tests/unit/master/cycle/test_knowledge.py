"""The answers that a master may give before, between and after its full cycles."""

from __future__ import annotations

import pytest

from bookkeeper.errors import NotReadyError
from bookkeeper.master.cycle.cycle import Health
from bookkeeper.master.cycle.knowledge import expect_known, knowledge_of

S = 1_000_000_000


def test_before_the_first_full_cycle_there_is_no_age() -> None:
    known = knowledge_of(Health(), 1_000, 5 * S)
    assert known.age_ms is None
    with pytest.raises(NotReadyError, match="has not read the books yet; ask again"):
        expect_known(known)


def test_the_problem_names_the_reason_of_a_missing_first_cycle() -> None:
    known = knowledge_of(Health(failures=3, failures_in_row=3, last_error="unavailable: disk"), 1_000, 5 * S)
    assert "the last 3 cycles failed, unavailable: disk" in known.problem


def test_fresh_knowledge_has_an_age_and_no_problem() -> None:
    known = expect_known(knowledge_of(Health(known_ns=5 * S, full_ms=500), 1_000, 7 * S))
    assert (known.age_ms, known.problem) == (2_000, "")


def test_old_knowledge_says_its_age_and_why() -> None:
    failing = Health(known_ns=5 * S, failures_in_row=2, last_error="unavailable: disk")
    assert expect_known(knowledge_of(failing, 1_000, 65 * S)).problem == (
        "what is shown was read 60.0 s ago: the last 2 cycles failed, unavailable: disk"
    )


def test_a_cycle_that_hangs_is_a_problem_without_any_failure() -> None:
    health = Health(known_ns=5 * S, full_ms=500)
    assert knowledge_of(health, 1_000, 9 * S).problem == ""
    hanging = knowledge_of(health, 1_000, 10 * S)
    assert hanging.problem == "what is shown was read 5.0 s ago: no full cycle has ended since"
