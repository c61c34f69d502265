"""The writer of segments: sorted entries become one durable, immutable file.

A file is a scratch file until it is complete and synced; then the Volume publishes it. A crash before that leaves a
scratch file that no reader opens; a crash after it leaves a file that the books do not name. ``leftovers`` finds
both, and the tablet's holder can delete them.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections import deque
from collections.abc import Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bookkeeper.storage.columns import binary_data, binary_offsets, content_bytes, distinct, is_constant
from bookkeeper.storage.tablet.segments import bloom, segment_format
from bookkeeper.storage.tablet.segments.segment_format import FOOTER_END, TRAILER, NewSegment, crc32c
from bookkeeper.storage.tablet.segments.segment_index import INDEX_SCHEMA, encode_index
from bookkeeper.storage.tablet.sorting.entries import ENTRY_SCHEMA, KEY_COLUMNS, entries_within, entry_bytes
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from bookkeeper.storage.volume.file_ops import write_all
from bookkeeper.storage.volume.names import SCRATCH_SUFFIX
from bookkeeper.storage.volume.volume_protocol import Volume

VALUES_PER_BATCH = 1 << 16
"""Values that Parquet encodes at once: complete columns of a row group, a quarter faster than parts."""

ENCODING_BYTES_MAX = 8 << 20
"""Bytes of the row groups that wait for the encoder, if they are several. Batches have many row groups, and their keys
are read batch by batch: with one waiting row group, the two threads would wait for each other in turn.
"""

WRITEBACK_BYTES = 4 << 20
"""The kernel starts to write a segment to disk in parts of this size: one large sync at the end delays those of the
log.
"""

SAMPLE_BYTES = 1 << 16
COMPRESSIBLE_RATIO = 0.9
"""Values are compressed when a sample of them shrinks below this part of its size."""


def is_compressible(values: pa.Array, compression: str) -> bool:
    """Whether compression makes values like these smaller; images, encrypted and compressed values it does not."""
    first = int(binary_offsets(values)[0])
    sample = binary_data(values)[first : first + min(content_bytes(values), SAMPLE_BYTES)]
    if compression == "none" or not sample:
        return False
    return int(pa.compress(sample, compression).size) < COMPRESSIBLE_RATIO * len(sample)


_DICTIONARY = pa.dictionary(pa.int32(), pa.binary())
_WRITTEN_SCHEMA = pa.schema(
    [f.with_type(_DICTIONARY) if f.name in segment_format.DICTIONARY_COLUMNS else f for f in ENTRY_SCHEMA]
)
"""The same bytes in the file. Where a column has one value, as mostly, Parquet need not search for distinct ones."""


def _constants(entries: pa.RecordBatch) -> frozenset[str]:
    """Columns, of those that are written with dictionaries, that have one value."""
    return frozenset(name for name in segment_format.DICTIONARY_COLUMNS if is_constant(entries.column(name)))


def _with_dictionaries(entries: pa.RecordBatch, constants: Collection[str]) -> pa.RecordBatch:
    """The entries in the schema in which they are written."""
    columns = [
        _dictionary_of(column, field.name in constants) if field.type == _DICTIONARY else column
        for field, column in zip(_WRITTEN_SCHEMA, entries.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_WRITTEN_SCHEMA)


def _dictionary_of(column: pa.Array, constant: bool) -> pa.DictionaryArray:
    if not constant:
        return column.dictionary_encode()
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(column), np.int32)), column.slice(0, 1))


def _parquet_writer(sink: pa.NativeFile, compression: str, first: pa.RecordBatch) -> pq.ParquetWriter:
    """``first``: the first entries to write; they decide whether values are compressed. Pages have no checksums: the
    index has one of each row group, and of more bytes.
    """
    codecs = dict.fromkeys(ENTRY_SCHEMA.names, compression)
    if not is_compressible(first.column("value"), compression):
        codecs["value"] = "none"
    return pq.ParquetWriter(
        sink,
        _WRITTEN_SCHEMA,
        compression=codecs,
        use_dictionary=segment_format.DICTIONARY_COLUMNS,
        write_statistics=["row"],
        store_schema=False,
        write_batch_size=VALUES_PER_BATCH,
    )


def _tail(filter_bytes: bytes, index: pa.RecordBatch, footer: bytes) -> list[bytes]:
    """The bytes between the row groups and the Parquet footer."""
    index_bytes = encode_index(index)
    check = crc32c(filter_bytes + index_bytes)
    trailer = TRAILER.pack(segment_format.TRAILER_MAGIC, len(filter_bytes), len(index_bytes), check, crc32c(footer))
    return [filter_bytes, index_bytes, trailer]


class SegmentWriter:
    """One segment under construction, in a scratch file: ``add`` in key order, ``finish``, :meth:`Volume.publish`.

    Row groups are encoded in a thread of its own while the caller prepares the next ones; ``finish`` and ``discard``
    end it. A later call raises the thread's error.
    """

    def __init__(self, volume: Volume, name: str, group: str, settings: TabletSettings) -> None:
        """``name``: the final one, never used before. Raises OSError."""
        self.name = name
        self._volume = volume
        self._scratch = volume.scratch(name)
        self._group = group
        self._settings = settings
        self._sink = pa.OSFile(str(self._scratch.path), "wb")
        self._writer: pq.ParquetWriter | None = None
        """From the first row group on."""
        self._encoder = ThreadPoolExecutor(1, "segment")
        self._encoded: deque[tuple[int, Future[None]]] = deque()
        """The row groups, each with its size, that are encoded or wait for it while the next ones are prepared."""
        self._writeback_end = 0
        """The end of the bytes that the kernel has started to write."""
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_records = 0
        self._waiting_bytes = 0
        self._index: list[dict[str, Any]] = []
        self._hashes: list[bloom.Hashes] = []
        self._families: set[bytes] = set()
        self._seqs: list[int] = []

    def add(self, entries: pa.RecordBatch) -> None:
        """Append entries, none before those added already; writes whole row groups, raises OSError."""
        self._note(entries)
        constants = _constants(entries)
        low = 0
        while low < entries.num_rows:
            remaining = entries.slice(low, self._settings.row_group_records - self._waiting_records)
            fits = entries_within(remaining, self._settings.row_group_bytes - self._waiting_bytes)
            part = remaining.slice(0, max(1, fits))
            self._waiting.append(part)
            self._waiting_records += part.num_rows
            self._waiting_bytes += int(entry_bytes(part))
            low += part.num_rows
            is_full = self._waiting_bytes >= self._settings.row_group_bytes
            if (
                is_full
                or part.num_rows < remaining.num_rows
                or self._waiting_records == self._settings.row_group_records
            ):
                self._write_row_group(constants if len(self._waiting) == 1 else None)

    def _note(self, entries: pa.RecordBatch) -> None:
        """Note the hashes, families and sequence numbers of these entries, for the tail and the books."""
        self._hashes.append(bloom.hash_rows(entries.column("row")))
        if len(self._families) <= segment_format.FAMILIES_MAX:
            self._families.update(distinct(entries.column("family")))
        extremes = pc.min_max(entries.column("seq"))
        self._seqs += [extremes["min"].as_py(), extremes["max"].as_py()]

    def _write_row_group(self, constants: Collection[str] | None = None) -> None:
        """``constants``: see :func:`_constants`; None: not known."""
        group = self._waiting[0] if len(self._waiting) == 1 else pa.concat_batches(self._waiting)
        size = self._waiting_bytes
        self._waiting, self._waiting_records, self._waiting_bytes = [], 0, 0
        written = _with_dictionaries(group, _constants(group) if constants is None else constants)
        self._settle(ENCODING_BYTES_MAX - size)
        self._encoded.append((size, self._encoder.submit(self._encode, group, written)))

    def _settle(self, left_bytes: int) -> None:
        """Wait until at most ``left_bytes`` wait to be encoded. Raises the encoder's error."""
        while self._encoded and sum(size for size, _ in self._encoded) > left_bytes:
            _, encoded = self._encoded.popleft()
            encoded.result()

    def _encode(self, group: pa.RecordBatch, written: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer = _parquet_writer(self._sink, self._settings.compression, group)
        start = self._sink.tell()
        self._writer.write_batch(written, row_group_size=group.num_rows)
        end = self._sink.tell()
        if end - self._writeback_end >= WRITEBACK_BYTES:
            self._scratch.ops.begin_writing(self._sink.fileno(), self._writeback_end, end - self._writeback_end)
            self._writeback_end = end
        line = {"start": start, "bytes": end - start, "crc": 0, "records": group.num_rows}
        for name in KEY_COLUMNS:
            line[f"first_{name}"] = group.column(name)[0].as_py()
            line[f"last_{name}"] = group.column(name)[-1].as_py()
        self._index.append(line)

    def finish(self, flush_id: int) -> NewSegment:
        """Complete and sync the temporary file, read every byte of it back for its checksum. At least one entry was
        added. Raises OSError; the segment has no name yet.
        """
        if self._waiting:
            self._write_row_group()
        self._settle(0)
        self._encoder.shutdown()
        assert self._writer is not None
        self._writer.add_key_value_metadata(self._metadata())
        self._writer.close()
        self._sink.close()
        fd = self._scratch.ops.open(self._scratch.path, os.O_RDWR)
        try:
            size = self._add_tail(fd)
            self._scratch.ops.fsync(fd)
        finally:
            self._scratch.ops.close(fd)
        return NewSegment(
            name=self.name,
            group=self._group,
            records=sum(line["records"] for line in self._index),
            bytes=size,
            min_row=self._index[0]["first_row"],
            max_row=self._index[-1]["last_row"],
            first_seq=min(self._seqs),
            last_seq=max(self._seqs),
            flush_id=flush_id,
        )

    def _metadata(self) -> dict[bytes, bytes]:
        metadata = {
            segment_format.VERSION_KEY: str(segment_format.FORMAT_VERSION).encode(),
            segment_format.GROUP_KEY: self._group.encode(),
        }
        if len(self._families) <= segment_format.FAMILIES_MAX:
            listed = [base64.b64encode(family).decode() for family in sorted(self._families)]
            metadata[segment_format.FAMILIES_KEY] = json.dumps(listed).encode()
        return metadata

    def _add_tail(self, fd: int) -> int:
        """Insert the tail before the footer; returns the size of the file."""
        size = os.fstat(fd).st_size
        footer_length, _ = FOOTER_END.unpack(os.pread(fd, FOOTER_END.size, size - FOOTER_END.size))
        footer_start = size - FOOTER_END.size - footer_length
        end = os.pread(fd, size - footer_start, footer_start)
        for line in self._index:
            line["crc"] = crc32c(os.pread(fd, line["bytes"], line["start"]))
        index = pa.RecordBatch.from_pylist(self._index, schema=INDEX_SCHEMA)
        filter_bytes = bloom.build(self._hashes)
        os.lseek(fd, footer_start, os.SEEK_SET)
        tail = [*_tail(filter_bytes, index, end[:footer_length]), end]
        write_all(fd, tail, self._scratch.ops)
        return int(footer_start + sum(map(len, tail)))

    def discard(self) -> None:
        """Remove the written file, published or not; only before the books name it."""
        self._encoder.shutdown()
        with contextlib.suppress(OSError, pa.ArrowException):  # a file that is thrown away need not be complete
            if self._writer is not None:
                self._writer.close()
        self._sink.close()
        self._volume.discard([self.name])


def leftovers(files: Iterable[str], referenced: Collection[str]) -> list[str]:
    """Of the files in a directory, by name, those of interrupted flushes and compactions: temporary ones, and segments
    that are not in ``referenced``. Only meaningful while no flush of the directory is under way.
    """
    endings = (segment_format.ENDING, segment_format.ENDING + SCRATCH_SUFFIX)
    return sorted(name for name in files if name.endswith(endings) and name not in referenced)
