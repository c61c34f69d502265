"""Which records travel: by the block's own stamp, provenance and groups, never by today's configuration."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import RefusedError
from bookkeeper.model import BlockTarget, StreamKey, TargetKey
from bookkeeper.replay.stream import filters
from bookkeeper.replay.stream.filters import NOTHING, WHOLE, Selection
from bookkeeper.tserver.receive.message_admission import check_provenance
from tests.support.faults import fault
from tests.support.wal_files import EAST, TO_EAST, Spec, block, records

GROUPS = (("a", (b"a1", b"a2")), ("b", (b"b1",)))


def _decide(spec: Spec, target: TargetKey = TO_EAST) -> filters.Decision:
    return filters.decide(block(spec, 1).header, target, EAST)


def test_a_block_without_the_target_is_not_shipped() -> None:
    assert _decide(Spec([b"r"], block_targets=())) == NOTHING, "R13: a block without the stamp of the target travels"


@pytest.mark.parametrize(
    "other",
    [
        TargetKey("north", "r1", "t1", 1),
        TargetKey("east", "r2", "t1", 1),
        TargetKey("east", "r1", "t2", 1),
        TargetKey("east", "r1", "t1", 2),
    ],
)
def test_a_block_target_counts_for_exactly_its_target_incarnation_included(other: TargetKey) -> None:
    assert _decide(Spec([b"r"], block_targets=[BlockTarget(other, None)])) == NOTHING, (
        "R13: a stamp counts for another target"
    )
    assert _decide(Spec([b"r"], block_targets=[BlockTarget(other, None)]), other) == WHOLE


def test_data_that_was_at_the_peer_does_not_go_there_again() -> None:
    assert _decide(Spec([b"r"], provenance=["x", EAST])) == NOTHING, "R21: data goes back to a peer that it has passed"
    assert _decide(Spec([b"r"], provenance=["x", "y"])) == WHOLE


def test_the_loop_rule_goes_by_instance_id_and_not_by_the_local_alias() -> None:
    assert _decide(Spec([b"r"], provenance=["east"])) == WHOLE


def test_a_block_target_of_all_groups_takes_the_complete_block() -> None:
    assert _decide(Spec([b"r"], groups=GROUPS)) == WHOLE


def test_a_block_of_wanted_groups_only_is_not_opened() -> None:
    assert _decide(Spec([b"r"], groups=GROUPS[:1], block_targets=[BlockTarget(TO_EAST, ("a", "c"))])) == WHOLE


def test_a_block_without_a_wanted_group_does_not_travel() -> None:
    assert _decide(Spec([b"r"], groups=GROUPS, block_targets=[BlockTarget(TO_EAST, ("c",))])) == NOTHING


def test_of_a_mixed_block_the_families_of_wanted_groups_travel() -> None:
    decision = _decide(Spec([b"r"], groups=GROUPS, block_targets=[BlockTarget(TO_EAST, ("a",))]))
    assert decision == filters.Decision(Selection.FAMILIES, frozenset({b"a1", b"a2"})), (
        "a block of several groups does not travel in its wanted families"
    )


@given(st.lists(st.tuples(st.binary(max_size=3), st.sampled_from([b"a1", b"a2", b"b1"])), max_size=50))
def test_keeping_families_keeps_their_records_in_order_and_no_others(cells: list[tuple[bytes, bytes]]) -> None:
    batch = records([row for row, _ in cells], [family for _, family in cells])
    kept = batch.take(pa.array(filters.row_indices_of_families(batch, {b"a1", b"a2"})))
    assert kept.column("row").to_pylist() == [row for row, family in cells if family != b"b1"]
    assert kept.schema == batch.schema


def test_the_own_instance_is_added_behind_what_the_block_came_with() -> None:
    assert filters.provenance_for(block(Spec([b"r"], provenance=["x"]), 1).header, "me") == ("x", "me"), (
        "R21: the sender is not added to the provenance"
    )


# ---- any graph of clusters


def _walk(edges: set[tuple[int, int]], origin: int) -> tuple[dict[int, list[tuple[str, ...]]], list[tuple[int, int]]]:
    """Send one block along all edges, as far as the rules let it go: with which provenance it reached each cluster, and
    the edges that it crossed.
    """
    names = [f"instance-{number}" for number in range(CLUSTERS)]
    came: dict[int, list[tuple[str, ...]]] = {}
    crossed: list[tuple[int, int]] = []
    waiting: list[tuple[int, tuple[str, ...]]] = [(origin, ())]
    while waiting:
        source, provenance = waiting.pop()
        for peer in sorted(peer for sender, peer in edges if sender == source):
            target = TargetKey(f"alias-{peer}", "r1", "t1", 1)
            header = block(Spec([b"r"], block_targets=[BlockTarget(target, None)], provenance=provenance), 1).header
            if filters.decide(header, target, names[peer]) == WHOLE:
                sent = filters.provenance_for(header, names[source])
                check_provenance(sent, StreamKey(names[source], "1.wal", "t1", "r1", 1), names[peer])
                crossed.append((source, peer))
                if peer not in came:  # by another path it is dropped by its origin (R22)
                    waiting.append((peer, sent))
                came.setdefault(peer, []).append(sent)
    return came, crossed


def _reachable(edges: set[tuple[int, int]], origin: int) -> set[int]:
    found = {origin}
    while more := {peer for source, peer in edges if source in found} - found:
        found |= more
    return found - {origin}


CLUSTERS = 6
_graphs = st.sets(
    st.tuples(st.integers(0, CLUSTERS - 1), st.integers(0, CLUSTERS - 1)).filter(lambda edge: edge[0] != edge[1])
)


@given(_graphs, st.integers(0, CLUSTERS - 1))
def test_r21_in_any_graph_a_write_reaches_whom_a_way_leads_to_and_nobody_who_had_it(
    edges: set[tuple[int, int]], origin: int
) -> None:
    came, crossed = _walk(edges, origin)
    assert came.keys() == _reachable(edges, origin)
    assert len(set(crossed)) == len(crossed), "over no edge twice"
    for cluster, ways in came.items():
        for way in ways:
            assert way[0] == f"instance-{origin}", "it says where it was first written"
            assert f"instance-{cluster}" not in way
            hops = [int(name.removeprefix("instance-")) for name in (*way, f"instance-{cluster}")]
            assert len(set(hops)) == len(hops)
            assert set(pairwise(hops)) <= edges, "its provenance is a way in the graph"


def test_r21_without_the_loop_rule_a_circle_brings_a_write_back() -> None:
    with fault("loop-not-seen"), pytest.raises(RefusedError, match="has passed this cluster before"):
        _walk({(0, 1), (1, 2), (2, 0)}, 0)
