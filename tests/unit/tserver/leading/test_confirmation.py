"""The turns of confirmations: each tablet has one, and many go into one call."""

from __future__ import annotations

from bookkeeper.replicas.values import Placement, Target
from bookkeeper.tserver.leading.confirmation import (
    CONFIRM_MS,
    CONFIRMATIONS_AT_ONCE,
    TOGETHER_MS,
    next_look_ns,
    next_to_confirm,
)
from bookkeeper.tserver.leading.senders import by_disk

INTERVAL_NS = CONFIRM_MS * 1_000_000
SOON_NS = INTERVAL_NS - TOGETHER_MS * 1_000_000


def test_a_tablet_waits_after_its_turn_and_goes_with_others_when_it_is_due_soon() -> None:
    assert next_to_confirm([b"a", b"b"], {b"a": 1}, SOON_NS) == [b"b"]
    assert next_to_confirm([b"a", b"b"], {b"a": 1}, SOON_NS + 1) == [b"b", b"a"]


def test_the_next_look_is_when_the_interval_of_the_first_tablet_is_over() -> None:
    assert next_look_ns([b"a", b"b"], {b"a": 7, b"b": 5, b"gone": 1}, 9) == 5 + INTERVAL_NS
    assert next_look_ns([], {b"gone": 1}, 9) == 9 + INTERVAL_NS


def test_a_tablet_without_a_turn_is_looked_at_again_at_once() -> None:
    now_ns = 10 * INTERVAL_NS
    assert next_look_ns([b"a", b"new"], {b"a": now_ns}, now_ns) <= now_ns


def test_many_tablets_take_turns_and_none_is_left_out() -> None:
    rows = [b"%06d" % number for number in range(5 * CONFIRMATIONS_AT_ONCE)]
    confirmed_ns: dict[bytes, int] = {}
    seen: list[bytes] = []
    for turn in range(5):
        due = next_to_confirm(rows, confirmed_ns, turn)
        assert len(due) == CONFIRMATIONS_AT_ONCE
        confirmed_ns |= dict.fromkeys(due, turn)
        seen += due
    assert sorted(seen) == rows
    assert next_to_confirm(rows, confirmed_ns, 5) == []


def test_states_on_one_disk_go_into_one_call_and_those_of_a_wiped_one_apart() -> None:
    old, new = Target("h", Placement("p1", "old")), Target("h", Placement("p2", "new"))
    assert by_disk({b"a": old, b"b": new, b"c": old}) == [[b"a", b"c"], [b"b"]]
