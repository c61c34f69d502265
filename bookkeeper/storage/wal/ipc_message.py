"""How large an Arrow IPC message becomes when it is read: asked before any memory is given to it.

Arrives: a message that Arrow has parsed, from a file or the network. Leaves: nothing, or an error for one that would
decompress to more than a batch may hold; a few kilobytes can announce a terabyte. Layout: Arrow columnar format,
"Compression" and the ``Message`` and ``RecordBatch`` tables of its flatbuffers schema.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from bookkeeper.errors import CorruptionError

BATCH_BYTES_MAX = 1 << 28
"""Above the largest block a writer makes, far below what a server has."""

_HEADER_FIELD = 2
_BUFFERS_FIELD = 2
_COMPRESSION_FIELD = 3
_UNCOMPRESSED = -1


def check_uncompressed(message: pa.Message) -> None:
    """Raise CorruptionError when the buffers of a record batch message decompress to more than ``BATCH_BYTES_MAX``."""
    if message.type != "record batch":
        raise CorruptionError(f"an IPC message of type {message.type!r} came where a record batch was due")
    flat = bytes(message.metadata)
    try:
        (root,) = struct.unpack_from("<I", flat, 0)
        batch = _child(flat, root, _HEADER_FIELD)
        if batch is None or _slot(flat, batch, _COMPRESSION_FIELD) is None:
            return
        size = _announced_bytes(flat, batch, message.body)
    except struct.error as error:
        raise CorruptionError(f"the metadata of an IPC message does not parse: {error}") from error
    if size > BATCH_BYTES_MAX:
        raise CorruptionError(f"a record batch announces {size} bytes, the limit is {BATCH_BYTES_MAX}")


def _announced_bytes(flat: bytes, batch: int, body: pa.Buffer) -> int:
    buffers = _child(flat, batch, _BUFFERS_FIELD)
    if buffers is None:
        return 0
    (count,) = struct.unpack_from("<I", flat, buffers)
    total = 0
    for index in range(count):
        offset, length = struct.unpack_from("<qq", flat, buffers + 4 + 16 * index)
        if length:
            (announced,) = struct.unpack_from("<q", body, offset)
            total += length if announced == _UNCOMPRESSED else abs(announced)
    return total


def _slot(flat: bytes, table: int, field: int) -> int | None:
    """Where a flatbuffers table keeps a field, None when it has none."""
    (back,) = struct.unpack_from("<i", flat, table)
    vtable = table - back
    (vtable_bytes,) = struct.unpack_from("<H", flat, vtable)
    entry = 4 + 2 * field
    if entry >= vtable_bytes:
        return None
    (relative,) = struct.unpack_from("<H", flat, vtable + entry)
    return table + relative if relative else None


def _child(flat: bytes, table: int, field: int) -> int | None:
    """Where the table or vector that a field refers to begins."""
    slot = _slot(flat, table, field)
    if slot is None:
        return None
    (relative,) = struct.unpack_from("<I", flat, slot)
    return int(slot + relative)
