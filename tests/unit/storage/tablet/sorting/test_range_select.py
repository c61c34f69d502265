"""A small range of the entries in memory: every entry of it, in order, and nothing is sorted for it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.storage.tablet import memtable
from bookkeeper.storage.tablet.memtable import Memtable
from bookkeeper.storage.tablet.sorting import range_select
from bookkeeper.storage.tablet.sorting.entries import RowWords, SortedBlock, to_entries
from bookkeeper.storage.tablet.sorting.merge import Cursor, merge_round
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from tests.support.faults import fault
from tests.support.tablet_model import LONG, TRICKY, Record, batches, rows, to_batch

PLAIN = Record(b"r", b"f", b"q", b"", 1, False, b"v")
ROUND = 7


def _memtable(parts: list[list[Record]], consolidated: int) -> Memtable:
    """The first parts make a run, the others are as they came."""
    table, seq = Memtable(TabletSettings(young_blocks_max=max(consolidated, 1))), 1
    for number, part in enumerate(parts, 1):
        table.append(to_entries(to_batch(part), seq))
        seq += len(part)
        if number == consolidated:
            table.consolidate()
    return table


def _keys(table: Memtable, low: bytes, high: bytes | None) -> list[tuple[object, ...]]:
    """The keys of the rows in ``[low, high)``, as a merge of the sources gives them."""
    stop = None if high is None else (high,)
    cursors = [Cursor(source, (low,), stop) for source in table.sources(low, high)]
    found: list[tuple[object, ...]] = []
    while (merged := merge_round(cursors, ROUND, 1 << 20, newest_only=False)) is not None:
        block = SortedBlock(merged.select(None))
        found += [block.key(index) for index in range(block.records)]
    return found


def _expected(parts: list[list[Record]], low: bytes, high: bytes | None) -> list[tuple[object, ...]]:
    records = [record for part in parts for record in part]
    keys = [(*record.cell, -record.timestamp, -seq) for seq, record in enumerate(records, 1)]
    return sorted(key for key in keys if low <= key[0] and (high is None or key[0] < high))


@pytest.mark.parametrize(("few", "part_of"), [(0, 1), (3, 1), (64, 1), (64, 16)])
@settings(max_examples=60, deadline=None)
@given(parts=st.lists(batches, min_size=1, max_size=4), consolidated=st.integers(0, 3), low=rows, high=rows)
def test_a_range_has_every_entry_in_order(
    few: int, part_of: int, parts: list[list[Record]], consolidated: int, low: bytes, high: bytes
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_select, "FEW", few)
        patch.setattr(range_select, "PART_OF", part_of)
        for ends in ((low, high), (b"", high), (low, None)):
            assert _keys(_memtable(parts, consolidated), *ends) == _expected(parts, *ends)


@settings(max_examples=100, deadline=None)
@given(records=batches, low=rows, high=rows)
def test_the_words_of_rows_pass_over_none_of_a_range(records: list[Record], low: bytes, high: bytes) -> None:
    found = [record.row for record in records]
    words = RowWords(to_entries(to_batch(records), 1), min(found), max(found))
    assert {place for place, row in enumerate(found) if low <= row <= high} <= set(words.between(low, high).tolist())


def _many(blocks: int, records: int) -> list[list[Record]]:
    chance = random.Random(5)
    return [[PLAIN._replace(row=b"%06d" % chance.randrange(10**6)) for _ in range(records)] for _ in range(blocks)]


def test_a_small_range_sorts_no_block_and_a_large_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = _many(5, 200)
    table = _memtable(parts, 2)
    with monkeypatch.context() as patch:
        patch.setattr(memtable, "sort_entries", None)
        for low, high in ((b"000000", b"009000"), (b"123456", b"130000"), (b"999000", b"\xff"), (b"\xff", b"\xff\xff")):
            assert _keys(table, low, high) == _expected(parts, low, high)
        with pytest.raises(TypeError):
            _keys(table, b"0", b"9")
    assert _keys(table, b"0", b"9") == _expected(parts, b"0", b"9")


def test_blocks_that_many_scans_have_met_become_a_run() -> None:
    parts = _many(3, 100)
    table = Memtable(TabletSettings())
    for number, part in enumerate(parts):
        table.append(to_entries(to_batch(part), 1 + 100 * number))
    dues = []
    for _ in range(memtable.SEARCHES_MAX):
        dues.append(table.due)
        table.sources(b"500000", b"500100")
    dues.append(table.due)
    table.consolidate()
    assert [*dues, table.due] == [False] * memtable.SEARCHES_MAX + [True, False]
    (run,) = table.blocks()
    assert run.records == 300


def test_without_the_rows_that_share_a_word_with_an_end_a_range_is_not_whole() -> None:
    parts = [[PLAIN._replace(row=row) for row in (*TRICKY, *LONG)]]
    low, high = b"prefix-of-many-rows-1", b"prefix-of-many-rows-2"
    assert _keys(_memtable(parts, 0), low, high) == _expected(parts, low, high)
    with fault("words-are-rows"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_select, "PART_OF", 1)
        assert _keys(_memtable(parts, 0), low, high) != _expected(parts, low, high)
