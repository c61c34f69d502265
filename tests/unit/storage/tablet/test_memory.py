"""The memtable keeps few sorted runs; the cache keeps to its bound; many threads see the same as one."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bookkeeper.model import Extent
from bookkeeper.storage.tablet.memtable import OVERDUE_FACTOR, Memtable
from bookkeeper.storage.tablet.segments.block_cache import BlockCache
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.sorting.entries import SortedBlock, to_entries
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.tablet.tablet_resources import TabletResources
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from tests.support.tablet_model import Record, scan_all, to_batch
from tests.support.volumes import MACHINE, name_at

PLAIN = Record(b"r", b"f", b"q", b"", 1, False, b"v")
SETTINGS = TabletSettings(young_blocks_max=4, small_runs_max=3, run_records_max=60, row_group_records=16)


def test_a_memtable_keeps_few_blocks() -> None:
    memtable = Memtable(SETTINGS)
    chance = random.Random(3)
    rows = [b"%04d" % chance.randrange(10_000) for _ in range(600)]
    for seq, row in enumerate(rows, 1):
        if memtable.append(to_entries(to_batch([PLAIN._replace(row=row)]), seq)):
            memtable.consolidate()
    blocks = memtable.blocks()
    full = [block for block in blocks if block.records >= SETTINGS.run_records_max]
    assert len(blocks) - len(full) < SETTINGS.young_blocks_max + SETTINGS.small_runs_max
    assert len(full) <= 600 / SETTINGS.run_records_max
    assert sorted(block.row(i) for block in blocks for i in range(block.records)) == sorted(rows)
    assert (memtable.records, memtable.first_seq, memtable.last_seq) == (600, 1, 600)


def test_sorting_beside_the_appends_is_waited_for_when_it_falls_behind(tmp_path: Path) -> None:
    asked: list[Callable[[], None]] = []
    tablet = TabletData(
        Extent("t", None, None),
        GroupMap({}),
        MACHINE,
        name_at(tmp_path),
        [],
        TabletResources(SETTINGS, sort_later=asked.append),
    )
    blocks = []
    for seq in range(1, 40):
        tablet.apply(to_batch([PLAIN._replace(row=b"%02d" % seq)]), seq)
        blocks.append(len(tablet._state.active.blocks()))
    assert max(blocks) <= SETTINGS.young_blocks_max * OVERDUE_FACTOR
    assert len(set(asked)) == 1
    assert len(scan_all(tablet)) == 39


def test_before_a_flush_what_is_not_sorted_becomes_one_run() -> None:
    memtable = Memtable(SETTINGS)
    memtable.settle()
    assert memtable.blocks() == []
    for seq, row in enumerate((b"c", b"a", b"b"), 1):
        memtable.append(to_entries(to_batch([PLAIN._replace(row=row)]), seq))
    memtable.settle()
    (found,) = memtable.blocks()
    assert [found.row(index) for index in range(found.records)] == [b"a", b"b", b"c"]
    memtable.settle()
    assert memtable.blocks() == [found]


def test_bytes_end_a_run_too() -> None:
    memtable = Memtable(TabletSettings(run_bytes_max=1000))
    assert not memtable.append(to_entries(to_batch([PLAIN._replace(value=b"v" * 600)]), 1))
    assert memtable.append(to_entries(to_batch([PLAIN._replace(value=b"v" * 600)]), 2))
    memtable.consolidate()
    assert [block.records for block in memtable.blocks()] == [2]


def block(value_bytes: int) -> SortedBlock:
    return SortedBlock(to_entries(to_batch([PLAIN._replace(value=b"v" * value_bytes)]), 1))


def test_the_cache_keeps_to_its_bound_and_to_what_is_used() -> None:
    cache = BlockCache(3000, readers=0)
    loads: list[int] = []

    def load(number: int) -> Callable[[], SortedBlock]:
        def loading() -> SortedBlock:
            loads.append(number)
            return block(1000)

        return loading

    for number in (1, 2, 1, 3, 1, 2):
        cache.get(("a", number), load(number))
    assert loads == [1, 2, 3, 2]
    assert 0 < cache.bytes <= 3000


def test_reading_ahead_loads_once_and_errors_reach_who_asks() -> None:
    cache = BlockCache(1 << 20, readers=1)
    started, check_continue = threading.Event(), threading.Event()

    def slow() -> SortedBlock:
        started.set()
        assert check_continue.wait(20)
        return block(1)

    def never() -> SortedBlock:
        raise AssertionError("loaded twice")

    def bad() -> SortedBlock:
        raise ValueError("bad block")

    cache.prefetch(("a", 1), slow)
    assert started.wait(20)
    cache.prefetch(("a", 1), never)
    cache.prefetch(("a", 2), bad)
    check_continue.set()
    assert cache.get(("a", 1), never).records == 1
    with pytest.raises(ValueError, match="bad block"):
        cache.get(("a", 2), bad)
    assert cache.get(("a", 2), lambda: block(2)).records == 1


class Crew:
    """Threads that stop at the first error of any of them."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                while not self.stop.is_set():
                    work()
            except BaseException as error:  # noqa: BLE001  # raised again by join
                self.errors.append(error)
                self.stop.set()

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        if self.errors:
            raise self.errors[0]


def test_scanners_see_every_committed_generation_whole(tmp_path: Path) -> None:
    """Each batch writes generation n to all rows of a stripe, at one moment, or deletes it all."""
    stripes, width, generations = 4, 12, 120
    tablet = TabletData(
        Extent("t", None, None),
        GroupMap({"one": frozenset({b"f"})}),
        MACHINE,
        name_at(tmp_path),
        [],
        TabletResources(SETTINGS),
    )
    committed = [0] * stripes
    crew = Crew()
    seq = flushes = 0

    def write() -> None:
        nonlocal seq
        generation = seq // width + 1
        if generation > generations:
            if flushes > 1:
                crew.stop.set()
            return
        stripe = generation % stripes
        batch = [
            Record(
                b"%d-%02d" % (stripe, i),
                b"fg"[i % 2 : i % 2 + 1],
                b"",
                b"",
                generation // 20,
                generation % 7 == 0,
                b"%d" % generation,
            )
            for i in range(width)
        ]
        tablet.apply(to_batch(batch), seq + 1)
        seq += width
        committed[stripe] = generation

    def flush() -> None:
        nonlocal flushes
        frozen = tablet.begin_flush()
        if frozen is not None and flushes < 25:
            flushes += 1
            tablet.finish_flush(frozen, tablet.write_segments(frozen, flushes))

    def scan_stripe() -> None:
        stripe = random.randrange(stripes)
        before = committed[stripe]
        page = tablet.scan_page(b"%d" % stripe, b"%d" % (stripe + 1), (), (), None, 1 << 20)
        after = committed[stripe] + stripes  # the one being applied may be visible already
        seen = page.records.column("value").to_pylist()
        assert len(set(seen)) <= 1, "half of a batch was seen"
        assert len(seen) in (0, width)
        if seen:
            assert before <= int(seen[0]) <= after
            return
        ruled = range(before, after + 1)
        assert before == 0 or any(generation % 7 == 0 for generation in ruled), "a generation vanished"

    def scan_pages() -> None:
        found = [record.cell for record in scan_all(tablet, 300)]
        assert found == sorted(set(found))

    for work in (write, flush, scan_stripe, scan_stripe, scan_pages):
        crew.start(work)
    crew.join()
    expected = {b"%d" % generation for generation in committed if generation % 7}
    assert {record.value for record in scan_all(tablet)} == expected
