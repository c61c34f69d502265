"""The figures of joins and of rounds: that they can be missed, and that a wrong count is an error."""

from __future__ import annotations

import pytest

from tests.benchmarks.figure import met
from tests.benchmarks.replica_joins import Joined, figures_of
from tests.benchmarks.replica_rounds import Outcome
from tests.benchmarks.replica_rounds import figures_of as rounds_of


def test_a_joiner_may_get_one_percent_more_and_none_less() -> None:
    def verdicts(received: int, rate: float, meanwhile: float) -> list[bool | None]:
        return [met(one) for one in figures_of(Joined(1_000, received, rate), 100.0, 10.0, meanwhile)]

    assert verdicts(1_010, 80.0, 8.0) == [True, True, True]
    assert verdicts(1_011, 79.0, 7.9) == [False, False, False]
    with pytest.raises(AssertionError, match="a count is wrong"):
        verdicts(980, 80.0, 8.0)


def test_one_lost_or_repeated_cell_and_a_slow_host_are_missed() -> None:
    good = Outcome(2, 1, felt_s=[0.5, 2.9])
    assert [met(one) for one in rounds_of(good, 8.0)] == [True, True, True]
    bad = Outcome(2, 1, ["links: a"], ["mix: b"], [0.5, 3.1])
    lost, repeated, felt = rounds_of(bad, 8.0)
    assert [met(one) for one in (lost, repeated, felt)] == [False, False, False]
    assert (lost["note"], repeated["note"]) == ("links: a", "mix: b")


def test_rounds_without_a_kill_have_no_time() -> None:
    assert len(rounds_of(Outcome(0, 1), 8.0)) == 2
