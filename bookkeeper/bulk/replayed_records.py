"""The records of an import's segments, in the order in which they were written.

The position of a record, from 1, is its offset in the log. An import numbers its records in the order of the input and
writes segments chunk by chunk. So the numbers of one chunk follow those of the chunk before, and memory is bounded by a
chunk. Pure but for reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from bookkeeper.bulk.segment_conversion import CHUNK_BYTES, CHUNK_RECORDS
from bookkeeper.errors import DeclinedError
from bookkeeper.storage.tablet.segments.block_cache import BlockCache
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.tablet.segments.segment_reader import Segment
from bookkeeper.storage.tablet.sorting.entries import SEQ, to_records
from bookkeeper.storage.volume.volume_protocol import Volume


def in_written_order(volume: Volume, refs: Sequence[SegmentRef]) -> Iterator[pa.RecordBatch]:
    """The records in batches. Raises CorruptionError, UnavailableError, and DeclinedError for segments of no import."""
    for chunk in chunks_of(refs):
        if sum(ref.records for ref in chunk) > 2 * CHUNK_RECORDS or sum(ref.bytes for ref in chunk) > 2 * CHUNK_BYTES:
            raise DeclinedError(f"{len(chunk)} segments, {chunk[0].name} first, are not those of one part of an import")
        yield _records(volume, chunk)


def chunks_of(refs: Sequence[SegmentRef]) -> Iterator[list[SegmentRef]]:
    """Groups of segments whose numbers overlap, in the order of the numbers."""
    chunk: list[SegmentRef] = []
    for ref in sorted(refs, key=lambda ref: ref.first_seq):
        if chunk and ref.first_seq > max(earlier.last_seq for earlier in chunk):
            yield chunk
            chunk = []
        chunk.append(ref)
    if chunk:
        yield chunk


def _records(volume: Volume, chunk: Sequence[SegmentRef]) -> pa.RecordBatch:
    segments = [Segment(volume, ref, BlockCache(0, readers=0)) for ref in chunk]
    parts = [segment.block(number).batch for segment in segments for number in range(segment.block_count)]
    try:
        (entries,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
        numbers = entries.column(SEQ).to_numpy()
        order = np.argsort(numbers, kind="stable")
        ordered = entries.take(pa.array(order))
    except (pa.ArrowException, ValueError) as error:
        raise DeclinedError(f"the segments of {chunk[0].name} can't be put in order: {error}") from error
    if (np.diff(numbers[order]) < 1).any():
        raise DeclinedError(f"the segments of {chunk[0].name} hold records of the same number")
    return to_records(ordered)
