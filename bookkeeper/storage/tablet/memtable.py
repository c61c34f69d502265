"""Entries in memory: unsorted young blocks, then sorted runs. The WAL has them all, should the process die.

One commit thread appends blocks; scans and flushes read sorted sources. A block is sorted when a scan first reads much
of it. ``young_blocks_max`` blocks become one run, or fewer after many scans: so a scan searches few batches, and an
append mostly only appends. Small runs are merged into larger ones, a constant number of times for each entry.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow as pa

from bookkeeper.storage.columns import min_max_row
from bookkeeper.storage.tablet.sorting.entries import RowWords, SortedBlock
from bookkeeper.storage.tablet.sorting.merge import RunSource
from bookkeeper.storage.tablet.sorting.order import sort_entries
from bookkeeper.storage.tablet.sorting.range_select import Part, part_of_sorted, part_of_unsorted, sources_of
from bookkeeper.storage.tablet.tablet_settings import TabletSettings

OVERDUE_FACTOR = 4
"""Times ``young_blocks_max`` that may wait for a sort that runs beside the appends."""

SEARCHES_MAX = 64
"""Scans of small ranges that search the same unsorted blocks: so many take about as long as to sort the blocks."""


def _run(batches: Sequence[pa.RecordBatch]) -> SortedBlock:
    return SortedBlock(sort_entries(pa.concat_batches(batches))).ready_to_bisect()


class _YoungBlock:
    """An unsorted block; the first thread that needs it sorted sorts it (two at the same time both do)."""

    __slots__ = ("_raw", "_sorted", "entries")

    def __init__(self, entries: pa.RecordBatch) -> None:
        self.entries = entries
        self._sorted: SortedBlock | None = None
        self._raw: tuple[SortedBlock, RowWords] | None = None

    def sorted(self) -> SortedBlock:
        block = self._sorted
        if block is None:
            block = self._sorted = SortedBlock(sort_entries(self.entries)).ready_to_bisect()
            self._raw = None
        return block

    def part(self, low: bytes, high: bytes) -> Part:
        """The entries with rows in ``[low, high)``; sorts the block when these are many."""
        if self._sorted is None:
            raw = self._raw
            if raw is None:
                raw = self._raw = SortedBlock(self.entries), RowWords(self.entries, *min_max_row(self.entries))
            part = part_of_unsorted(*raw, low, high)
            if part is not None:
                return part
        return part_of_sorted(self.sorted(), low, high)

    def best(self) -> pa.RecordBatch:
        """The entries, sorted if they are already."""
        block = self._sorted
        return self.entries if block is None else block.batch


class Memtable:
    """Grows by whole blocks; any number of threads may read meanwhile."""

    def __init__(self, settings: TabletSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._sorting = threading.Lock()
        self._young: tuple[_YoungBlock, ...] = ()
        self._young_bytes = 0
        self._runs: tuple[SortedBlock, ...] = ()
        self._searches = 0
        self.records = 0
        self.bytes = 0
        self.first_seq: int | None = None
        self.last_seq: int | None = None

    def append(self, entries: pa.RecordBatch) -> bool:
        """Add a block of at least one entry; visible to readers on return. True: :meth:`consolidate` is due."""
        seqs = entries.column("seq")
        first, last = seqs[0].as_py(), seqs[-1].as_py()
        size = int(entries.nbytes)
        with self._lock:
            self._young = (*self._young, _YoungBlock(entries))
            self._young_bytes += size
            self.records += entries.num_rows
            self.bytes += size
            self.first_seq = first if self.first_seq is None else min(first, self.first_seq)
            self.last_seq = last if self.last_seq is None else max(last, self.last_seq)
            return self.due

    @property
    def due(self) -> bool:
        """Whether the young blocks are to become a run."""
        return (
            len(self._young) >= self._settings.young_blocks_max
            or self._young_bytes >= self._settings.run_bytes_max
            or (self._searches >= SEARCHES_MAX and bool(self._young))
        )

    @property
    def overdue(self) -> bool:
        """Whether sorting is so late that the next append has to wait for it."""
        return len(self._young) >= self._settings.young_blocks_max * OVERDUE_FACTOR

    def blocks(self) -> list[SortedBlock]:
        """All entries at this moment, as sorted blocks; sorts the unsorted ones."""
        with self._lock:
            young, runs = self._young, self._runs
        return [*runs, *(block.sorted() for block in young)]

    def sources(self, low: bytes, high: bytes | None) -> list[RunSource]:
        """All entries at this moment with rows in ``[low, high)`` (None = no end), and perhaps others. A small range
        sorts no block; a range without an end may be large.
        """
        if high is None:
            return [RunSource(block) for block in self.blocks()]
        with self._lock:
            young, runs, records = self._young, self._runs, self.records
            self._searches += 1
        parts = [part_of_sorted(run, low, high) for run in runs]
        return sources_of([*parts, *(block.part(low, high) for block in young)], records)

    def consolidate(self) -> None:
        """Turn the young blocks into a run if they are due, and small runs into a larger one. Scans go on meanwhile."""
        with self._sorting:
            with self._lock:
                if not self.due:
                    return
            self._sort_young()
            self._merge_small_runs()

    def settle(self) -> None:
        """Turn the young blocks into a run, due or not: one sort costs less than to merge many blocks."""
        with self._sorting:
            if len(self._young) > 1:
                self._sort_young()

    def _sort_young(self) -> None:
        """With ``_sorting`` locked: no other thread removes young blocks."""
        with self._lock:
            young = self._young
        run = _run([block.best() for block in young])
        with self._lock:
            self._young = self._young[len(young) :]
            self._searches = 0
            self._young_bytes = sum(int(block.entries.nbytes) for block in self._young)
            self._runs = (*self._runs, run)

    def _merge_small_runs(self) -> None:
        """With ``_sorting`` locked: no other thread changes the runs."""
        small = small_runs(self._runs, self._settings)
        if not small:
            return
        merged = _run([run.batch for run in small])
        with self._lock:
            self._runs = (*(run for run in self._runs if run not in small), merged)


def small_runs(runs: Sequence[SortedBlock], settings: TabletSettings) -> list[SortedBlock]:
    """The runs to merge into one now: the smallest, once there are too many below the bounds of a full run."""
    below = [r for r in runs if r.records < settings.run_records_max and r.bytes < settings.run_bytes_max]
    if len(below) < settings.small_runs_max:
        return []
    return sorted(below, key=lambda run: run.records)[: settings.small_runs_max]


class FrozenMemtable:
    """A memtable that no longer grows, on its way into segments. ``first_seq`` and ``last_seq`` bound its entries."""

    def __init__(self, memtable: Memtable) -> None:
        """``memtable`` holds at least one entry and is not appended to any more."""
        if memtable.first_seq is None or memtable.last_seq is None:
            raise ValueError("an empty memtable can't be frozen")
        self._memtable = memtable
        self.records = memtable.records
        self.bytes = memtable.bytes
        self.first_seq = memtable.first_seq
        self.last_seq = memtable.last_seq

    def blocks(self) -> list[SortedBlock]:
        """All entries, as sorted blocks."""
        return self._memtable.blocks()

    def sources(self, low: bytes, high: bytes | None) -> list[RunSource]:
        """See :meth:`Memtable.sources`."""
        return self._memtable.sources(low, high)

    def settle(self) -> None:
        """See :meth:`Memtable.settle`."""
        self._memtable.settle()
