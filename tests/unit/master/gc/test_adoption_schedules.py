"""Random schedules of files on their way into tablets: R4 and R17.

Arrives: imports, transfers, relays, exports, compactions, processes that die or outlive their sessions, slow calls. The
collector deletes nothing that a tablet, a log or an export needs, and in the end everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.support.adoption_simulation.schedules import LawBrokenError, edges, run_schedule
from tests.support.faults import fault

SEEDS, FURTHER = range(8), range(8, 40)
"""Schedules of the suite and of the long tests; ``python -m tests.support.adoption_simulation`` runs more."""


def search(seeds: Iterable[int]) -> Counter[str]:
    """One schedule after the other; returns how often things happened."""
    counts = Counter[str]()
    with edges():
        for seed in seeds:
            counts.update(run_schedule(seed))
    return counts


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(FURTHER, marks=pytest.mark.long)], ids=["some", "further"])
def test_r17_no_schedule_of_adoptions_loses_a_file_or_keeps_one(seeds: range) -> None:
    counts = search(seeds)
    things = {"imports", "transfers", "adoptions", "exports", "compactions", "logs shipped", "tservers hurt", "delays"}
    assert things <= set(counts), "some of it never happened"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("switch", "seeds", "law"),
    [
        ("uploads-own-their-files", range(1, 2), "goes, and tablet"),
        ("holds-outlive-their-operation", range(1, 2), "stays on disk"),
    ],
)
def test_r17_red_the_search_finds_each_broken_rule(switch: str, seeds: range, law: str) -> None:
    with fault(switch), pytest.raises(LawBrokenError, match=law):
        search(seeds)
