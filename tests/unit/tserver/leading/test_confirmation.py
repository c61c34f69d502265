"""The turns of confirmations: each tablet has one, and a few at once."""

from __future__ import annotations

from bookkeeper.tserver.leading.confirmation import CONFIRM_MS, CONFIRMATIONS_AT_ONCE, next_to_confirm

INTERVAL_NS = CONFIRM_MS * 1_000_000


def test_a_tablet_waits_for_the_interval_after_its_turn() -> None:
    assert next_to_confirm([b"a", b"b"], {b"a": 1}, INTERVAL_NS) == [b"b"]
    assert next_to_confirm([b"a", b"b"], {b"a": 1}, INTERVAL_NS + 1) == [b"b", b"a"]


def test_many_tablets_take_turns_and_none_is_left_out() -> None:
    rows = [b"%03d" % number for number in range(5 * CONFIRMATIONS_AT_ONCE)]
    confirmed_ns: dict[bytes, int] = {}
    seen: list[bytes] = []
    for turn in range(5):
        due = next_to_confirm(rows, confirmed_ns, turn)
        assert len(due) == CONFIRMATIONS_AT_ONCE
        confirmed_ns |= dict.fromkeys(due, turn)
        seen += due
    assert sorted(seen) == rows
    assert next_to_confirm(rows, confirmed_ns, 5) == []
