"""The tablets that the master splits by itself, because they have more bytes than `table.split.bytes`. Pure.

Arrives: sizes of tablets by their rows in the books, and what their tservers have measured. Leaves: the few tablets to
split next. :mod:`bookkeeper.master.automatic_splits` reads, asks and begins the operations.

**Shared files.** After a split both halves name one file. The books know the bytes of the complete file only, so both
halves seem as large as their parent. The tserver of a tablet measures its own part by the index of the file. That
measure counts as long as the tablet has the same rows and shared files; segments of its own are added by their size. So
a half is not split again until it has grown, before and after it has compacted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import nlargest

from msgspec import Struct

from bookkeeper.master.splits.split_rules import TabletFacts
from bookkeeper.model import Extent

TABLETS_AT_ONCE = 8
"""Most tablets that are split by themselves at once: each is away for a flush, and its clients locate it again."""


class TabletSize(Struct, frozen=True):
    """The bytes of a tablet's segment files: of those that count completely, and of those with rows of other tablets
    (``shared_files``). Both are sizes of complete files.
    """

    extent: Extent
    whole_bytes: int
    shared_bytes: int = 0
    shared_files: frozenset[str] = frozenset()


class Measured(Struct, frozen=True):
    """The bytes of a tablet in these shared files, as its tserver has measured them."""

    extent: Extent
    shared_files: frozenset[str]
    part_bytes: int

    def is_of(self, size: TabletSize) -> bool:
        """Whether the tablet still has these rows and these files; after a merge it has more of them."""
        return (self.extent, self.shared_files) == (size.extent, size.shared_files)


class LargeTablet(Struct, frozen=True):
    """A tablet that has more bytes than its table's limit. ``rests``: a failure, or a row that is too large, forbids
    its split for now.
    """

    row: bytes
    extent: Extent
    table: str
    counted_bytes: int
    rests: bool


def size_of_segments(facts: TabletFacts) -> TabletSize:
    """The size of a tablet by the cells of its row."""
    shared = {name: entry.size_bytes for name, entry in facts.segments.items() if entry.ranges}
    whole_bytes = sum(entry.size_bytes for entry in facts.segments.values() if not entry.ranges)
    return TabletSize(facts.extent, whole_bytes, sum(shared.values()), frozenset(shared))


def counted_bytes(size: TabletSize, measured: Measured | None) -> int:
    """The bytes of a tablet that count for its split. Before a measure of its present shared files they count
    completely, so the tablet is measured next.
    """
    known = measured is not None and measured.is_of(size)
    return size.whole_bytes + (measured.part_bytes if measured is not None and known else size.shared_bytes)


def due_tablets(large: Iterable[LargeTablet], locks: Collection[str]) -> list[LargeTablet]:
    """The tablets to split next: the largest ones of tables that no operation has in its hands (``locks`` of running
    operations): it is deleted, filled by an import, copied, split or merged, and the split row would be older than the
    result.
    """
    free = (tablet for tablet in large if not tablet.rests and f"table {tablet.table}" not in locks)
    return nlargest(TABLETS_AT_ONCE, free, key=lambda tablet: (tablet.counted_bytes, tablet.row))
