"""Which records travel: by the block's own stamp, provenance and groups, never by today's configuration."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.model import Stamp, TargetKey
from bookkeeper.replay import filters
from bookkeeper.replay.filters import NOTHING, WHOLE, Share
from tests.support.wal_files import EAST, TO_EAST, Spec, block, records

GROUPS = (("a", (b"a1", b"a2")), ("b", (b"b1",)))


def _decide(spec: Spec, target: TargetKey = TO_EAST) -> filters.Decision:
    return filters.decide(block(spec, 1).header, target, EAST)


def test_a_block_without_the_stamp_of_the_target_does_not_travel() -> None:
    assert _decide(Spec([b"r"], stamps=())) == NOTHING


@pytest.mark.parametrize(
    "other",
    [
        TargetKey("north", "r1", "t1", 1),
        TargetKey("east", "r2", "t1", 1),
        TargetKey("east", "r1", "t2", 1),
        TargetKey("east", "r1", "t1", 2),
    ],
)
def test_a_stamp_counts_for_exactly_its_target_incarnation_included(other: TargetKey) -> None:
    assert _decide(Spec([b"r"], stamps=[Stamp(other, None)])) == NOTHING
    assert _decide(Spec([b"r"], stamps=[Stamp(other, None)]), other) == WHOLE


def test_data_that_was_at_the_peer_does_not_go_there_again() -> None:
    assert _decide(Spec([b"r"], provenance=["x", EAST])) == NOTHING
    assert _decide(Spec([b"r"], provenance=["x", "y"])) == WHOLE


def test_the_loop_rule_goes_by_instance_id_and_not_by_the_local_alias() -> None:
    assert _decide(Spec([b"r"], provenance=["east"])) == WHOLE


def test_a_stamp_for_all_groups_takes_the_whole_block() -> None:
    assert _decide(Spec([b"r"], groups=GROUPS)) == WHOLE


def test_a_block_of_wanted_groups_only_is_not_opened() -> None:
    assert _decide(Spec([b"r"], groups=GROUPS[:1], stamps=[Stamp(TO_EAST, ("a", "c"))])) == WHOLE


def test_a_block_without_a_wanted_group_does_not_travel() -> None:
    assert _decide(Spec([b"r"], groups=GROUPS, stamps=[Stamp(TO_EAST, ("c",))])) == NOTHING


def test_of_a_mixed_block_the_families_of_wanted_groups_travel() -> None:
    decision = _decide(Spec([b"r"], groups=GROUPS, stamps=[Stamp(TO_EAST, ("a",))]))
    assert decision == filters.Decision(Share.FAMILIES, frozenset({b"a1", b"a2"}))


@given(st.lists(st.tuples(st.binary(max_size=3), st.sampled_from([b"a1", b"a2", b"b1"])), max_size=50))
def test_keeping_families_keeps_their_records_in_order_and_no_others(cells: list[tuple[bytes, bytes]]) -> None:
    batch = records([row for row, _ in cells], [family for _, family in cells])
    kept = batch.take(pa.array(filters.places_of_families(batch, {b"a1", b"a2"})))
    assert kept.column("row").to_pylist() == [row for row, family in cells if family != b"b1"]
    assert kept.schema == batch.schema


def test_the_own_instance_is_added_behind_what_the_block_came_with() -> None:
    assert filters.provenance_for(block(Spec([b"r"], provenance=["x"]), 1).header, "me") == ("x", "me")
