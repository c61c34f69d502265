"""The turns of confirmations: each tablet has one, and many go into one call."""

from __future__ import annotations

from bookkeeper.replicas.values import Placement, Target
from bookkeeper.tserver.leading.confirmation import CONFIRM_MS, CONFIRMATIONS_AT_ONCE, next_to_confirm
from bookkeeper.tserver.leading.senders import by_disk

INTERVAL_NS = CONFIRM_MS * 1_000_000


def test_a_tablet_waits_for_the_interval_after_its_turn() -> None:
    assert next_to_confirm([b"a", b"b"], {b"a": 1}, INTERVAL_NS) == [b"b"]
    assert next_to_confirm([b"a", b"b"], {b"a": 1}, INTERVAL_NS + 1) == [b"b", b"a"]


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
