"""A tablet's data in memory, with segments that survive (stands for ``bookkeeper.storage.tablet.TabletData``)."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.bulk.booked_segment import segment_ref
from bookkeeper.config.table_properties import DEFAULT_PROPERTIES, TableProperties
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Row
from bookkeeper.metadata.values import SegmentEntry
from bookkeeper.model import Extent
from bookkeeper.storage.tablet.compaction import Merge
from bookkeeper.storage.tablet.segments.block_cache import BlockCache
from bookkeeper.storage.tablet.segments.middle_row import Middle, SegmentGroups, find_middle
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.tablet.segments.segment_reader import Segment
from bookkeeper.storage.tablet.tablet_resources import TabletResources
from bookkeeper.storage.volume.volume_protocol import Volume
from tests.support.simulation.host_disk import has_files, is_of_host
from tests.support.simulation.primitives import kernel

MAGIC = b"PAR1"
"""The beginning of a Parquet file."""


class Entry(Struct, frozen=True):
    """One record as a tablet holds it. ``value`` is unique in a world, that of a delete too."""

    row: bytes
    family: bytes
    column: bytes
    timestamp: int
    seq: int
    delete: bool
    value: bytes


@dataclass(eq=False)
class Frozen:
    """The state that a flush takes."""

    entries: list[Entry]

    @property
    def records(self) -> int:
        return len(self.entries)


class Segments:
    """Segments on Volumes: written whole or not at all. Those on hosts, and on the Volumes beside these, are real
    files. ``parsed``: contents that imports have made.
    """

    files: dict[str, list[Entry]] = {}  # noqa: RUF012 - one world at a time
    parsed: dict[bytes, list[Entry]] = {}  # noqa: RUF012
    made: int = 0


class SimTabletData:
    """Memtable, frozen memtable, segments."""

    def __init__(
        self,
        extent: Extent,
        groups: Any,
        volume: Volume,
        directory: str,
        segments: Sequence[SegmentRef],
        resources: TabletResources,
        *,
        properties: TableProperties,
    ) -> None:
        """``resources`` are about speed; ``properties`` come with :meth:`configure`."""
        del resources, properties
        self.extent = extent
        self.groups = groups
        self.properties = DEFAULT_PROPERTIES
        self.volume = volume
        self.directory = directory
        self.refs = list(segments)
        self.active: list[Entry] = []
        self.frozen: Frozen | None = None
        self.stored = self._stored(self.refs)

    def apply(self, batch: pa.RecordBatch, first_seq: int) -> None:
        self.active += entries_of(batch, first_seq)

    def configure(self, groups: Any, properties: TableProperties) -> None:
        self.groups = groups
        self.properties = properties

    @property
    def memory_records(self) -> int:
        return len(self.active) + (self.frozen.records if self.frozen else 0)

    @property
    def memory_bytes(self) -> int:
        return self.memory_records

    @property
    def active_bytes(self) -> int:
        return len(self.active)

    @property
    def segments(self) -> Sequence[SegmentRef]:
        return self.refs

    def entries(self) -> list[Entry]:
        """Everything, in no order."""
        return [*self.stored, *(self.frozen.entries if self.frozen else ()), *self.active]

    @property
    def first_active_seq(self) -> int | None:
        """See the product's class."""
        return min((entry.seq for entry in self.active), default=None)

    def begin_flush(self) -> Frozen | None:
        if self.frozen is None and self.active:
            self.frozen, self.active = Frozen(self.active), []
        return self.frozen

    def write_segments(self, frozen: Frozen, flush_id: int) -> list[SegmentRef]:
        kernel().pause(f"write a segment of {self.extent.table_id}")
        return [self._new_segment(f"{flush_id:010d}", frozen.entries, flush_id)]

    def write_merged(
        self,
        inputs: Collection[str],
        holder: int,
        now_ms: int,
        *,
        drop_deletes: bool,
        check_continue: Callable[[], None],
    ) -> list[SegmentRef]:
        """A table here keeps every version and delete for ever: a compaction must not lose one or show it twice."""
        del now_ms, drop_deletes
        kernel().pause(f"merge {len(inputs)} segments of {self.extent.table_id}")
        check_continue()
        entries = self._stored([ref for ref in self.refs if ref.name in inputs])
        return [self._new_segment(f"c{holder:010d}", entries, 0)] if entries else []

    def replace_segments(self, inputs: Collection[str], written: Sequence[SegmentRef]) -> None:
        self.refs = [*(ref for ref in self.refs if ref.name not in inputs), *written]
        self.stored = self._stored(self.refs)

    def _stored(self, refs: Sequence[SegmentRef]) -> list[Entry]:
        """The entries of this tablet in files that it may share with other tablets."""
        return [
            entry
            for ref in refs
            for entry in entries_in(self.volume, ref)
            if self.extent.contains(entry.row) and counts(ref, entry.row)
        ]

    def discard(self, written: Sequence[SegmentRef]) -> None:
        self.volume.discard([ref.name for ref in written])

    def middle(self, row_bytes_max: int) -> Middle:
        """Each record is a row group of its own, of one byte."""
        segments = [
            SegmentGroups(
                ref.records,
                ref.ranges,
                [(row, row, 1) for row in sorted(entry.row for entry in entries_in(self.volume, ref))],
            )
            for ref in self.refs
        ]
        return find_middle(segments, self.extent.rows, row_bytes_max)

    def names_in_use(self) -> set[str]:
        return {ref.name for ref in self.refs}

    def is_read(self, names: Collection[str]) -> bool:
        del names
        return False

    def _new_segment(self, prefix: str, entries: list[Entry], flush_id: int) -> SegmentRef:
        Segments.made += 1
        name = f"{self.directory}/{prefix}-{Segments.made:04d}.parquet"
        if is_of_host(self.volume):
            self.volume.create(name, [pickle.dumps(entries)]).close()
        else:
            if has_files(self.volume):
                publish_whole(self.volume, name, pickle.dumps(entries))
            Segments.files[name] = list(entries)
        rows = [entry.row for entry in entries]
        seqs = [entry.seq for entry in entries]
        return SegmentRef(name, "default", len(rows), len(rows), min(rows), max(rows), min(seqs), max(seqs), flush_id)

    def finish_flush(self, frozen: Frozen, segments: Sequence[SegmentRef]) -> None:
        if self.frozen is not frozen:
            return
        self.stored += frozen.entries
        self.refs = [*self.refs, *segments]
        self.frozen = None


