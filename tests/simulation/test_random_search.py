"""Random schedules find what is broken: each switch that is named here is found by the first few seeds.

Rules: R1, R12, R15, R17 to R20, R22 and R24; laws L1, L2 and L4.

The directed schedules show a rule's law where it bites; this shows that the search would have led there by itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.faults import fault
from tests.support.simulation.chaos import run_schedule
from tests.support.simulation.kernel import StuckError
from tests.support.simulation.world import LawBrokenError, simulation
from tests.support.simulation.zookeeper_stages import ZooKeeperStage

SEEDS = 40
LENGTH = 60

FOUND = {
    "answered-before-the-sync": "claimed|lost|not durable",
    "books-not-awaited": "deleted early",
    "closed-ranks-like-open": "R1",
    "everything-merges": "gap|garbage|R1|order|missing",
    "sent-counts-as-durable": "gap|R1|order",
    "high-water-does-not-count and paths-are-not-compared and acknowledged-blocks-are-believed": "twice",
    "marks-of-ended-streams-stay": "left over",
    "no-barriers-in-the-books": "R1|order|gap",
    "no-fence": "lost",
    "passed-without-a-row": "claimed",
    "quarantine-keeps-nothing": "deleted early",
}
"""Switches, with what the law says that is found to be broken. A peer whose high-waters count for nothing would be told
to lack what it acknowledged, before anything is there twice: so nobody asks it.
"""

BEGIN = {
    "answered-before-the-sync": 1,
    "everything-merges": 18,
    "high-water-does-not-count and paths-are-not-compared and acknowledged-blocks-are-believed": 2,
    "marks-of-ended-streams-stay": 3,
    "no-barriers-in-the-books": 2,
    "no-fence": 14,
    "passed-without-a-row": 2,
    "quarantine-keeps-nothing": 2,
    "sent-counts-as-durable": 10,
}
"""The first seed of a search that is a long one from seed 0 on: a seed that found it in few steps."""


LONG = ("marks-of-ended-streams-stay",)
"""Found only when nothing comes to rest: a directed schedule proves these at a tenth of the CPU."""


@pytest.mark.parametrize(
    ("switch", "said"),
    [pytest.param(*one, id=one[0], marks=[pytest.mark.long] if one[0] in LONG else []) for one in FOUND.items()],
)
def test_random_schedules_find_a_broken_rule(tmp_path: Path, switch: str, said: str) -> None:
    def search() -> None:
        first = BEGIN.get(switch, 0)
        for seed in range(first, first + SEEDS):
            with simulation(tmp_path / str(seed), seed) as world:
                run_schedule(world, seed, LENGTH)

    with fault(switch), pytest.raises((LawBrokenError, StuckError), match=said):
        search()


@pytest.mark.long
def test_random_schedules_in_zookeeper_find_a_broken_rule(tmp_path: Path) -> None:
    red = pytest.raises(LawBrokenError, match=r"R15: session .* counts on its lease")
    with fault("zookeeper-unanswered-renewals-count"), simulation(tmp_path / "world", 7) as world, red:
        run_schedule(world, 7, LENGTH, ZooKeeperStage)
