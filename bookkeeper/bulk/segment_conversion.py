"""Conversion of records into segments: sorted, divided by tablet and locality group, durable under final names.

The books do not name the segments yet: holds keep them (``file_holds``), and after a crash the collector deletes them
when the import is over. Memory is bounded by a chunk of input. Each chunk makes a segment for each tablet and group of
its records; compactions merge them.

Records are numbered from 1 in the order of the input. A tablet that takes a segment shifts these numbers behind all
that it has assigned (``SegmentEntry.shift``). So an import has one position in the order of each tablet: of versions of
a cell with one timestamp, it wins over earlier ones, and later ones win over it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import count

import pyarrow as pa
from msgspec import Struct

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import Extent
from bookkeeper.storage.columns import min_max_row
from bookkeeper.storage.tablet.flush import split_by_group
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.segments.segment_format import ENDING, SegmentRef
from bookkeeper.storage.tablet.segments.segment_writer import SegmentWriter
from bookkeeper.storage.tablet.sorting.entries import SortedBlock, to_entries
from bookkeeper.storage.tablet.sorting.order import order_entries
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from bookkeeper.storage.volume.volume_protocol import Volume

CHUNK_RECORDS = 1 << 20
CHUNK_BYTES = 128 << 20
"""Input that is sorted at once."""

SEGMENTS_MAX = 50_000
"""Most segments of one import: all of them are in one manifest."""


class SegmentDirectory(Struct, frozen=True):
    """The destination of segments: a directory on the Volume, and the settings to write them."""

    volume: Volume
    directory: str
    settings: TabletSettings
    hold: Callable[[Collection[str]], None] = lambda files: None  # noqa: ARG005
    """Holds files before they exist; may raise."""


def convert(
    batches: Iterable[pa.RecordBatch],
    extents: Sequence[Extent],
    groups: GroupMap,
    target: SegmentDirectory,
    check_continue: Callable[[], None],
    log: Callable[[pa.RecordBatch], None] = lambda chunk: None,  # noqa: ARG005
) -> list[SegmentRef]:
    """Write the records of ``batches`` (MUTATION_SCHEMA, timestamps set) as segments, each within one of ``extents``
    (all tablets of a table, in order). ``check_continue`` runs for each chunk and may raise; so does ``log``, with
    the chunk in the order of the input. Raises OSError, InvalidInputError; then the caller removes the written files.
    """
    written: list[SegmentRef] = []
    numbers = count()
    done = 0
    for chunk in _chunks(batches):
        check_continue()
        log(chunk)
        entries = to_entries(chunk, done + 1)
        done += chunk.num_rows
        parts = [
            (group, part)
            for piece in divided(in_order(entries), extents)
            for group, part in split_by_group(piece, groups).items()
        ]
        if len(written) + len(parts) > SEGMENTS_MAX:
            raise InvalidInputError(f"more than {SEGMENTS_MAX} segments are needed; import the files in parts")
        written += _write(parts, target, numbers)
    return written


def _write(
    parts: Sequence[tuple[str, pa.RecordBatch]], target: SegmentDirectory, numbers: Iterator[int]
) -> list[SegmentRef]:
    writers: list[SegmentWriter] = []
    written = []
    names = [f"{target.directory}/{next(numbers):06d}{ENDING}" for _ in parts]
    target.hold(names)
    for name, (group, part) in zip(names, parts, strict=True):
        writer = SegmentWriter(target.volume, name, group, target.settings)
        writers.append(writer)
        writer.add(part)
        written.append(writer.finish(0))
    target.volume.publish([writer.name for writer in writers])
    return written


def in_order(entries: pa.RecordBatch) -> pa.RecordBatch:
    """Entries by key."""
    order = order_entries(entries, *min_max_row(entries))
    return entries.take(pa.array(order.indices))


def divided(entries: pa.RecordBatch, extents: Sequence[Extent]) -> Iterator[pa.RecordBatch]:
    """Sorted entries by tablet: a slice for each extent that has some."""
    rows = SortedBlock(entries)
    begin = 0
    for extent in extents:
        end = entries.num_rows if extent.end_row is None else rows.bisect((extent.end_row + b"\x00",), begin)
        if end > begin:
            yield entries.slice(begin, end - begin)
        begin = end


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    records = size = 0
    for batch in batches:
        if waiting and (records + batch.num_rows > CHUNK_RECORDS or size + batch.nbytes > CHUNK_BYTES):
            yield _joined(waiting)
            waiting, records, size = [], 0, 0
        waiting.append(batch)
        records, size = records + batch.num_rows, size + batch.nbytes
    if waiting:
        yield _joined(waiting)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
