"""Runs of offsets are sets of offsets, and the origins of records survive encoding (R22)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import CorruptionError
from bookkeeper.metadata.values import FlushState
from bookkeeper.model import RowRange
from bookkeeper.origins import Part, Root, RootIntervals, Runs
from bookkeeper.storage.wal.blocks import block_pb2 as pb
from bookkeeper.storage.wal.blocks.block_origins import (
    BlockOrigins,
    Claim,
    block_origins_to_pb,
    joined,
    parse_block_origins,
    varint,
    varints,
)

OWN = Root("east", "1.wal", "t")
OTHER = Root("we|st", "a%b.wal", "ü")
sets = st.sets(st.integers(1, 60))
rows = st.none() | st.binary(min_size=1, max_size=2)


def runs_of(offsets: set[int]) -> Runs:
    return Runs.covering(np.array(sorted(offsets), np.int64))


@given(one=sets, two=sets)
def test_runs_are_sets(one: set[int], two: set[int]) -> None:
    left, right = runs_of(one), runs_of(two)
    assert left.offsets().tolist() == sorted(one)
    assert (left | right, left & right, left - right) == (runs_of(one | two), runs_of(one & two), runs_of(one - two))
    assert left.meets(right) == bool(one & two)
    assert left.holds(np.arange(61)).tolist() == [offset in one for offset in range(61)]
    assert left.total == len(one)
    assert Runs.from_flat(left.flat()) == left
    assert Runs.of(*((offset, offset) for offset in two)) == right


@given(one=sets, offset=st.integers(1, 60))
def test_the_interval_below_an_offset_and_the_one_around_it(one: set[int], offset: int) -> None:
    runs = runs_of(one)
    below = [last for first, last in runs.pairs.tolist() if first < offset]
    assert runs.last_below(offset) == max(below, default=0)
    for first, last in runs.pairs.tolist():
        assert runs.start_of(first) == runs.start_of(last) == first


@given(one=sets.filter(bool), places=sets)
def test_offsets_at_places_are_those_of_the_set(one: set[int], places: set[int]) -> None:
    there = [place for place in sorted(places) if place < len(one)]
    assert runs_of(one).at(np.array(there, np.int64)).tolist() == [sorted(one)[place] for place in there]


numbers = st.lists(st.integers(0, 300) | st.sampled_from([127, 128, 16_383, 16_384, 2**47]) | st.integers(0, 2**48))


@given(numbers)
def test_many_numbers_are_what_protobuf_makes_of_them(found: list[int]) -> None:
    one_by_one = pb.RootRuns(runs=found).SerializeToString()
    raw = varints(np.array(found, np.int64))
    assert raw == b"".join(map(varint, found))
    assert (bytes([2 << 3 | 2]) + varint(len(raw)) + raw if found else b"") == one_by_one


full = sets.filter(bool).map(runs_of)
roots = st.sampled_from([OWN, OTHER])
parts = st.builds(Part, st.builds(RowRange, rows, rows), st.none() | st.binary(min_size=1, max_size=3), full)
descents = st.builds(
    BlockOrigins,
    st.lists(st.tuples(roots, full), max_size=4).map(tuple),
    st.lists(st.builds(Claim, roots, parts, st.integers(0, 9)), max_size=4).map(tuple),
    st.booleans(),
)


@given(descents, roots)
def test_block_origins_survive_the_way_through_bytes(block_origins: BlockOrigins, own: Root) -> None:
    assert parse_block_origins(block_origins_to_pb(block_origins, own).SerializeToString(), own) == block_origins


@given(st.lists(st.tuples(roots, full), max_size=6))
def test_joined_sections_say_the_same_of_the_same_records(sections: list[tuple[Root, Runs]]) -> None:
    def one_by_one(some: tuple[tuple[Root, Runs], ...]) -> list[tuple[Root, int]]:
        return [(root, offset) for root, runs in some for offset in runs.offsets().tolist()]

    assert one_by_one(joined(sections)) == one_by_one(tuple(sections))


@given(st.binary(max_size=60))
def test_garbage_is_refused_or_block_origins(raw: bytes) -> None:
    try:
        found = parse_block_origins(raw, OWN)
    except CorruptionError:
        return
    assert all(len(runs) for _, runs in found.records)


@pytest.mark.parametrize("flat", [[1], [0, 0], [5, 2, 0, 1], [2**60, 1], [2**63, 2**63], [-1, 3]])
def test_numbers_that_are_no_runs_are_refused(flat: list[int]) -> None:
    with pytest.raises((ValueError, OverflowError)):
        Runs.from_flat(flat)


@given(st.dictionaries(roots, st.builds(RootIntervals, st.lists(parts, max_size=3).map(tuple), st.integers(0, 99))))
def test_r22_what_a_tablet_holds_is_written_down_with_its_flush(held: dict[Root, RootIntervals]) -> None:
    state = FlushState(1, {}, 0, 0, {}, (), origin_intervals=held)
    assert FlushState.decode(state.encode()) == state
    assert (b"held" in state.encode()) == bool(held)
