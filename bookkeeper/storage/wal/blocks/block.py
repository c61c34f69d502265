"""A block: some complete row mutations of one tablet, as they lie in a WAL and travel on the wire.

It has a header, which says where the records came from and which targets they are for, and a payload, which is one
Arrow IPC record batch message of ``MUTATION_SCHEMA`` without its schema. Bytes from outside are checked in full before
any value is read from them. Rules: R13, R15, R18, R21 and R24.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pyarrow as pa
from msgspec import Struct

from bookkeeper.errors import CorruptionError, InvalidInputError
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.storage.wal.blocks.ipc_message import read_form

COMPRESSIONS = ("", "lz4", "zstd")
"""Allowed values of ``BlockHeader.compression``; empty means none."""

BATCH_BYTES_MAX = 1 << 28
"""Most bytes that a compressed batch of a file may take: above the largest block a writer makes, far below the memory
of a server.
"""

_SCHEMA_MESSAGE_BYTES = MUTATION_SCHEMA.serialize().size
_BIT_WIDTHS = tuple(0 if field.type == pa.binary() else field.type.bit_width for field in MUTATION_SCHEMA)
_EMPTY = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in MUTATION_SCHEMA], schema=MUTATION_SCHEMA)


def encode_batch(batch: pa.RecordBatch, compression: str = "") -> pa.Buffer:
    """One IPC record batch message (no schema message), without the bytes around a slice.

    Raises InvalidInputError when the schema is not ``MUTATION_SCHEMA`` or the compression is unknown.
    """
    if not batch.schema.equals(MUTATION_SCHEMA):
        raise InvalidInputError(f"records of schema {batch.schema} can't enter a log: want {MUTATION_SCHEMA}")
    batch = batch if _fills_its_memory(batch) else _copied(batch)
    if not compression:
        return batch.serialize()
    if compression not in COMPRESSIONS:
        raise InvalidInputError(f"unknown block compression {compression!r}: use one of {COMPRESSIONS}")
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    writer = pa.ipc.new_stream(sink, MUTATION_SCHEMA, options=options)
    writer.write_batch(batch)
    return sink.getvalue().slice(_SCHEMA_MESSAGE_BYTES)


def _fills_its_memory(batch: pa.RecordBatch) -> bool:
    """Whether the memory of each column holds no bytes but the column's.

    Arrow pads a slice with the bytes that follow it: up to 63 bytes of other records.
    """
    rows = batch.num_rows
    for index, width in enumerate(_BIT_WIDTHS):
        column = batch.column(index)
        if column.offset:
            return False
        _, *offsets, content = column.buffers()
        used = struct.unpack_from("<i", offsets[0], 4 * rows)[0] if offsets and rows else (rows * width + 7) // 8
        if used != (0 if content is None else content.size):
            return False
    return True


def _copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    copied = pa.Table.from_batches([batch, _EMPTY]).combine_chunks().to_batches()
    return copied[0] if copied else _EMPTY


def admit_batch(size: int) -> None:
    """Permit a batch that takes ``size`` bytes decompressed, or raise CorruptionError."""
    if size > BATCH_BYTES_MAX:
        raise CorruptionError(f"a record batch announces {size} bytes, the limit is {BATCH_BYTES_MAX}")


def decode_batch(payload: pa.Buffer | bytes | memoryview, admit: Callable[[int], None] = admit_batch) -> pa.RecordBatch:
    """The batch in ``payload``, sharing its memory; raises CorruptionError unless every offset and length in it holds.

    Fit for bytes from the network: after this no read of a value can leave the buffer. ``admit`` gets the decompressed
    size of a compressed batch before memory is allocated for it; its errors pass through.
    """
    buffer = payload if isinstance(payload, pa.Buffer) else pa.py_buffer(payload)
    form = read_form(memoryview(buffer))
    if form.is_compressed:
        admit(form.column_bytes)
    try:
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(buffer), MUTATION_SCHEMA)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise CorruptionError(f"{buffer.size} bytes are no record batch of mutations: {error}") from error
    return batch


class Block(Struct, frozen=True):
    """A block with its place in a WAL. ``payload`` may share memory with the file it was read from.

    ``end_position`` is the byte position in the file where the next block starts (a hint for the next read);
    0 when the block was not read from a file. The header must not be changed.
    """

    header: BlockHeader
    payload: pa.Buffer
    end_position: int = 0

    @property
    def first_offset(self) -> int:
        """Offset of the first record."""
        return self.header.first_offset

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.header.first_offset + self.header.record_count - 1

    def batch(self) -> pa.RecordBatch:
        """The records, without a copy unless they are compressed; raises CorruptionError."""
        batch = decode_batch(self.payload)
        if batch.num_rows != self.header.record_count:
            raise CorruptionError(
                f"the block at offset {self.first_offset} announces {self.header.record_count} records "
                f"and holds {batch.num_rows}"
            )
        return batch


class DraftBlock(Struct, frozen=True):
    """Records of one tablet on their way into a log: ``header`` lacks ``first_offset`` and ``record_count``,
    which the committer sets. ``batch`` has at least one row and whole row mutations only.
    """

    header: BlockHeader
    batch: pa.RecordBatch


class PlacedBlock(Struct, frozen=True):
    """A draft with its offset in a log. Neighbours may share its block in the file.

    ``wal_name`` is empty and ``first_offset`` 0 when the records were not logged (durability none).
    """

    wal_name: str
    first_offset: int
    draft: DraftBlock

    @property
    def header(self) -> BlockHeader:
        """The draft's header; its ``first_offset`` is not set, the block's is."""
        return self.draft.header

    @property
    def batch(self) -> pa.RecordBatch:
        """The draft's records."""
        return self.draft.batch

    @property
    def last_offset(self) -> int:
        """Offset of the last record; 0 when not logged."""
        return self.first_offset + self.draft.batch.num_rows - 1 if self.first_offset else 0
