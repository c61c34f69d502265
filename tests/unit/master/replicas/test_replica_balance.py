"""The balance of replicas over hosts: it ends, with few copies, also when several replicas move at once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bookkeeper.master.replicas.repair_state import Join
from tests.support.faults import fault
from tests.support.replica_plan_world import LIMITS, Host, PlanWorld

SIZES = st.lists(st.sampled_from([40, 100, 200, 700]), min_size=2, max_size=12)


def test_loads_end_within_a_tenth_of_each_other() -> None:
    world = PlanWorld.of(5, 20, 3, 2)
    steps = world.settle(2_000)
    assert not world.broken
    counts = sorted(host.replicas for host in world.host_states().values())
    assert counts == [12] * 5, f"{steps} steps"
    assert world.steps["Join"] == 24, "each of the 24 replicas that two new hosts lack moved once"


@settings(max_examples=150, deadline=None)
@given(SIZES, st.integers(2, 4), st.integers(1, 2), st.integers(1, 8))
def test_the_balance_ends_with_several_moves_at_once(sizes: list[int], hosts: int, more: int, joins_max: int) -> None:
    world = PlanWorld.of(hosts, len(sizes), 2, 2, tuple(sizes))
    world.limits = replace(LIMITS, joins_max=joins_max)
    world.settle()
    world.hosts |= {f"n{number}": Host() for number in range(more)}
    world.settle()
    assert not world.broken


def moved_at_once() -> PlanWorld:
    """Three hosts have tablets of uneven sizes, and another host comes; four replicas join at a time."""
    world = PlanWorld.of(3, 8, 2, 2, (700, 100, 100, 700, 200, 200, 50, 50))
    world.limits = replace(LIMITS, joins_max=4)
    world.settle()
    world.hosts["h3"] = Host()
    world.settle()
    return world


def test_what_leaves_is_what_the_balance_chose_when_it_chose_what_joins() -> None:
    world = moved_at_once()
    assert not world.broken
    assert world.steps["Join"] == world.steps["Leave"] == 10


def test_red_what_leaves_is_chosen_when_other_moves_are_half_done_and_the_balance_never_ends() -> None:
    with fault("moves-end-anywhere"):
        world = moved_at_once()
    assert any("the plan does not end" in law for law in world.broken)


def fewer_replicas() -> PlanWorld:
    """``table.replicas`` falls from 3 to 2 for nine tablets on three hosts."""
    world = PlanWorld.of(3, 9, 3, 2)
    for tablet in world.tablets.values():
        tablet.wanted, tablet.copies_needed = 2, 2
    world.settle()
    return world


def test_tablets_that_lose_a_replica_at_once_lose_it_on_different_hosts() -> None:
    world = fewer_replicas()
    assert not world.broken
    assert world.steps["Join"] == 0, "nothing is copied"
    assert [host.replicas for host in world.host_states().values()] == [6, 6, 6]


def test_red_tablets_that_lose_a_replica_at_once_lose_it_on_one_host() -> None:
    with fault("leaves-count-for-nothing"):
        world = fewer_replicas()
    assert world.steps["Join"] > 0


def test_replicas_that_join_at_once_go_to_different_hosts() -> None:
    world = PlanWorld.of(3, 4, 3, 2)
    world.limits = replace(LIMITS, joins_max=4)
    world.hosts |= {"h3": Host(), "h4": Host()}
    world.kill("h2")
    world.now_ms += 2 * LIMITS.repair_after_ms
    world.elect()
    joins = [step.host for step in world.plan() if isinstance(step, Join)]
    assert sorted(joins) == ["h3", "h3", "h4", "h4"]
