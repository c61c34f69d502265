"""Deviations from the books of ACCUMULO-378: the outcome of its own words, and the outcome here.

Sentences 97 and 109 (additions are written), 104 and 129 (the store combines); see docs/conformance.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, Column, RowPut
from bookkeeper.model import TargetKey
from combiners import CLOSED, ReplicationStatus, combine, range_needing_replication
from tests.support.metadata_model import MetadataModel
from tests.support.status_strategies import statuses

TARGET = TargetKey("east", "r1", "1", 1)
ROW = keys.repl_row("wal/s/1.wal")


def _finished(offset: int) -> ReplicationStatus:
    return ReplicationStatus(replication_finished_offset=offset)


def _needed(offset: int) -> ReplicationStatus:
    return ReplicationStatus(replication_needed_offset=offset)


def _summed(written: Sequence[ReplicationStatus]) -> ReplicationStatus:
    """ACCUMULO-378's combiner: each value is an addition."""
    return ReplicationStatus(
        replication_needed_offset=sum(one.replication_needed_offset for one in written),
        replication_finished_offset=sum(one.replication_finished_offset for one in written),
    )


def test_an_addition_whose_answer_was_lost_is_written_twice_and_records_are_passed_over() -> None:
    """A worker ships records 1 to 100 of 300. Its write arrives, the answer is lost, and it writes again."""
    assert range_needing_replication(_summed([_needed(300), _finished(100), _finished(100)])) == (201, 300)
    assert range_needing_replication(combine([_needed(300), _finished(100), _finished(100)])) == (101, 300)


def test_an_addition_of_needed_that_is_written_twice_waits_for_records_that_will_never_be() -> None:
    closed = ReplicationStatus(state=CLOSED, replication_finished_offset=300)
    assert range_needing_replication(_summed([_needed(300), _needed(300), closed])) == (301, 600)
    assert range_needing_replication(combine([_needed(300), _needed(300), closed])) is None


def _read(store: MetadataModel, *columns: Column) -> ReplicationStatus:
    found = store.visible()
    return combine(values.decode_status(found[CellKey(ROW, column)].value) for column in columns)


def test_one_cell_of_two_writers_loses_one_side_where_the_store_combines_nothing() -> None:
    needed, done = keys.needed_column(TARGET), keys.done_column(TARGET)
    for finished_in in (needed, done):
        store = MetadataModel()
        store.put([RowPut(ROW, {needed: values.encode_status(_needed(300))})], keys.master_rank(1, 1))
        store.put([RowPut(ROW, {finished_in: values.encode_status(_finished(100))})], keys.done_rank(100))
        left = range_needing_replication(_read(store, *{needed, finished_in}))
        assert left == ((1, 300) if finished_in == needed else (101, 300))


@given(st.lists(statuses(), max_size=8), st.integers(0, 8))
def test_a_store_that_combines_some_all_or_nothing_is_read_alike(written: list[ReplicationStatus], some: int) -> None:
    everything = combine(written)
    assert combine([combine(written[:some]), *written[some:]]) == everything, "as a compaction leaves it"
    assert combine([*reversed(written), *written]) == everything, "with every version, twice"
