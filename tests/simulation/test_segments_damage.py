"""Wrong bytes on disks, step by step: each schedule has a twin in which one rule is off, and which says what breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bookkeeper.replicas.values import state_id
from tests.support.faults import fault
from tests.support.segment_simulation.checker import BrokenError
from tests.support.segment_simulation.damage import is_intact
from tests.support.segment_simulation.family_schedules import FamilySchedule
from tests.support.segment_simulation.schedules import Schedule

FIRST, SECOND = state_id(1, 1), state_id(1, 2)
"""The files of term 1 behind its major without files."""
SEEDS = 50


def begun(*followers: str) -> Schedule:
    """A leads, and followers have its first file. No state is named."""
    schedule = Schedule(0)
    do(schedule, "elect", leader="a")
    flush(schedule, "k1=1", *followers)
    return schedule


def do(schedule: Schedule, kind: str, **args: Any) -> dict[str, Any]:
    """A step, and the laws behind it."""
    reply = schedule.do(kind, **args)
    schedule.checker.after_step()
    return reply


def flush(schedule: Schedule, row: str, *followers: str) -> None:
    """The leader writes a file and sends it to followers."""
    do(schedule, "write", replica="a", rows=[row])
    do(schedule, "flush", replica="a")
    for follower in followers:
        do(schedule, "replicate_to", replica="a", to=follower)


def spoil(schedule: Schedule, name: str, file: int) -> None:
    """The bytes of a file go wrong, and its host finds it."""
    do(schedule, "damage", replica=name, file=file)
    assert do(schedule, "check", replica=name)["damaged"] == [file]


def test_n3_a_leader_names_no_state_on_the_word_of_its_own_damaged_file() -> None:
    schedule = begun("b")
    spoil(schedule, "a", FIRST)
    do(schedule, "name", replica="a")
    assert do(schedule, "mend", replica="a")["mended"] == [FIRST]
    assert do(schedule, "name", replica="a")["named"] == FIRST
    schedule.rest()


def test_n3_red_a_damaged_file_of_the_leader_counts() -> None:
    with fault("damaged-file-is-held"), pytest.raises(BrokenError, match="had 1 copies when its leader named it"):
        test_n3_a_leader_names_no_state_on_the_word_of_its_own_damaged_file()


def test_n3_a_leader_that_was_told_of_a_damaged_copy_waits_for_a_sound_one() -> None:
    schedule = begun("b")
    spoil(schedule, "b", FIRST)
    do(schedule, "mend", replica="b", queued=True)
    do(schedule, "deliver", message=1)  # the request: the leader knows
    do(schedule, "name", replica="a")
    assert do(schedule, "deliver", message=2)["mended"] == [FIRST]
    assert "named" not in do(schedule, "name", replica="a"), "the copy came, but its host has not said so"
    do(schedule, "replicate_to", replica="a", to="b")
    assert do(schedule, "name", replica="a")["named"] == FIRST
    schedule.rest()


def test_n3_red_a_damaged_copy_stays_acknowledged() -> None:
    with (
        fault("damaged-copy-stays-acknowledged"),
        pytest.raises(BrokenError, match="had 1 copies when its leader named it"),
    ):
        test_n3_a_leader_that_was_told_of_a_damaged_copy_waits_for_a_sound_one()


def test_n3_a_follower_acknowledges_no_state_while_it_waits_for_a_sound_copy() -> None:
    schedule = begun("b")
    spoil(schedule, "b", FIRST)
    do(schedule, "mend", replica="b", queued=True)
    do(schedule, "deliver", message=1)
    do(schedule, "drop", message=2)
    (offer,) = do(schedule, "replicate_to", replica="a", to="b")["offers"]
    assert offer["reply"] == "OVERLOADED"
    flush(schedule, "k2=2", "c")
    assert do(schedule, "name", replica="a")["named"] == SECOND
    schedule.rest()


def test_n3_red_a_follower_acknowledges_a_damaged_file() -> None:
    law = f"b acknowledges a state whose file {FIRST} it knows to be damaged"
    with fault("damaged-file-exists"), pytest.raises(BrokenError, match=law):
        test_n3_a_follower_acknowledges_no_state_while_it_waits_for_a_sound_copy()


def test_n3_a_transfer_that_took_a_damaged_file_for_held_counts_for_nothing() -> None:
    schedule = begun("b")
    flush(schedule, "k2=2")
    do(schedule, "replicate_to", replica="a", to="b", queued=True)
    do(schedule, "deliver", message=1)
    do(schedule, "deliver", message=2)  # b wants the second file alone
    spoil(schedule, "b", FIRST)
    do(schedule, "deliver", message=3)
    assert schedule.play.world.replicas["b"].root == FIRST
    do(schedule, "mend", replica="b")
    do(schedule, "replicate_to", replica="a", to="b")
    assert schedule.play.world.replicas["b"].root == SECOND
    schedule.rest()


def test_n3_red_a_transfer_goes_on_with_a_damaged_file() -> None:
    law = f"b acknowledges a state whose file {FIRST} it knows to be damaged"
    with fault("damaged-file-is-held"), pytest.raises(BrokenError, match=law):
        test_n3_a_transfer_that_took_a_damaged_file_for_held_counts_for_nothing()


def test_n4_no_host_deletes_files_because_a_damaged_copy_replaces_them() -> None:
    schedule = begun("b", "c")
    schedule.do("name", replica="a")
    schedule.do("compact", replica="a")
    schedule.do("replicate_to", replica="a", to="b")
    schedule.do("damage", replica="a", file=SECOND)
    schedule.do("check", replica="a")
    schedule.do("name", replica="a")
    schedule.do("leader_gc", replica="a")
    schedule.do("follower_run", replica="b")
    world = schedule.play.world
    kept = [name for name in ("a", "b", "c") if str(FIRST) in world.replicas[name].files]
    assert kept == ["a", "b", "c"], "N4: a damaged copy of the compacted file lets hosts delete the first one"
    do(schedule, "wipe", replica="b")  # the only sound copy of the compacted file
    schedule.rest()


def test_n4_red_a_damaged_copy_counts_and_files_go() -> None:
    with (
        fault("damaged-file-is-held"),
        pytest.raises(AssertionError, match="lets hosts delete the first one"),
    ):
        test_n4_no_host_deletes_files_because_a_damaged_copy_replaces_them()


def test_n4_a_damaged_file_that_the_books_list_stays_until_a_sound_copy_is_here() -> None:
    schedule = begun("b", "c")
    do(schedule, "name", replica="a")
    spoil(schedule, "b", FIRST)
    assert "deleted" not in do(schedule, "follower_run", replica="b")
    assert do(schedule, "mend", replica="b")["mended"] == [FIRST]
    schedule.rest()


def test_n4_red_a_damaged_file_goes_at_once() -> None:
    with (
        fault("damaged-file-is-deleted"),
        pytest.raises(BrokenError, match=f"b lacks file {FIRST} of its root's list"),
    ):
        test_n4_a_damaged_file_that_the_books_list_stays_until_a_sound_copy_is_here()


Compare = Callable[[bool], bool]


def transfer(compare: Compare) -> None:
    """The leader sends a file whose bytes are wrong."""
    schedule = begun("b")
    schedule.play.world.is_intact = compare
    do(schedule, "damage", replica="a", file=FIRST)
    *_, offer = do(schedule, "replicate_to", replica="a", to="c")["offers"]
    assert (offer["segment"], offer["reply"]) == (FIRST, "ERROR")
    assert schedule.play.world.replicas["c"].files == frozenset()
    schedule.rest()


def request(compare: Compare) -> None:
    """A follower asks the leader, whose bytes are wrong, too; the third host has a sound copy."""
    schedule = begun("b", "c")
    spoil(schedule, "b", FIRST)
    schedule.play.world.is_intact = compare
    do(schedule, "damage", replica="a", file=FIRST)
    reply = do(schedule, "mend", replica="b")
    assert (reply["damaged"], reply["mended"]) == ([FIRST], [FIRST])
    schedule.rest()


def compaction(compare: Compare) -> None:
    """The leader folds a file whose bytes are wrong."""
    schedule = begun("b")
    schedule.play.world.is_intact = compare
    do(schedule, "damage", replica="a", file=FIRST)
    assert do(schedule, "compact", replica="a") == {"outcome": "damaged", "damaged": [FIRST]}
    do(schedule, "mend", replica="a")
    assert do(schedule, "compact", replica="a")["outcome"] == "done"
    schedule.rest()


WAYS = [transfer, request, compaction]


@pytest.mark.parametrize("way", WAYS)
def test_wrong_bytes_never_pass_for_a_file(way: Callable[[Compare], None]) -> None:
    way(is_intact)


@pytest.mark.parametrize("way", WAYS)
def test_without_a_comparison_wrong_bytes_pass_for_a_file(way: Callable[[Compare], None]) -> None:
    with pytest.raises(BrokenError, match="takes wrong bytes for file"):
        way(lambda is_wrong: True)  # noqa: ARG005


def test_a_merge_reads_nothing_wrong_of_a_log_that_was_given_up() -> None:
    schedule = begun("b", "c")
    do(schedule, "name", replica="a")
    flush(schedule, "k2=2", "b")
    do(schedule, "stop", replica="a")
    do(schedule, "elect", leader="b", give_up=True)
    do(schedule, "damage", replica="b", file=SECOND)
    assert "merged" not in do(schedule, "leader_gc", replica="b")
    do(schedule, "resume", replica="a")
    assert do(schedule, "mend", replica="b")["mended"] == [SECOND]
    assert do(schedule, "leader_gc", replica="b")["merged"] == [SECOND]
    schedule.rest()


def test_n6_a_host_begins_no_term_from_a_state_of_which_a_file_is_damaged() -> None:
    schedule = begun("b", "c")
    do(schedule, "name", replica="a")
    spoil(schedule, "b", FIRST)
    assert "b lacks file" in do(schedule, "elect", leader="b")["reason"]
    do(schedule, "mend", replica="b")
    assert do(schedule, "elect", leader="b")["outcome"] == "done"
    schedule.rest()


def test_one_sound_copy_heals_all_others() -> None:
    schedule = begun("b", "c")
    do(schedule, "name", replica="a")
    for name in ("a", "b"):
        do(schedule, "damage", replica=name)
    schedule.rest()
    world = schedule.play.world
    assert [world.rows[name, str(FIRST)] for name in ("a", "b", "c")] == [("k1=1",)] * 3


def test_without_a_sound_copy_the_row_is_lost_and_the_law_says_so() -> None:
    schedule = begun("b")
    do(schedule, "name", replica="a")
    do(schedule, "damage", replica="a")
    with pytest.raises(BrokenError, match=f"no host holds file {FIRST}, which the books name"):
        do(schedule, "damage", replica="b")


def test_the_next_term_has_the_rows_of_a_file_that_only_its_leader_had() -> None:
    schedule = begun()
    spoil(schedule, "a", FIRST)
    assert do(schedule, "mend", replica="a")["lacking"] == [FIRST]
    assert do(schedule, "elect", leader="a")["replayed"] == ["k1=1"]
    schedule.rest()


def test_e54_a_joiner_whose_copy_is_damaged_becomes_no_voter() -> None:
    schedule = begun("b")
    do(schedule, "join", replica="d", leader="a", placement="d1")
    do(schedule, "replicate_to", replica="a", to="d")
    spoil(schedule, "d", FIRST)
    do(schedule, "mend", replica="d", queued=True)
    do(schedule, "deliver", message=1)
    refused = do(schedule, "join_finalize", replica="d", leader="a")["outcome"] == "refused"
    assert refused, "N3: a joiner votes on the strength of a copy that it knows to be damaged"
    do(schedule, "deliver", message=2)
    do(schedule, "replicate_to", replica="a", to="d")
    assert do(schedule, "join_finalize", replica="d", leader="a")["outcome"] == "done"
    schedule.rest()


def test_e54_red_a_joiner_with_a_damaged_copy_votes() -> None:
    with (
        fault("damaged-copy-stays-acknowledged"),
        pytest.raises(AssertionError, match="a joiner votes on the strength of a copy"),
    ):
        test_e54_a_joiner_whose_copy_is_damaged_becomes_no_voter()


def family(*followers: str) -> FamilySchedule:
    """Replica a of tablet t leads and has one file, which is named; followers have it, too."""
    schedule = FamilySchedule(0)
    schedule.do("elect", leader="a/t")
    schedule.do("write", replica="a/t", rows=["k1=1", "k6=1"])
    schedule.do("flush", replica="a/t")
    for follower in followers:
        schedule.do("replicate_to", replica="a/t", to=follower)
    assert schedule.do("name", replica="a/t")["named"] == FIRST
    schedule.checker.after_step()
    return schedule


def test_n3_a_tablet_splits_in_place_only_with_sound_copies() -> None:
    schedule = family("b/t")
    split = {"replica": "a/t", "at": "k4", "low": "t1", "high": "t2"}
    schedule.do("damage", replica="b/t", file=FIRST)
    schedule.do("check", replica="b/t")
    schedule.do("mend", replica="b/t", queued=True)
    schedule.do("deliver", message=1)
    refused = schedule.do("split_in_place", **split)
    schedule.checker.after_step()
    assert refused["reason"] == "tablet t has 1 copies of its state: replicate first"
    schedule.do("deliver", message=2)
    schedule.do("replicate_to", replica="a/t", to="b/t")
    assert schedule.do("split_in_place", **split)["outcome"] == "done"
    schedule.rest()


def test_n3_red_a_tablet_splits_with_a_damaged_copy() -> None:
    with (
        fault("damaged-copy-stays-acknowledged"),
        pytest.raises(BrokenError, match="had 1 copies when its leader named it"),
    ):
        test_n3_a_tablet_splits_in_place_only_with_sound_copies()


def test_e56_a_link_to_a_damaged_file_is_damaged_and_gets_its_copy_from_another_host_of_the_child() -> None:
    schedule = family("b/t", "c/t")
    schedule.do("damage", replica="b/t", file=FIRST)
    schedule.do("split_in_place", replica="a/t", at="k4", low="t1", high="t2")
    for child, row in (("b/t1", "k1=1"), ("b/t2", "k6=1")):
        assert schedule.do("check", replica=child)["damaged"] == [FIRST]
        refused = schedule.do("mend", replica=child, **{"from": "b/t"})
        assert refused["reason"] == "b/t is a replica of another tablet: its files have other rows"
        assert schedule.do("mend", replica=child)["mended"] == [FIRST]
        assert schedule.play.world.rows[child, str(FIRST)] == (row,)
        schedule.checker.after_step()
    schedule.rest()


def test_e56_the_links_of_one_host_are_damaged_together_and_mended_one_by_one() -> None:
    schedule = family("b/t", "c/t")
    schedule.do("split_in_place", replica="a/t", at="k4", low="t1", high="t2")
    schedule.do("damage", replica="b/t1", file=FIRST)
    for child in ("b/t1", "b/t2"):
        assert schedule.do("check", replica=child)["damaged"] == [FIRST]
        assert schedule.do("mend", replica=child)["mended"] == [FIRST]
        schedule.checker.after_step()
    schedule.do("damage", replica="b/t1", file=FIRST)
    assert schedule.do("check", replica="b/t2") == {"outcome": "done"}, "a mended file is no link any more"
    schedule.rest()


def test_e65_a_replica_in_unload_gets_a_sound_copy_of_another_replica_of_its_tablet() -> None:
    schedule = family("b/t")
    children = {"low": {"tablet": "t1", "replicas": ["b/t1"]}, "high": {"tablet": "t2", "replicas": ["d/t2"]}}
    schedule.do("split", replica="a/t", at="k4", **{"async": True}, **children)
    schedule.do("damage", replica="a/t", file=FIRST)
    assert schedule.do("unload", replica="a/t")["outcome"] == "waits"
    assert schedule.do("mend", replica="a/t")["mended"] == [FIRST]
    assert schedule.do("unload", replica="a/t")["outcome"] == "unloaded"
    schedule.rest()


SWITCHES = {
    "damaged-file-is-held": "copies when its leader named it|acknowledges a state",
    "damaged-file-is-deleted": "lacks file",
}
"""Switches that random schedules find soon, with the law that breaks."""


@pytest.mark.parametrize(("switch", "law"), SWITCHES.items(), ids=list(SWITCHES))
def test_random_schedules_find_a_switch(switch: str, law: str) -> None:
    def search() -> None:
        for seed in range(SEEDS):
            Schedule(seed).run()

    with fault(switch), pytest.raises(BrokenError, match=law):
        search()
