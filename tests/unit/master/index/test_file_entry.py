"""One outstanding file: its facts, its barriers, its progress, and its memory."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

import combiners
from bookkeeper.errors import CorruptionError
from bookkeeper.master.index import barriers, file_entry, target_progress
from bookkeeper.master.index.barriers import FileBarrier, barriers_are_complete_to, still_outstanding
from bookkeeper.master.index.file_entry import (
    CellFacts,
    FileEntry,
    Scope,
    Scopes,
    configured_targets,
    is_news,
    parse_cell,
)
from bookkeeper.master.index.target_progress import NO_AMOUNT, NO_PROGRESS, Amount, Progress
from bookkeeper.metadata import values
from bookkeeper.model import Barrier, TargetKey, TargetShare
from tests.support.master_values import EAST, NORTH, by_name, entry, name, scopes, status_value, target

W1, W2 = name("s1"), name("s2")


def test_facts_of_an_entry_do_not_change_each_other() -> None:
    made = FileEntry(
        W2, parse_cell(status_value(9, False, [Barrier(3, W1.decode(), 5)])), scopes(EAST, NORTH).of(("1",))
    )
    made.reach(4)
    made.advance(1, Progress(2, 200))
    made.need(2**40, b"another")
    made.wait_for((*made.barriers, FileBarrier(4, W2, 2**40)))
    assert (made.needed, made.safe, made.status) == (2**40, 4, b"another")
    assert made.progress == (NO_PROGRESS, Progress(2, 200))
    assert made.barriers == (FileBarrier(3, W1, 5), FileBarrier(4, W2, 2**40))


def test_a_value_is_taken_apart_into_its_needed_side_and_its_barriers() -> None:
    facts = parse_cell(status_value(7, True, [Barrier(3, W1.decode(), 5)]))
    assert facts == CellFacts(status_value(7, True), 7, True, (FileBarrier(3, W1, 5),))


def test_garbage_is_named_as_corruption() -> None:
    with pytest.raises(CorruptionError, match="no replication status"):
        parse_cell(b"\xff\xff")


def test_cells_of_several_tablets_merge_through_the_combiner_whatever_their_order() -> None:
    values = [status_value(7, True), status_value(3), status_value(5, False, [Barrier(2, W1.decode(), 4)])]
    folded = []
    for order in (values, values[::-1]):
        made = FileEntry(W2, parse_cell(order[0]), scopes().of(("1",)))
        for value in order[1:]:
            made.merge(parse_cell(value))
        folded.append((made.message(), made.needed, made.barriers))
    assert folded[0] == folded[1]
    assert folded[0][1:] == (7, (FileBarrier(2, W1, 4),))


def test_targets_of_every_table_that_refers_count_each_by_its_whole_key() -> None:
    twin = TargetKey("east", "r1", "2", 2)
    found = configured_targets(("1", "2"), {"1": [target(EAST)], "2": [target(twin)]})
    assert [t.key for t in found] == [EAST, twin]


def test_files_of_the_same_tables_share_one_scope() -> None:
    made = scopes(EAST, TargetKey("east", "r9", "2", 2))
    assert made.of(("1",)) is made.of(("1",))
    assert made.with_table(made.of(("1",)), "2") is made.of(("1", "2"))
    assert len(made.of(("1", "2")).targets) == 2


@given(st.integers(0, 100), st.integers(0, 100))
def test_no_offset_is_safe_that_was_not_known_before_the_barriers_were_read(known: int, needed: int) -> None:
    safe = barriers_are_complete_to(known, needed)
    assert safe <= known
    assert safe <= needed


def test_progress_only_advances() -> None:
    made = entry(W1, 9, known=scopes(EAST, NORTH))
    assert made.progress_of(EAST) == made.progress_of(NORTH) == NO_PROGRESS
    made.advance(0, Progress(4, 400))
    made.advance(0, Progress(2, 200))
    made.advance(1, Progress(9, 900))
    assert (made.progress_of(EAST), made.progress_of(NORTH)) == (Progress(4, 400), Progress(9, 900))
    assert made.is_behind()
    made.advance(0, Progress(9, 900))
    assert not made.is_behind()


def test_a_target_that_is_none_has_no_progress() -> None:
    assert entry(W1, 9).progress_of(NORTH) == NO_PROGRESS


def test_a_barrier_of_a_finished_file_has_been_passed() -> None:
    held = (FileBarrier(3, W1, 5), FileBarrier(4, W2, 1))
    assert still_outstanding(held, by_name(entry(W1, 5))) == held[:1]


_ENTRIES = (__file__, file_entry.__file__, barriers.__file__, target_progress.__file__, combiners.__file__)
"""The modules that make what an entry holds; other threads of the process make things meanwhile."""


def _log_of_many_tablets(number: int, tablets: int, scope: Scope, held: dict[bytes, FileEntry]) -> FileEntry:
    """Each tablet used this log, and had used the one before: in the worst order there is."""
    file, before = (bytes(bytearray(name("tserver-1-0badcafe", n))) for n in (number, number - 1))
    made: FileEntry | None = None
    for tablet in range(tablets):
        barriers = [Barrier(1_000 + tablet, before.decode(), 2_000 + tablet)] if number else []
        facts = parse_cell(status_value(5_000 + number, True, barriers, created=1_700_000_000_000 + number))
        if made is None:
            made = FileEntry(file, facts, scope)
        else:
            made.merge(facts)
    assert made is not None
    made.reach(made.needed)
    made.wait_for(still_outstanding(made.barriers, held))
    made.advance(0, Progress(100, 12_000))
    return made


@pytest.mark.parametrize("tablets", [1, 2, 200])
def test_an_outstanding_file_costs_little_memory_whatever_the_number_of_tablets(tablets: int) -> None:
    count = 500 // tablets + 10
    shared = Scopes({"1": [target()]}).of(("1",))
    held: dict[bytes, FileEntry] = {}
    gc.collect()
    tracemalloc.start()
    for number in range(count):
        made = _log_of_many_tablets(number, tablets, shared, held)
        held[made.file] = made
    gc.collect()
    traced = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, file) for file in _ENTRIES])
    tracemalloc.stop()
    assert 100 <= sum(trace.size for trace in traced.traces) / count <= 400


OTHER = TargetKey("east", "r9", "2", 2)


def _cell(needed: int, *shares: tuple[TargetKey, int, int]) -> CellFacts:
    status = combiners.ReplicationStatus.FromString(status_value(needed))
    told = [TargetShare(target, records, size) for target, records, size in shares]
    status.shares.extend(values.encode_shares(told))
    return parse_cell(values.encode_status(status))


def test_shares_of_several_tables_in_one_file_are_kept_apart_whichever_comes_first() -> None:
    known = scopes(EAST, OTHER)
    cells = [("1", _cell(5, (EAST, 2, 20))), ("2", _cell(9, (OTHER, 6, 60))), ("1", _cell(7, (EAST, 3, 30)))]
    for order in (cells, cells[::-1]):
        made = FileEntry(W1, order[0][1], known.of((order[0][0],)))
        for table_id, facts in order[1:]:
            if table_id not in made.scope.table_ids:
                made.enter(known.with_table(made.scope, table_id))
            made.merge(facts)
        assert (made.needed, made.amount_of(EAST), made.amount_of(OTHER)) == (9, Amount(3, 30), Amount(6, 60))
        assert made.status == status_value(9), "what goes into the needed cells has no shares"


def test_the_share_of_a_target_that_is_not_configured_counts_for_nothing() -> None:
    made = FileEntry(W1, _cell(5, (NORTH, 2, 20)), scopes(EAST).of(("1",)))
    assert made.amount_of(EAST) == made.amount_of(NORTH) == NO_AMOUNT
    assert not is_news(made, _cell(5, (NORTH, 4, 40)))
    assert is_news(made, _cell(5, (EAST, 1, 10)))


def test_a_share_never_falls() -> None:
    made = FileEntry(W1, _cell(5, (EAST, 4, 40)), scopes(EAST).of(("1",)))
    made.merge(_cell(5, (EAST, 2, 20)))
    assert made.amount_of(EAST) == Amount(4, 40)
