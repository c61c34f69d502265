"""The one form of Arrow IPC message that holds mutations, checked before memory is allocated for it.

The check returns the number of records that a message announces and the bytes that its columns take decompressed, or
raises CorruptionError. A few kilobytes can announce a terabyte, older forms of the format hide their compression, and
columns that share bytes grow when they are copied. So a message must have the form that
:func:`bookkeeper.storage.wal.encode_batch` writes:

- metadata version 5, one record batch, no custom metadata, no dictionary, the columns of ``MUTATION_SCHEMA``;
- buffers ascend in the body, at multiples of eight bytes, and none shares a byte with another one;
- a compressed buffer announces the size that the number of records implies; only the bytes of binary columns are free;
- the message fills its bytes exactly.

A compressed buffer begins with its decompressed size. Arrow allocates so much, and refuses a buffer
that decompresses to more or to less. So this check bounds the memory that Arrow takes. Layout: Arrow columnar format,
"Serialization and Interprocess Communication", and ``Message.fbs``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa
from msgspec import Struct

from bookkeeper.errors import CorruptionError
from bookkeeper.model import MUTATION_SCHEMA

RECORDS_MAX = (1 << 31) - 2
"""Offsets of binary columns are 32 bits wide, and there is one more of them than records."""

_PREFIX = struct.Struct("<II")
_SIZE = struct.Struct("<q")
_CONTINUATION = 0xFFFFFFFF
_METADATA_V5 = 4
_RECORD_BATCH = b"\x03"
_ALIGNMENT = 8
_PADDING_MAX = 64
"""A writer may count the padding of a buffer, up to a multiple of this, as part of it."""
_STORED = -1
"""In place of a decompressed size: the buffer is not compressed."""
_CODECS = (0, 1)
"""LZ4 frame and Zstandard."""


_PARTS = tuple(
    (number, part, 1 if part == "validity" else width)
    for number, field in enumerate(MUTATION_SCHEMA)
    for width in [0 if pa.types.is_binary(field.type) else field.type.bit_width]
    for part in (("validity", "values") if width else ("validity", "offsets", "bytes"))
)
"""For each buffer of a message, in order: its column, its content, and the bits that a record takes in it."""

_NULLABLE = tuple(field.nullable for field in MUTATION_SCHEMA)
_FIELDS = struct.Struct("<5H")
_VTABLE_HEAD = 4
_NODES = struct.Struct(f"<I{2 * len(MUTATION_SCHEMA)}q")
_BUFFERS = struct.Struct(f"<I{2 * len(_PARTS)}q")


class MessageForm(Struct, frozen=True):
    """Sizes that a message announces; ``column_bytes``: of all its columns, decompressed."""

    records: int
    column_bytes: int
    is_compressed: bool


def read_form(message: memoryview) -> MessageForm:
    """Check the form of a message of mutations; reads its metadata and allocates nothing. Raises CorruptionError."""
    try:
        return _read_form(message)
    except struct.error as error:
        raise _bad(f"its metadata ends too early: {error}") from error


def _bad(reason: str) -> CorruptionError:
    return CorruptionError(f"no record batch of mutations as this version writes them: {reason}")


def _read_form(message: memoryview) -> MessageForm:
    continuation, metadata_bytes = _PREFIX.unpack_from(message)
    body_at = _PREFIX.size + metadata_bytes
    if continuation != _CONTINUATION or metadata_bytes % _ALIGNMENT or body_at > len(message):
        raise _bad(f"{len(message)} bytes do not begin like a message")
    flat = bytes(message[_PREFIX.size : body_at])
    length, nodes, buffers, compression, variadic = _fields(flat, _batch_at(flat, len(message) - body_at))
    records = _long(flat, length)
    if not 0 <= records <= RECORDS_MAX:
        raise _bad(f"{records} records")
    if variadic:
        raise _bad("it has columns of views")
    nulls = _null_counts(flat, nodes, records)
    is_compressed = _is_compressed(flat, compression)
    found = _buffers(flat, buffers, message[body_at:])
    if not is_compressed:  # Arrow checks the sizes of buffers that are there
        return MessageForm(records, len(message) - body_at, is_compressed=False)
    sizes = [_decompressed_bytes(message, body_at + offset, size) for offset, size in found]
    _check_sizes(sizes, records, nulls)
    return MessageForm(records, sum(sizes), is_compressed=True)


def _batch_at(flat: bytes, body_bytes: int) -> int:
    """The position of the record batch in the metadata of a message."""
    (root,) = struct.unpack_from("<I", flat)
    version, kind, header, body_length, custom = _fields(flat, root)
    if not version or struct.unpack_from("<h", flat, version)[0] != _METADATA_V5:
        raise _bad("the version of its metadata is not 5")
    if not kind or flat[kind : kind + 1] != _RECORD_BATCH or not header:
        raise _bad("it is a schema, or another message without records")
    if custom:
        raise _bad("it has custom metadata")
    announced = _long(flat, body_length)
    if announced != body_bytes:
        raise _bad(f"it announces a body of {announced} bytes and has {body_bytes}")
    return _target(flat, header)


def _null_counts(flat: bytes, field: int, records: int) -> list[int]:
    """Nulls of each column."""
    count, *longs = _NODES.unpack_from(flat, _target(flat, field)) if field else (0,)
    if count != len(MUTATION_SCHEMA) or longs[::2] != [records] * count:
        raise _bad(f"{count} columns, or columns of different length")
    nulls = longs[1::2]
    for column, number in enumerate(nulls):
        if number and not (_NULLABLE[column] and 0 < number <= records):
            raise _bad(f"column {MUTATION_SCHEMA.field(column).name!r} of a record batch holds {number} nulls")
    return nulls


def _is_compressed(flat: bytes, field: int) -> bool:
    if not field:
        return False
    codec, method, *_ = _fields(flat, _target(flat, field))
    for at, allowed in ((codec, _CODECS), (method, (0,))):
        if at and struct.unpack_from("<b", flat, at)[0] not in allowed:
            raise _bad("an unknown compression")
    return True


def _buffers(flat: bytes, field: int, body: memoryview) -> list[tuple[int, int]]:
    """Offset and length of each buffer; they lie one behind the other in the body."""
    count, *longs = _BUFFERS.unpack_from(flat, _target(flat, field)) if field else (0,)
    if count != len(_PARTS):
        raise _bad(f"{count} buffers")
    found = list(zip(longs[::2], longs[1::2], strict=True))
    end = 0
    for offset, length in found:
        if length < 0 or offset % _ALIGNMENT or not 0 <= offset - end < _PADDING_MAX:
            raise _bad(f"a buffer of {length} bytes at {offset}, behind {end}")
        end = offset + length
    if not 0 <= len(body) - end < _PADDING_MAX:
        raise _bad(f"its buffers end at {end}, in a body of {len(body)} bytes")
    return found


def _decompressed_bytes(message: memoryview, at: int, length: int) -> int:
    """The size that a buffer of a compressed message announces."""
    if not length:
        return 0
    if length < _SIZE.size:
        raise _bad(f"a compressed buffer of {length} bytes")
    (announced,) = _SIZE.unpack_from(message, at)
    if announced == _STORED:
        return length - _SIZE.size
    if announced < 0:
        raise _bad(f"a buffer announces {announced} bytes")
    return int(announced)


def _check_sizes(sizes: Sequence[int], records: int, nulls: Sequence[int]) -> None:
    """Raise CorruptionError unless each buffer has the size that the number of records implies."""
    for (column, part, bits), size in zip(_PARTS, sizes, strict=True):
        if part == "bytes" or (not size and (not records or (part == "validity" and not nulls[column]))):
            continue
        needed = 4 * (records + 1) if part == "offsets" else (records * bits + 7) // 8
        if not needed <= size < needed + _PADDING_MAX:
            name = MUTATION_SCHEMA.field(column).name
            raise _bad(f"{size} bytes of {part} in column {name!r} for {records} records")


def _fields(flat: bytes, table: int) -> Sequence[int]:
    """The positions of the first five fields of a table of the metadata; 0 = the table lacks the field."""
    (back,) = struct.unpack_from("<i", flat, table)
    vtable = table - back
    if vtable < 0:
        raise _bad("its metadata refers to bytes before it")
    (size,) = struct.unpack_from("<H", flat, vtable)
    if size >= _VTABLE_HEAD + _FIELDS.size:
        relative = _FIELDS.unpack_from(flat, vtable + _VTABLE_HEAD)
    else:
        count = max(0, size - _VTABLE_HEAD) // 2
        relative = (*struct.unpack_from(f"<{count}H", flat, vtable + _VTABLE_HEAD), *(0,) * (5 - count))
    return [table + place if place else 0 for place in relative]


def _target(flat: bytes, at: int) -> int:
    """The position of the table or vector to which the field at ``at`` refers."""
    return int(at + struct.unpack_from("<I", flat, at)[0])


def _long(flat: bytes, at: int) -> int:
    return int(struct.unpack_from("<q", flat, at)[0]) if at else 0
