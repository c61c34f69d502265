"""The order of entries is that of Python tuples, for any bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.storage.tablet.sorting import entries as entries_module
from bookkeeper.storage.tablet.sorting import order
from bookkeeper.storage.tablet.sorting.entries import SortedBlock, after_cell, to_entries
from tests.support.tablet_model import LONG, TRICKY, Record, batches, rows, to_batch


@pytest.fixture(params=[0, order.FEW], ids=["many-ties", "few-ties"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "FEW", request.param)


def key_of(record: Record, seq: int) -> tuple[object, ...]:
    return (*record.cell, -record.timestamp, -seq)


def sorted_block(records: list[Record]) -> tuple[SortedBlock, list[tuple[object, ...]]]:
    entries = to_entries(to_batch(records), 1)
    low, high = min(r.row for r in records), max(r.row for r in records)
    cells = order.order_entries(entries, low, high)
    return SortedBlock(entries.take(pa.array(cells.indices))), sorted(key_of(r, s) for s, r in enumerate(records, 1))


@pytest.mark.usefixtures("few")
@settings(max_examples=150, deadline=None)
@given(records=batches)
def test_entries_order_as_tuples(records: list[Record]) -> None:
    entries = to_entries(to_batch(records), 1)
    low, high = min(r.row for r in records), max(r.row for r in records)
    cells = order.order_entries(entries, low, high)
    keys = [key_of(record, seq) for seq, record in enumerate(records, 1)]
    assert [keys[index] for index in cells.indices] == sorted(keys)
    assert not cells.was_sorted or keys == sorted(keys)
    found = [keys[index][:4] for index in cells.indices]
    starts = [index == 0 or found[index] != found[index - 1] for index in range(len(found))]
    assert cells.starts.tolist() == starts
    assert order.cell_starts(entries.take(pa.array(cells.indices))).tolist() == starts


@pytest.mark.usefixtures("few")
def test_large_batches_of_few_rows_order_as_tuples() -> None:
    random = np.random.default_rng(7)
    pool = [*TRICKY, *LONG, b"x" * 100, b"x" * 100 + b"\x00", b"x" * 99 + b"y", b"x" * 40 + b"\x00" * 60]

    def records() -> Iterator[Record]:
        for _ in range(3000):
            row, family, qualifier = (pool[i] for i in random.integers(0, len(pool), 3))
            yield Record(row, family, qualifier, b"", int(random.integers(0, 3)), False, b"")

    block, keys = sorted_block(list(records()))
    assert [block.key(index) for index in range(block.records)] == keys


@settings(max_examples=100, deadline=None)
@given(values=st.lists(rows, min_size=1, max_size=40))
def test_rows_order_as_bytes_and_stay_put_when_equal(values: list[bytes]) -> None:
    indices = order.order_rows(pa.array(values, pa.binary()), min(values), max(values)).tolist()
    assert indices == sorted(range(len(values)), key=lambda index: (values[index], index))


@pytest.fixture(params=[0, entries_module.FEW], ids=["by-words", "one-by-one"])
def few_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries_module, "FEW", request.param)


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("is_ready", [False, True])
@settings(max_examples=60, deadline=None)
@given(records=st.lists(batches, min_size=1, max_size=4), probes=st.lists(rows, max_size=5))
def test_bisect_finds_the_first_entry_behind_a_position(
    is_ready: bool, records: list[list[Record]], probes: list[bytes]
) -> None:
    every = [record for some in records for record in some]
    block, keys = sorted_block(every)
    if is_ready:
        block.ready_to_bisect()
    positions = [(), *((row,) for row in probes), *keys[::3], *(after_cell(key[:4]) for key in keys[::4])]  # type: ignore[arg-type]
    for position in positions:
        expected = sum(key <= position for key in keys)
        assert block.bisect(position) == expected
        assert block.bisect(position, expected // 2, block.records) == expected
    assert (block.first_key, block.last_key) == (keys[0], keys[-1])


def test_entries_that_come_in_order_are_not_copied() -> None:
    records = [Record(b"%08d" % number, b"f", b"q", b"", 1, False, b"v") for number in range(2000)]
    entries = to_entries(to_batch(records), 1)
    assert order.sort_entries(entries) is entries
    backwards = to_entries(to_batch(records[::-1]), 1)
    assert order.sort_entries(backwards).column("row").equals(entries.column("row"))
