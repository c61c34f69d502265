"""IPC messages of mutations in forms that this project never writes: what an attacker sends in place of a batch.

Arrives: a batch, or how large a bomb is to be. Leaves: bytes.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.storage.wal.blocks.block import encode_batch
from tests.support.wal_files import records

_VERSION_4 = 3
_COMPRESSION_FIELD = 3
_BUFFERS_FIELD = 2


def written(batch: pa.RecordBatch, custom: dict[str, str] | None = None, **options: object) -> bytes:
    """The record batch message that Arrow writes with these options."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch, custom_metadata=custom)
    whole = sink.getvalue()
    reader = pa.ipc.MessageReader.open_stream(whole)
    schema, message = reader.read_next_message(), reader.read_next_message()
    start = schema.serialize().size
    return bytes(whole.slice(start, message.serialize().size))


def bomb(size: int, compression: str = "zstd") -> bytes:
    """A batch of one record whose value is ``size`` zeros: a few kilobytes, in the one right form."""
    return bytes(encode_batch(records([bytes(size)]), compression))


def old_bomb(size: int, compression: str = "zstd") -> bytes:
    """The same as Arrow 0.17 wrote it: metadata version 4, and the compression hidden in custom metadata."""
    hidden = {"ARROW:experimental_compression": compression}
    raw = bytearray(written(records([bytes(size)]), hidden, compression=compression))
    root = 8 + struct.unpack_from("<I", raw, 8)[0]
    struct.pack_into("<h", raw, _field(raw, root, 0), _VERSION_4)
    header = _field(raw, root, 2)
    batch = header + struct.unpack_from("<I", raw, header)[0]
    struct.pack_into("<H", raw, _vtable(raw, batch) + 4 + 2 * _COMPRESSION_FIELD, 0)
    return bytes(raw)


def buffer_at(raw: bytes | bytearray, number: int) -> int:
    """The position of a buffer's offset and length in the metadata of a message."""
    root = 8 + struct.unpack_from("<I", raw, 8)[0]
    header = _field(raw, root, 2)
    batch = header + struct.unpack_from("<I", raw, header)[0]
    field = _field(raw, batch, _BUFFERS_FIELD)
    return int(field + struct.unpack_from("<I", raw, field)[0] + 4 + 16 * number)


def body_at(raw: bytes | bytearray) -> int:
    """The position of the body of a message."""
    return 8 + int(struct.unpack_from("<I", raw, 4)[0])


def _vtable(raw: bytes | bytearray, table: int) -> int:
    return int(table - struct.unpack_from("<i", raw, table)[0])


def _field(raw: bytes | bytearray, table: int, number: int) -> int:
    return int(table + struct.unpack_from("<H", raw, _vtable(raw, table) + 4 + 2 * number)[0])


VALUE_BUFFER = sum(3 if pa.types.is_binary(field.type) else 2 for field in MUTATION_SCHEMA) - 1
"""Number of the buffer that holds the bytes of values."""
