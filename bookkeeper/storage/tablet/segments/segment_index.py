"""The index of a segment: a line for each row group, as bytes of one form.

Decoding accepts only the bytes that a writer makes of the same lines; other bytes are a ValueError. It takes no more
memory than the bytes themselves: nothing is compressed, and each length is checked before it is used. Pure.

::

    number of lines (4 bytes) | the columns of INDEX_SCHEMA one behind the other

A column of integers has its values. A column of bytes has its offsets, one more than lines and 4 bytes each, and then
the bytes. Numbers are little-endian.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa

from bookkeeper.storage.columns import binary_data, binary_offsets
from bookkeeper.storage.tablet.sorting.entries import ENTRY_SCHEMA, KEY_COLUMNS

_KEY_FIELDS = [ENTRY_SCHEMA.field(name).with_nullable(False) for name in KEY_COLUMNS]
INDEX_SCHEMA = pa.schema(
    [
        *(field.with_name(f"first_{field.name}") for field in _KEY_FIELDS),
        *(field.with_name(f"last_{field.name}") for field in _KEY_FIELDS),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("crc", pa.uint32(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
    ]
)
"""Keys of the first and the last entry of a row group, its bytes in the file, their CRC-32C, its number of entries."""

_COUNT = struct.Struct("<I")
_OFFSET_BYTES = 4


def encode_index(index: pa.RecordBatch) -> bytes:
    """The bytes of a batch of INDEX_SCHEMA."""
    parts = [_COUNT.pack(index.num_rows)]
    for field, column in zip(INDEX_SCHEMA, index.columns, strict=True):
        if pa.types.is_binary(field.type):
            offsets = binary_offsets(column)
            parts += [
                (offsets - offsets[0]).astype("<i4").tobytes(),
                bytes(binary_data(column)[offsets[0] : offsets[-1]]),
            ]
        else:
            values = column.to_numpy()
            parts.append(values.astype(values.dtype.newbyteorder("<")).tobytes())
    return b"".join(parts)


def decode_index(content: bytes) -> pa.RecordBatch:
    """Inverse of :func:`encode_index`. Raises ValueError."""
    if len(content) < _COUNT.size:
        raise ValueError("it has no number of lines")
    (count,) = _COUNT.unpack_from(content)
    at = _COUNT.size
    columns = []
    for field in INDEX_SCHEMA:
        if pa.types.is_binary(field.type):
            offsets = _part(content, at, _OFFSET_BYTES * (count + 1))
            size = _content_bytes(np.frombuffer(offsets, "<i4"))
            at += len(offsets)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(_part(content, at, size))]
        else:
            size = count * field.type.bit_width // 8
            buffers = [None, pa.py_buffer(_part(content, at, size))]
        at += size
        columns.append(pa.Array.from_buffers(field.type, count, buffers))
    if at != len(content):
        raise ValueError(f"{len(content) - at} bytes follow its {count} lines")
    return pa.RecordBatch.from_arrays(columns, schema=INDEX_SCHEMA)


def _part(content: bytes, start: int, size: int) -> bytes:
    part = content[start : start + size]
    if len(part) != size:
        raise ValueError(f"{size} bytes at {start} are not all there")
    return part


def _content_bytes(offsets: np.ndarray) -> int:
    if offsets[0] != 0 or bool((np.diff(offsets) < 0).any()):
        raise ValueError("the offsets of a column do not ascend from 0")
    return int(offsets[-1])
