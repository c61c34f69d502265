"""The laws that ``combiners`` promises, on any message that parses."""

from __future__ import annotations

from collections import Counter
from random import Random

from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given
from hypothesis import strategies as st

from combiners import (
    CLOSED,
    OPEN,
    Barrier,
    ReplicationStatus,
    Share,
    combine,
    is_fully_replicated,
    range_needing_replication,
)
from combiners.status import _barrier_key
from combiners.unknown import encode_fields, unknown_fields
from tests.support.status_strategies import statuses


def _at_least(high: ReplicationStatus, low: ReplicationStatus) -> bool:
    """The lattice's order, written without ``combine``."""
    return (
        high.state >= low.state
        and high.replication_needed_offset >= low.replication_needed_offset
        and high.replication_finished_offset >= low.replication_finished_offset
        and high.needed_bytes >= low.needed_bytes
        and high.finished_bytes >= low.finished_bytes
        and high.finished_share_records >= low.finished_share_records
        and high.finished_share_bytes >= low.finished_share_bytes
        and high.first_seq >= low.first_seq
        and all(
            any(
                more.target == less.target and more.records >= less.records and more.bytes >= less.bytes
                for more in high.shares
            )
            for less in low.shares
        )
        and (
            not low.HasField("created_time")
            or (high.HasField("created_time") and high.created_time <= low.created_time)
        )
        and set(map(_barrier_key, high.barriers)) >= set(map(_barrier_key, low.barriers))
        and set(unknown_fields(high)) >= set(unknown_fields(low))
    )


@given(statuses(), statuses())
def test_combine_is_commutative(a: ReplicationStatus, b: ReplicationStatus) -> None:
    assert combine([a, b]) == combine([b, a])


@given(statuses(), statuses(), statuses())
def test_combine_is_associative(a: ReplicationStatus, b: ReplicationStatus, c: ReplicationStatus) -> None:
    assert combine([combine([a, b]), c]) == combine([a, combine([b, c])]) == combine([a, b, c])


@given(statuses())
def test_combine_is_idempotent(a: ReplicationStatus) -> None:
    once = combine([a])
    assert combine([a, a]) == once
    assert combine([once, a]) == once
    assert combine([once, once]) == once


@given(statuses(newer=False))
def test_a_status_without_repeated_parts_is_its_own_fold(a: ReplicationStatus) -> None:
    del a.barriers[1:]
    if a.barriers:
        a.barriers[0].CopyFrom(Barrier(offset=a.barriers[0].offset, file="f"))
    del a.shares[1:]
    if a.shares:
        a.shares[0].CopyFrom(Share(target="t", records=a.shares[0].records))
    assert combine([a]) == a == combine([a, a])


@given(statuses())
def test_the_empty_status_is_the_identity(a: ReplicationStatus) -> None:
    assert combine([a, ReplicationStatus()]) == combine([a])
    assert combine([]) == ReplicationStatus()


@given(st.lists(statuses(), max_size=6), st.randoms())
def test_repeated_and_reordered_statuses_fold_the_same(values: list[ReplicationStatus], random: Random) -> None:
    shuffled = values * 2
    random.shuffle(shuffled)
    assert combine(shuffled) == combine(values)


@given(st.lists(statuses(), max_size=4))
def test_combine_is_total_and_monotone(values: list[ReplicationStatus]) -> None:
    joined = combine(values)
    assert all(_at_least(joined, value) for value in values)


@given(st.lists(statuses(), max_size=3), st.lists(statuses(), max_size=3))
def test_more_statuses_never_lower_the_fold(some: list[ReplicationStatus], more: list[ReplicationStatus]) -> None:
    assert _at_least(combine(some + more), combine(some))


@given(st.lists(statuses(), min_size=1, max_size=4))
def test_combine_is_the_least_status_above_its_inputs(values: list[ReplicationStatus]) -> None:
    joined = combine(values)
    assert joined.replication_needed_offset in {v.replication_needed_offset for v in values}
    assert joined.replication_finished_offset in {v.replication_finished_offset for v in values}
    assert joined.state in {v.state for v in values}
    assert set(map(_barrier_key, joined.barriers)) == {_barrier_key(b) for v in values for b in v.barriers}
    assert set(unknown_fields(joined)) == {field for v in values for field in unknown_fields(v)}


@given(st.lists(statuses(), max_size=3))
def test_arguments_stay_as_they_are(values: list[ReplicationStatus]) -> None:
    before = [value.SerializeToString() for value in values]
    combine(values)
    assert [value.SerializeToString() for value in values] == before


@given(statuses())
def test_results_survive_serialisation(a: ReplicationStatus) -> None:
    joined = combine([a])
    assert ReplicationStatus.FromString(joined.SerializeToString()) == joined


@given(statuses())
def test_unknown_fields_encode_exactly(a: ReplicationStatus) -> None:
    copy = ReplicationStatus.FromString(encode_fields(unknown_fields(a)))
    assert unknown_fields(copy) == unknown_fields(a)
    assert len(UnknownFieldSet(copy)) == len(UnknownFieldSet(a))


@given(statuses())
def test_the_range_has_exactly_the_needed_and_unfinished_records(a: ReplicationStatus) -> None:
    left = range_needing_replication(a)
    if left is None:
        assert a.replication_finished_offset >= a.replication_needed_offset
    else:
        assert left == (a.replication_finished_offset + 1, a.replication_needed_offset)
        assert left[0] <= left[1]


@given(statuses())
def test_fully_replicated_means_closed_with_nothing_left(a: ReplicationStatus) -> None:
    assert is_fully_replicated(a) == (a.state == CLOSED and range_needing_replication(a) is None)


def test_a_barrier_met_twice_counts_once_and_barriers_are_sorted() -> None:
    late, early = Barrier(offset=9, file="a", until_offset=4), Barrier(offset=2, file="b", until_offset=7)
    joined = combine([ReplicationStatus(barriers=[late, early]), ReplicationStatus(barriers=[late])])
    assert list(joined.barriers) == [early, late]
    assert max(Counter(map(_barrier_key, joined.barriers)).values()) == 1


def test_created_time_is_the_earliest_that_was_set_and_zero_is_a_time() -> None:
    unset, late, zero = ReplicationStatus(), ReplicationStatus(created_time=5), ReplicationStatus(created_time=0)
    assert not combine([unset, unset]).HasField("created_time")
    assert combine([unset, late]).created_time == 5
    assert combine([late, zero]).HasField("created_time")
    assert combine([late, zero]).created_time == 0


def test_one_sided_values_fold_in_either_order() -> None:
    needed = ReplicationStatus(state=CLOSED, replication_needed_offset=300)
    done = ReplicationStatus(state=OPEN, replication_finished_offset=100)
    assert combine([needed, done]) == combine([done, needed])
    assert range_needing_replication(combine([needed, done])) == (101, 300)
    assert not is_fully_replicated(done)
