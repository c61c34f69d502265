"""Tablets that split, merge, take imports and share logs: directed schedules, with an accident at each step."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from bookkeeper.replicas.placements import Phase
from tests.support.segment_simulation.checker import BrokenError
from tests.support.segment_simulation.family_schedules import FamilySchedule

Json = dict[str, Any]
SEEDS = 100


def step(kind: str, replica: str | None = None, **args: Any) -> Json:
    """A step of the runner."""
    return {"step": kind, **({} if replica is None else {"replica": replica}), **args}


def closing(leader: str, *others: str) -> list[Json]:
    """Flush, replicate and name."""
    served = [step("replicate_to", leader, to=other) for other in others]
    return [step("flush", leader), *served, step("name", leader)]


BEGIN = [
    step("elect", leader="a/t"),
    step("elect", leader="a/u"),
    step("write", "a/t", rows=["k1=1", "k6=1"]),
    step("write", "a/u", rows=["k2=1"]),
    step("adopt", "a/t", rows=["k3=i1"], **{"import": 1}),
    *closing("a/t", "b/t"),
    step("write", "a/t", rows=["k1=2", "k6=2"]),
]
AWAY = [
    step(
        "split",
        "a/t",
        at="k4",
        low={"tablet": "t1", "replicas": ["b/t1", "d/t1"]},
        high={"tablet": "t2", "replicas": ["d/t2", "c/t2"]},
    ),
    *closing("a/t", "b/t", "b/t1", "d/t2"),
    step("write", "a/t", rows=["k1=3", "k7=3"]),
    *closing("b/t1", "d/t1"),
    *closing("d/t2", "c/t2"),
    *closing("a/t", "b/t", "b/t1"),
    step("split_finalize", "a/t"),
    step("write", "b/t1", rows=["k1=4"]),
    step("unload", "a/t"),
    step("unload", "b/t", queued=True),
    *closing("b/t1", "d/t1"),
    *closing("d/t2", "c/t2"),
    step("retire", "b/t"),
]
IN_PLACE = [
    *closing("a/t", "b/t"),
    step("split_in_place", "a/t", at="k4", low="t1", high="t2"),
    step("elect", leader="b/t1"),
    step("elect", leader="a/t2"),
    step("write", "b/t1", rows=["k0=3"]),
    step("write", "a/t2", rows=["k7=3"]),
    *closing("b/t1", "a/t1"),
    *closing("a/t2", "b/t2"),
    step("merge", low="b/t1", high="a/t2", tablet="t3"),
    step("elect", leader="b/t3"),
    step("write", "b/t3", rows=["k4=4"]),
    *closing("b/t3", "a/t3"),
]
ACCIDENTS = {
    "the leader's host dies, and another one leads": [step("crash", "a/u"), step("elect", leader="b/u")],
    "the leader's host is away, and comes back": [step("stop", "a/u")],
    "a follower is away, and comes back": [step("stop", "b/u")],
    "a disk is lost": [step("wipe", "c/u")],
    "a process dies": [step("crash", "b/u")],
    "the bytes of a disk go wrong": [step("damage", "b/u")],
    "the network is cut": [step("partition", sides=[["a/t", "a/u"], ["b/t", "b/u", "c/t", "c/u"]])],
}


def played(steps: list[Json], schedule: FamilySchedule | None = None) -> FamilySchedule:
    """A schedule after some steps; steps of replicas that an accident kept from being made are left out."""
    schedule = schedule or FamilySchedule(0)
    for one in steps:
        names = [one[key] for key in ("replica", "to", "leader", "low", "high") if isinstance(one.get(key), str)]
        replicas = [name for name in names if "/" in name]
        if all(name in schedule.play.world.replicas for name in replicas):
            schedule.do(one["step"], **{key: value for key, value in one.items() if key != "step"})
            schedule.checker.after_step()
    return schedule


def tablets_of(schedule: FamilySchedule) -> list[str]:
    """The tablets of table t that serve."""
    books = schedule.play.world.books
    return [one for one in books if books[one].table == "t" and not books[one].is_gone]


def test_e61_a_split_to_other_hosts_ends_with_the_children_alone() -> None:
    schedule = played(BEGIN + AWAY)
    assert schedule.play.world.books["t"].row.phase is Phase.SPLIT
    schedule.rest()
    assert tablets_of(schedule) == ["t1", "t2"]
    assert not [name for name in schedule.play.world.replicas if name.endswith("/t")]


def test_a_split_in_place_and_a_merge_move_no_file() -> None:
    schedule = played(BEGIN + IN_PLACE[:4])
    world = schedule.play.world
    parent = world.replicas["b/t"].files
    assert parent
    for child in ("b/t1", "b/t2"):
        assert world.replicas[child].files == parent, "a follower of a child lacks a file that its parent has"
    played(IN_PLACE[4:], schedule)
    schedule.rest()
    assert tablets_of(schedule) == ["t3"]


def test_p7_a_tablet_from_a_split_in_place_goes_when_its_children_have_its_first_state_too() -> None:
    schedule = played([*BEGIN, *IN_PLACE[:4], step("elect", leader="b/t1")])
    away = [
        step(
            "split",
            "b/t1",
            at="k2",
            low={"tablet": "t3", "replicas": ["d/t3", "a/t3"]},
            high={"tablet": "t4", "replicas": ["c/t4", "d/t4"]},
        ),
        step("write", "d/t3", rows=["k0=9"]),
        step("write", "c/t4", rows=["k3=9"]),
        *closing("d/t3", "a/t3"),
        *closing("c/t4", "d/t4"),
        *closing("b/t1", "a/t1"),
        *closing("b/t1", "d/t3", "c/t4"),
    ]
    ending = [step("split_finalize", "b/t1"), step("unload", "b/t1"), step("retire", "b/t1")]
    played(away + ending, schedule)
    assert "t1" in tablets_of(schedule), "the children have in memory alone what their parent had"
    played([*closing("d/t3", "a/t3"), *closing("c/t4", "d/t4"), *ending], schedule)
    assert "t1" not in tablets_of(schedule)
    schedule.rest()


@pytest.mark.parametrize("accident", ACCIDENTS.values(), ids=list(ACCIDENTS))
@pytest.mark.parametrize("way", [AWAY, IN_PLACE], ids=["to other hosts", "in place"])
def test_e55_e56_an_accident_at_each_step_loses_nothing_and_blocks_nothing(
    way: list[Json], accident: list[Json]
) -> None:
    for position in range(len(way) + 1):
        schedule = played(BEGIN + way[:position] + accident + way[position:])
        try:
            schedule.rest()
        except BrokenError as law:
            raise AssertionError(f"an accident in front of step {position}: {law}") from law


def broken_by(change: Callable[[FamilySchedule], None]) -> None:
    """Play random schedules with a changed rule until a law breaks."""
    for seed in range(SEEDS):
        schedule = FamilySchedule(seed)
        change(schedule)
        schedule.run()


def test_a_log_that_another_tablet_needs_stays() -> None:
    def deleted_by_the_first(schedule: FamilySchedule) -> None:
        def may_delete(is_sealed: bool, needed_by: Collection[str]) -> bool:
            return is_sealed and len(needed_by) < 2

        schedule.play.world.may_delete_log = may_delete

    with pytest.raises(BrokenError, match="was acknowledged and is lost"):
        broken_by(deleted_by_the_first)


def test_a_peer_gets_no_record_that_only_one_host_has() -> None:
    def shipped_at_once(schedule: FamilySchedule) -> None:
        def shippable(end: int, named: int, is_on_host: bool) -> int:  # noqa: ARG001
            return end

        schedule.play.world.shippable = shippable

    with pytest.raises(BrokenError, match="before it was durable"):
        broken_by(shipped_at_once)
