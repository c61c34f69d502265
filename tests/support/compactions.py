"""Acts of compaction tests on a running tserver, and their checks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from bookkeeper.metadata import keys
from bookkeeper.model import Extent
from bookkeeper.storage.wal.reading.wal_recovery import recover
from bookkeeper.tserver.maintenance.compactor import Compactor
from bookkeeper.tserver.tablets.tablet import ServedTablet
from tests.support.failing_metadata import FailingMetadata
from tests.support.tservers import Cells, Ground, LocalNode, records

QUIET = {"table.compaction.segments_max": "1000", "table.compaction.ratio": "1000"}
"""Properties under which a tablet is compacted only on demand."""


class CrashError(BaseException):
    """The process ends here."""


class DyingMetadata(FailingMetadata):
    """Lets one thread die at one of its writes, before it or behind it."""

    def die_at(self, write: int, behind: bool, family: bytes = b"") -> None:
        """The calling thread, counting its writes of this column family from now; b"" counts all."""
        self._thread, self._left, self._behind, self._family = threading.get_ident(), write, behind, family

    def _around(self, name: str, columns: Sequence[bytes], act: Callable[[], None]) -> None:
        is_counted = getattr(self, "_thread", None) == threading.get_ident()
        if not is_counted or not any(column.startswith(self._family) for column in columns):
            super()._around(name, columns, act)
            return
        self._left -= 1
        if self._left < -1 or (self._left < 0 and not self._behind):
            raise CrashError  # a dead thread writes nothing more
        act()
        if self._left < 0:
            raise CrashError


def quiet_tablet(west: Ground) -> tuple[LocalNode, Extent]:
    """A table of one tablet that is compacted only on demand, and its server."""
    (extent,) = west.create_table("1")
    west.set_properties("1", QUIET)
    node = west.local()
    west.assign(node, extent)
    return node, extent


def parts_of(node: LocalNode, extent: Extent) -> tuple[Compactor, ServedTablet]:
    return node.process.parts.tablets.compactor, node.process.parts.tablets.registry.serving(extent)


def fill(west: Ground, node: LocalNode, extent: Extent) -> Cells:
    """Three segments with a put that is deleted, one that is replaced, one that stays; returns what is shown."""
    west.write(node, extent, records([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]))
    west.tserver(node).flush_tablet(extent)
    west.write(node, extent, records([(b"a", b"")], delete=True))
    west.write(node, extent, records([(b"b", b"2")]))
    west.tserver(node).flush_tablet(extent)
    west.write(node, extent, records([(b"d", b"1")]))
    return {(row, b"f", b"q"): value for row, value in ((b"b", b"2"), (b"c", b"1"), (b"d", b"1"))}


def named_in(west: Ground, extent: Extent) -> set[str]:
    """Segments that the tablet's row has a cell of."""
    row = west.metadata.get(keys.tablet_row(extent.table_id, extent.end_row), ("segment",))
    return set() if row is None else {keys.parse_file(name) for name in row.family("segment")}


def marks_in(west: Ground) -> set[str]:
    start, stop = keys.section(keys.DEL_PREFIX)
    return {keys.parse_del_row(row.key) for row in west.metadata.scan(start, stop, ("del",))}


def files_of(west: Ground, extent: Extent) -> set[str]:
    return set(west.volume.list_names(f"tables/{extent.table_id}/"))


def move(west: Ground, old: LocalNode, extent: Extent) -> LocalNode:
    """Another node has the tablet, after the end of the old one's session."""
    old.lose_session()
    for log in west.logs_of(old):
        recover(west.volume, log)
    new = west.local()
    west.assign(new, extent)
    return new
