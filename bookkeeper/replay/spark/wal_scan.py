"""The plan of a query over logs, and the Arrow batches that its tasks read. It does not import Spark.

A plan divides the logs at some paths into parts; one task reads a part as record batches of :data:`SCAN_SCHEMA`. A part
is fixed by the plan: two reads return the same records, also while a tserver writes the log. Rule: R15.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.storage.volume.given_files import GivenFiles, list_files
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.storage.wal.reading.log_formats import BlockAt
from bookkeeper.storage.wal.reading.wal_view import WalView

LOG_SUFFIX = ".wal"
"""Suffix of the logs of a directory; a log that is named itself may have any name."""

BATCH_RECORDS_MAX = 16_384
BATCH_BYTES_MAX = 4 << 20
"""Small blocks are joined up to these sizes."""

SCAN_SCHEMA = pa.schema(
    [
        *(pa.field(field.name, field.type) for field in MUTATION_SCHEMA),
        pa.field("file", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("table_id", pa.string()),
    ]
)
"""The columns of a mutation, and its location: the URI of the log, the record's offset in it, its table.

Fields are nullable, because readers of other systems declare them so; only ``timestamp`` of a foreign log may be null.
"""


class RecordFilter(Struct, frozen=True):
    """Selects records: offsets ``first`` to ``last`` (inclusive; None: to the end) of some tables (None: of any)."""

    first: int = 1
    last: int | None = None
    tables: frozenset[str] | None = None

    def matches(self, header: BlockHeader) -> bool:
        """Whether a block may have a selected record, by its header alone."""
        last = header.first_offset + header.record_count - 1
        return (
            last >= self.first
            and (self.last is None or header.first_offset <= self.last)
            and (self.tables is None or header.table_id in self.tables)
        )


class LogPart(Struct, frozen=True):
    """Records of one log for one task: ``record_filter`` selects them in the blocks in bytes [position, end_position).

    ``first`` is at most the offset of the first of these records; ``position`` 0 stands for the first block.
    """

    uri: str
    first: int
    position: int
    end_position: int
    record_filter: RecordFilter


def list_logs(locations: Sequence[str]) -> list[str]:
    """URIs of the logs at paths or URIs: a file is one, of a directory every ``*.wal`` below it, in order of name.

    Raises NotFoundError, InvalidInputError, UnavailableError.
    """
    return list(dict.fromkeys(uri for location in locations for uri in list_files(location, LOG_SUFFIX)))


def plan(locations: Sequence[str], record_filter: RecordFilter, part_bytes: int) -> list[LogPart]:
    """The parts of all logs, none much above ``part_bytes``, each with complete blocks."""
    return [part for uri in list_logs(locations) for part in plan_log(uri, record_filter, part_bytes)]


def plan_log(uri: str, record_filter: RecordFilter, part_bytes: int) -> list[LogPart]:
    """The parts of one log. It reads headers only of a log with several parts, so that many logs are planned fast."""
    view = WalView(GivenFiles(), uri)
    end = view.seal.position if view.seal is not None else view.size
    if end <= part_bytes and record_filter.first == 1:
        return [LogPart(uri, 1, 0, end, record_filter)]
    parts: list[LogPart] = []
    for at in view.headers(record_filter.first):
        if record_filter.last is not None and at.header.first_offset > record_filter.last:
            return parts
        if not record_filter.matches(at.header):
            continue
        if parts and at.end_position - parts[-1].position <= part_bytes:
            parts[-1] = replace(parts[-1], end_position=at.end_position)
        else:
            parts.append(LogPart(uri, at.header.first_offset, at.position, at.end_position, record_filter))
    return parts


def read_part(part: LogPart) -> Iterator[pa.RecordBatch]:
    """The records of a part, in order, as batches of :data:`SCAN_SCHEMA`; at most one batch and one block in memory.

    Raises CorruptionError with file and position, NotFoundError when the log was deleted meanwhile.
    """
    pending: list[pa.RecordBatch] = []
    records = size = 0
    view = WalView(GivenFiles(), part.uri)
    for at in blocks_of(view, part):
        batch = view.batch(at)
        if batch is None:
            break
        located = add_location(part, at.header, batch)
        if pending and (records + located.num_rows > BATCH_RECORDS_MAX or size + located.nbytes > BATCH_BYTES_MAX):
            yield joined(pending)
            pending, records, size = [], 0, 0
        pending.append(located)
        records, size = records + located.num_rows, size + located.nbytes
    if pending:
        yield joined(pending)


def blocks_of(view: WalView, part: LogPart) -> Iterator[BlockAt]:
    """The blocks of a part that may have selected records."""
    last = part.record_filter.last
    for at in view.headers(part.first, part.position or None):
        if at.end_position > part.end_position or (last is not None and at.header.first_offset > last):
            return
        if part.record_filter.matches(at.header):
            yield at


def add_location(part: LogPart, header: BlockHeader, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The selected records of a block, each with its location."""
    first = header.first_offset
    skipped = max(0, part.record_filter.first - first)
    last = first + batch.num_rows - 1 if part.record_filter.last is None else part.record_filter.last
    selected = batch.slice(skipped, max(0, last - first + 1 - skipped))
    offsets = np.arange(first + skipped, first + skipped + selected.num_rows, dtype=np.int64)
    return pa.RecordBatch.from_arrays(
        [
            *selected.columns,
            pa.repeat(pa.scalar(part.uri), selected.num_rows),
            pa.array(offsets),
            pa.repeat(pa.scalar(header.table_id), selected.num_rows),
        ],
        schema=SCAN_SCHEMA,
    )


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Several batches as one."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
