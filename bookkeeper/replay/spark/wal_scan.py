"""What a query reads of which logs: pure decisions, and the Arrow batches that come of them. Knows no Spark.

Arrives: places (files, directories), a range of offsets, tables. Leaves: parts of logs, each read by
one task, and record batches of :data:`SCAN_SCHEMA`. A part is fixed when it is planned: reading it twice gives the same
records, also when the log is being written. Nothing here survives a crash.
Rule: R15.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.fs

from bookkeeper.errors import InvalidInputError, NotFoundError, UnavailableError
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.storage.wal import BlockAt, BlockHeader, WalView, path_of, uri_of

LOG_SUFFIX = ".wal"
"""How files of a directory are told to be logs; a file that is named itself may have any name."""

BATCH_RECORDS_MAX = 16_384
BATCH_BYTES_MAX = 4 << 20
"""Small blocks are put together up to these sizes."""

SCAN_SCHEMA = pa.schema(
    [
        *(pa.field(field.name, field.type) for field in MUTATION_SCHEMA),
        pa.field("file", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("table_id", pa.string()),
    ]
)
"""The columns of a mutation, and where it lies: the URI of the log, the record's own offset in it, its table.

Fields are nullable, since readers of other systems declare them so; only ``timestamp`` of a foreign log may be null.
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records: offsets ``first`` to ``last`` (inclusive; None: to the end) of some tables (None: of any)."""

    first: int = 1
    last: int | None = None
    tables: frozenset[str] | None = None

    def wants(self, header: BlockHeader) -> bool:
        """Whether a block holds a record that is wanted, by its header alone."""
        last = header.first_offset + header.record_count - 1
        return (
            last >= self.first
            and (self.last is None or header.first_offset <= self.last)
            and (self.tables is None or header.table_id in self.tables)
        )


@dataclass(frozen=True, slots=True)
class LogPart:
    """Records of one log for one task: those that ``wanted`` wants of the blocks in bytes [position, end_position).

    ``first`` is at most the offset of the first record there; ``position`` 0 stands for the first block.
    """

    uri: str
    first: int
    position: int
    end_position: int
    wanted: Wanted


def list_logs(places: Sequence[str]) -> list[str]:
    """URIs of the logs at paths or URIs: a file is one, of a directory every ``*.wal`` below it, in order of name.

    Raises NotFoundError, InvalidInputError, UnavailableError.
    """
    found: dict[str, None] = {}
    for place in places:
        found |= dict.fromkeys(_logs_at(place))
    return list(found)


def _logs_at(place: str) -> list[str]:
    uri = place if "://" in place or place.startswith("file:") else uri_of(Path(place))
    try:
        if urlsplit(uri).scheme == "file":
            path = path_of(_plain_file_uri(uri))
            if not path.is_dir():
                return [uri_of(path)]
            return [uri_of(log) for log in sorted(path.rglob(f"*{LOG_SUFFIX}")) if log.is_file()]
        return _remote_logs(uri)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"{uri!r} names no known filesystem: {error}") from error
    except OSError as error:
        raise UnavailableError(f"{uri} can't be listed: {error}") from error


def _plain_file_uri(uri: str) -> str:
    """``file:/a`` is how Java writes ``file:///a``."""
    return uri if uri.startswith("file://") else "file://" + uri.removeprefix("file:")


def _remote_logs(uri: str) -> list[str]:
    filesystem, path = pyarrow.fs.FileSystem.from_uri(uri)
    info = filesystem.get_file_info(path)
    if info.type == pyarrow.fs.FileType.NotFound:
        raise NotFoundError(f"there is nothing at {uri}")
    if info.type == pyarrow.fs.FileType.File:
        return [uri]
    infos = filesystem.get_file_info(pyarrow.fs.FileSelector(path, recursive=True))
    base = uri.rstrip("/")
    below = sorted(info.path.removeprefix(path.rstrip("/")) for info in infos if info.is_file)
    return [base + name for name in below if name.endswith(LOG_SUFFIX)]


def plan(places: Sequence[str], wanted: Wanted, part_bytes: int) -> list[LogPart]:
    """The parts of all logs, none much above ``part_bytes``, each beginning and ending with a whole block."""
    return [part for uri in list_logs(places) for part in plan_log(uri, wanted, part_bytes)]


def plan_log(uri: str, wanted: Wanted, part_bytes: int) -> list[LogPart]:
    """The parts of one log. Headers are looked at only where a log has to be cut: many logs are planned fast."""
    view = WalView(uri)
    end = view.seal.position if view.seal is not None else view.size
    if end <= part_bytes and wanted.first == 1:
        return [LogPart(uri, 1, 0, end, wanted)]
    parts: list[LogPart] = []
    for at in view.headers(wanted.first):
        if wanted.last is not None and at.header.first_offset > wanted.last:
            return parts
        if not wanted.wants(at.header):
            continue
        if parts and at.end_position - parts[-1].position <= part_bytes:
            parts[-1] = replace(parts[-1], end_position=at.end_position)
        else:
            parts.append(LogPart(uri, at.header.first_offset, at.position, at.end_position, wanted))
    return parts


def read_part(part: LogPart) -> Iterator[pa.RecordBatch]:
    """The records of a part, in order, as batches of :data:`SCAN_SCHEMA`; at most one batch and one block in memory.

    Raises CorruptionError with file and position, NotFoundError when the log was deleted meanwhile.
    """
    held: list[pa.RecordBatch] = []
    records = size = 0
    view = WalView(part.uri)
    for at in blocks_of(view, part):
        batch = view.batch(at)
        if batch is None:
            break
        placed = place_records(part, at.header, batch)
        if held and (records + placed.num_rows > BATCH_RECORDS_MAX or size + placed.nbytes > BATCH_BYTES_MAX):
            yield joined(held)
            held, records, size = [], 0, 0
        held.append(placed)
        records, size = records + placed.num_rows, size + placed.nbytes
    if held:
        yield joined(held)


def blocks_of(view: WalView, part: LogPart) -> Iterator[BlockAt]:
    """The blocks of a part that may hold what is wanted."""
    last = part.wanted.last
    for at in view.headers(part.first, part.position or None):
        if at.end_position > part.end_position or (last is not None and at.header.first_offset > last):
            return
        if part.wanted.wants(at.header):
            yield at


def place_records(part: LogPart, header: BlockHeader, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The wanted records of a block, each with its place."""
    first = header.first_offset
    skipped = max(0, part.wanted.first - first)
    last = first + batch.num_rows - 1 if part.wanted.last is None else part.wanted.last
    kept = batch.slice(skipped, max(0, last - first + 1 - skipped))
    offsets = np.arange(first + skipped, first + skipped + kept.num_rows, dtype=np.int64)
    return pa.RecordBatch.from_arrays(
        [
            *kept.columns,
            pa.repeat(pa.scalar(part.uri), kept.num_rows),
            pa.array(offsets),
            pa.repeat(pa.scalar(header.table_id), kept.num_rows),
        ],
        schema=SCAN_SCHEMA,
    )


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of several."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
