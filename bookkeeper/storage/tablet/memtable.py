"""Entries in memory: young blocks as they came, then sorted runs.

Arrives: blocks of entries from one committing thread. Leaves: sorted sources for scans and flushes. Nothing here
survives a crash; the WAL does. A block is sorted when a scan first meets it, and ``young_blocks_max`` blocks become
one run, so that a scan bisects few sorted batches and an append mostly does nothing but append. Small runs are merged
into larger ones, a constant number of times for each entry. Source: ``reference/data-plane.md``, "Do".
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow as pa

from bookkeeper.storage.columns import min_max_row
from bookkeeper.storage.tablet.entries import SortedBlock
from bookkeeper.storage.tablet.gather import gather
from bookkeeper.storage.tablet.order import order_entries
from bookkeeper.storage.tablet.settings import TabletSettings

OVERDUE_FACTOR = 4
"""Times ``young_blocks_max`` that may wait for a sort that runs beside the appends."""


def sort_entries(entries: pa.RecordBatch) -> pa.RecordBatch:
    """Sorted; not a copy when they came in order."""
    order = order_entries(entries, *min_max_row(entries))
    return entries if order.came_so else gather(entries, order.indices)


def _run(batches: Sequence[pa.RecordBatch]) -> SortedBlock:
    return SortedBlock(sort_entries(pa.concat_batches(batches))).ready_to_bisect()


class _YoungBlock:
    """A block as it came; sorted once, by whoever needs it first (two at the same time do the same work twice)."""

    __slots__ = ("_sorted", "entries")

    def __init__(self, entries: pa.RecordBatch) -> None:
        self.entries = entries
        self._sorted: SortedBlock | None = None

    def sorted(self) -> SortedBlock:
        block = self._sorted
        if block is None:
            block = self._sorted = SortedBlock(sort_entries(self.entries)).ready_to_bisect()
        return block

    def best(self) -> pa.RecordBatch:
        """The entries, sorted when somebody did it already."""
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
            return self._is_due()

    def _is_due(self) -> bool:
        return len(self._young) >= self._settings.young_blocks_max or self._young_bytes >= self._settings.run_bytes_max

    @property
    def overdue(self) -> bool:
        """Whether whoever was to consolidate fell so far behind that the next append has to wait for it."""
        return len(self._young) >= self._settings.young_blocks_max * OVERDUE_FACTOR

    def blocks(self) -> list[SortedBlock]:
        """All entries at this moment, as sorted blocks; sorts the blocks that nobody met before."""
        with self._lock:
            young, runs = self._young, self._runs
        return [*runs, *(block.sorted() for block in young)]

    def consolidate(self) -> None:
        """Turn the young blocks into a run if they are due, and small runs into a larger one. Scans go on meanwhile."""
        with self._sorting:
            with self._lock:
                if not self._is_due():
                    return
            self._sort_young()
            self._merge_small_runs()

    def settle(self) -> None:
        """Turn the young blocks into a run, due or not: one sort costs less than to merge many blocks."""
        with self._sorting:
            if len(self._young) > 1:
                self._sort_young()

    def _sort_young(self) -> None:
        """Called with ``_sorting`` held: nobody else takes young blocks away."""
        with self._lock:
            young = self._young
        run = _run([block.best() for block in young])
        with self._lock:
            self._young = self._young[len(young) :]
            self._young_bytes = sum(int(block.entries.nbytes) for block in self._young)
            self._runs = (*self._runs, run)

    def _merge_small_runs(self) -> None:
        """Called with ``_sorting`` held: nobody else changes the runs."""
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

    def settle(self) -> None:
        """See :meth:`Memtable.settle`."""
        self._memtable.settle()