def publish_whole(volume: Volume, name: str, content: bytes) -> None:
    """A new file of a Volume, with one step before it has its name."""
    volume.scratch(name).path.write_bytes(content)
    volume.publish([name])


def entries_in(volume: Volume, ref: SegmentRef) -> list[Entry]:
    """The records of a segment, numbered as in the tablet that has this reference."""
    known = None if is_of_host(volume) else Segments.files.get(ref.name)
    if known is None:
        known = read_entries(volume, replace(ref, shift=0))
        if not is_of_host(volume):
            Segments.files[ref.name] = known
    return [replace(entry, seq=entry.seq + ref.shift) for entry in known] if ref.shift else known


def shared_entries(volume: Volume, row: Row) -> list[Entry]:
    """The records of a tablet's segments on the Volume, all rows of these files included."""
    found: list[Entry] = []
    for column, cell in row.cells.items():
        name = keys.parse_file(column.qualifier) if column.family == "segment" else ""
        if name and (name in Segments.files or volume.exists(name)):
            found += entries_in(volume, segment_ref(name, SegmentEntry.decode(cell.value)))
    return found


def read_entries(volume: Volume, ref: SegmentRef) -> list[Entry]:
    """The records of a file, as they are numbered in it: it may be damaged, late or gone. Those that imports make are
    segments of the product.
    """
    content = bytes(volume.read_range(ref.name, 0, volume.size(ref.name)))
    if not content.startswith(MAGIC):
        found: list[Entry] = pickle.loads(content)
        return found
    if content not in Segments.parsed:
        segment = Segment(volume, ref, BlockCache(0, readers=0))
        Segments.parsed[content] = [
            entry for number in range(segment.block_count) for entry in numbered(segment.block(number).batch)
        ]
    return Segments.parsed[content]


def numbered(batch: pa.RecordBatch) -> list[Entry]:
    """The records of a block of a real segment."""
    return [replace(e, seq=seq) for e, seq in zip(entries_of(batch, 0), batch.column("seq").to_pylist(), strict=True)]


def counts(ref: SegmentRef, row: bytes) -> bool:
    """Whether a row of a file belongs to the tablet with this reference."""
    return not ref.ranges or any(rows.contains(row) for rows in ref.ranges)


def eager_merges(segments: Sequence[SegmentRef], properties: TableProperties, *, filling: bool) -> list[Merge]:
    """Two segments are enough: schedules are short."""
    del properties, filling
    return [Merge(tuple(segments), whole_group=len(segments) % 2 == 0)] if len(segments) > 1 else []


def entries_of(batch: pa.RecordBatch, first_seq: int) -> list[Entry]:
    """The records of a batch."""
    names = ("row", "family", "qualifier", "timestamp", "delete", "value")
    columns = [batch.column(name).to_pylist() for name in names]
    return [
        Entry(row, family, column, timestamp, first_seq + number, delete, value)
        for number, (row, family, column, timestamp, delete, value) in enumerate(zip(*columns, strict=True))
    ]
