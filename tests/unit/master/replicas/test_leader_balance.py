"""The balance of leaders: even within a tenth where voters allow it, few moves at once, and no tablet to and fro."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.master.index.tablet_replicas import TabletReplica
from bookkeeper.master.replicas.held_states import HeldState
from bookkeeper.master.replicas.leader_balance import MOVES_MAX, SLACK, plan_leaders
from bookkeeper.master.replicas.repair_state import HostState, Lead, RepairLimits, TabletState
from bookkeeper.metadata.values import JOINING, VOTER, ReplicaCell, ReplicaRole
from tests.support.faults import fault

LIMITS = RepairLimits(repair_after_ms=300, joins_max=2, flight_ms=100, lead_min_ms=50)
LONG_MS = 1_000.0


def tablet(
    number: int, leader: str, *others: str, role: ReplicaRole = VOTER, behind: bool = False, led_ms: float = LONG_MS
) -> TabletState:
    """A tablet that ``leader`` leads; ``behind``: the others lack the newest state; ``role``: that of the last one."""
    names = (leader, *others)
    cells = [ReplicaCell("p", "d", VOTER)] * len(others) + [ReplicaCell("p", "d", role)]
    held = {name: HeldState("p", "d", 9, frozenset({7, 9})) for name in names}
    if behind:
        held.update({name: HeldState("p", "d", 7, frozenset({7})) for name in others})
    replicas = tuple(sorted(map(TabletReplica, names, cells), key=lambda one: one.host))
    return TabletState(b"1;%04d" % number, replicas, len(names), 2, 7, leader, held, led_ms=led_ms)


def hosts(*names: str, away: str = "", draining: str = "") -> dict[str, HostState]:
    """Live hosts, but for one."""
    return {name: HostState(name, None if name == away else "d", is_draining=name == draining) for name in names}


def carry_out(tablets: list[TabletState], steps: list[Lead]) -> list[TabletState]:
    """The tablets after the moves."""
    to = {step.row: step.host for step in steps}
    assert len(to) == len(steps), "a tablet moves twice at once"
    return [
        TabletState(one.row, one.replicas, one.wanted, 2, 7, to.get(one.row, one.leader), one.held, led_ms=LONG_MS)
        for one in tablets
    ]


def settle(tablets: list[TabletState], known: dict[str, HostState]) -> tuple[list[TabletState], int]:
    """Plans until none has a move; and how many moves that took."""
    moves = 0
    for _ in range(1_000):
        steps = plan_leaders(tablets, known, LIMITS)
        if not steps:
            return tablets, moves
        moves += len(steps)
        tablets = carry_out(tablets, steps)
    raise AssertionError("tablets go to and fro")


def leads(tablets: list[TabletState]) -> Counter[str]:
    """The tablets that each host leads."""
    return Counter(one.leader or "" for one in tablets)


def test_leaders_end_within_a_tenth_of_each_other_and_few_move_at_once() -> None:
    known = hosts("a", "b", "c")
    tablets = [tablet(number, "a", "b", "c") for number in range(300)]
    first = plan_leaders(tablets, known, LIMITS)
    assert len(first) == MOVES_MAX
    assert Counter(step.host for step in first) == {"b": MOVES_MAX // 2, "c": MOVES_MAX // 2}
    assert first[0].reason == "a leads more than its share of the tablets"
    after, moves = settle(tablets, known)
    counts = leads(after)
    assert max(counts.values()) - min(counts.values()) <= SLACK * 100
    assert moves <= 200, "more moves than tablets that are in the wrong place"


def test_one_tablet_more_moves_nothing() -> None:
    known = hosts("a", "b", "c")
    assert plan_leaders([tablet(1, "a", "b", "c"), tablet(2, "b", "a", "c")], known, LIMITS) == []
    even = [tablet(number, "abc"[number % 3], *({"a", "b", "c"} - {"abc"[number % 3]})) for number in range(60)]
    assert plan_leaders([*even, tablet(60, "a", "b", "c"), tablet(61, "a", "b", "c")], known, LIMITS) == []


def test_tablets_move_along_a_chain_where_no_voter_is_idle() -> None:
    tablets = [tablet(1, "a", "b"), tablet(2, "a", "b"), tablet(3, "b", "c"), tablet(4, "a", "b")]
    steps = plan_leaders(tablets, hosts("a", "b", "c"), LIMITS)
    assert [(step.row, step.host) for step in steps] == [(b"1;0001", "b"), (b"1;0003", "c")]
    assert leads(carry_out(tablets, steps)) == {"a": 2, "b": 1, "c": 1}


@pytest.mark.parametrize(
    "blocked",
    [
        {"behind": True},
        {"role": JOINING},
        {"led_ms": 10.0},
    ],
)
def test_a_tablet_waits_while_its_voters_lack_something_one_joins_or_its_leader_is_new(
    blocked: dict[str, object],
) -> None:
    known = hosts("a", "b")
    assert plan_leaders([tablet(number, "a", "b") for number in range(4)], known, LIMITS)
    tablets = [tablet(number, "a", "b", **blocked) for number in range(4)]  # type: ignore[arg-type]
    assert plan_leaders(tablets, known, LIMITS) == []


def test_a_host_that_is_away_or_drained_leads_nothing_for_the_balance() -> None:
    tablets = [tablet(number, "a", "b") for number in range(4)]
    assert plan_leaders(tablets, hosts("a", "b", away="b"), LIMITS) == []
    assert plan_leaders(tablets, hosts("a", "b", draining="b"), LIMITS) == []
    assert plan_leaders([], hosts("a", "b"), LIMITS) == []
    assert plan_leaders([], {}, LIMITS) == []


def refused() -> int:
    """How often a tablet moves in ten cycles in which its new host refuses it and it goes back."""
    tablets, found = [tablet(number, "a", "b") for number in range(2)], 0
    for _ in range(10):
        steps = plan_leaders(tablets, hosts("a", "b"), LIMITS)
        found += len(steps)
        moved = {step.row for step in steps}
        tablets = [tablet(n, "a", "b", led_ms=0) if one.row in moved else one for n, one in enumerate(tablets)]
    return found


def test_a_tablet_that_comes_back_does_not_move_again_at_once() -> None:
    assert refused() == 2, "each of the two was tried once"


def test_red_a_tablet_goes_to_and_fro() -> None:
    with fault("leaders-move-at-any-time"):
        assert refused() == 10, "a tablet moves in each cycle"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.permutations("abcde"), max_size=40), st.integers(2, 4))
def test_whatever_the_voters_are_the_plan_ends_and_no_single_move_makes_it_more_even(
    orders: list[list[str]], replicas: int
) -> None:
    tablets = [tablet(number, *order[:replicas]) for number, order in enumerate(orders)]
    after, moves = settle(tablets, hosts(*"abcde"))
    counts = leads(after)
    assert moves <= 2 * len(tablets)
    least_gap = max(1.0, SLACK * len(tablets) / 5)
    for one in after:
        assert all(counts[one.leader or ""] - counts[other.host] <= least_gap for other in one.replicas)
