"""Random schedules of the machine of replicas: the corrected rules keep all laws, the literal ones get stuck."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bookkeeper.replicas.rules import CORRECTED
from tests.support.segment_simulation.checker import BrokenError
from tests.support.segment_simulation.family_schedules import FamilySchedule
from tests.support.segment_simulation.literal import FLUSHED_FOR_FREE, share_stuck
from tests.support.segment_simulation.schedules import Schedule

SEEDS = 300
STUCK_MIN = 0.3
FAMILY_SEEDS = 300
AT_ONCE = 40
"""Seeds of ``make test``; ``make test-long`` has the others."""
LITERAL_SEEDS = 600


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "seeds",
    [range(AT_ONCE), pytest.param(range(AT_ONCE, SEEDS), marks=pytest.mark.long)],
    ids=["the first seeds", "more seeds"],
)
@pytest.mark.parametrize("kind", [Schedule, FamilySchedule])
def test_the_corrected_rules_keep_all_laws(kind: type[Schedule | FamilySchedule], seeds: range) -> None:
    for seed in seeds:
        schedule = kind(seed)
        try:
            schedule.run()
        except BrokenError as law:
            raise AssertionError(f"seed {seed}: {law}") from law


def test_literal_rules_get_stuck() -> None:
    assert share_stuck(range(LITERAL_SEEDS)) >= STUCK_MIN


def test_a_forced_major_ends_each_livelock() -> None:
    rules = replace(FLUSHED_FOR_FREE, p1_force_major=True, p2_walk_by_base=True)
    assert share_stuck(range(LITERAL_SEEDS // 6), rules) == 0


FOUND = {
    "n1_name_what_was_replayed": "was acknowledged and is lost",
    "n3_copies_min": "copies when its leader named it",
    "n4_books_release": "no host holds file",
    "n5_major_begins_term and p1_force_major": "several roots for ever|left over",
    "n6_named_start": "was acknowledged and is lost",
    "n6_by_origin": "counts twice",
    "n6_covered_exists and n6_by_origin": "counts twice",
    "p5_ack_when_durable": "copies when its leader named it",
    "p9_flush_on_loss": "waits for ever",
    "p10_incarnation": "copies when its leader named it",
}
"""Switches that random schedules find, with the law that breaks."""


@pytest.mark.parametrize(("switches", "law"), FOUND.items(), ids=list(FOUND))
def test_random_schedules_find_a_rule_that_is_off(switches: str, law: str) -> None:
    off: dict[str, Any] = dict.fromkeys(switches.split(" and "), False)
    rules = replace(CORRECTED, **off)

    def search() -> None:
        for seed in range(SEEDS):
            Schedule(seed, rules).run()

    with pytest.raises(BrokenError, match=law):
        search()


FOUND_IN_FAMILIES = {
    "p7_unload_to_leader": "for ever|that the list lacks",
    "p14_send_empty": "for ever|that the list lacks",
    "n6_named_start": "was acknowledged and is lost",
    "n6_by_origin": "twice",
}
"""Switches that schedules with splits, merges, imports and a peer find soon, with the law that breaks."""


@pytest.mark.parametrize(("switch", "law"), FOUND_IN_FAMILIES.items(), ids=list(FOUND_IN_FAMILIES))
def test_schedules_of_families_find_a_rule_that_is_off(switch: str, law: str) -> None:
    off: dict[str, Any] = {switch: False}
    rules = replace(CORRECTED, **off)

    def search() -> None:
        for seed in range(FAMILY_SEEDS):
            FamilySchedule(seed, rules).run()

    with pytest.raises(BrokenError, match=law):
        search()
