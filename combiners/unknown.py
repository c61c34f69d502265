"""Unknown protobuf fields as a set, so that the fields of a newer version survive a merge by this version.

The merge is the set union in ascending order of (field number, wire type, value). So it is commutative, associative and
idempotent for any meaning of the fields. The newer version reads a singular number as the last value of the union,
which is the greatest; offsets and states merge so. It reads each repeated message once; barriers merge so. A version
that adds a field with another merge (a minimum) must read it as repeated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

UnknownField = tuple[int, int, Any]
"""Field number, wire type, and the value: int, bytes, or for a group the tuple of its fields."""

_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)


def unknown_fields(message: Message) -> tuple[UnknownField, ...]:
    """Unknown fields of ``message`` itself, not of its submessages, in wire order."""
    return _records(UnknownFieldSet(message))


def encode_fields(fields: Iterable[UnknownField]) -> bytes:
    """Wire form of ``fields`` in their order; parsing it returns the same fields."""
    return b"".join(
        _varint(number << 3 | wire_type) + _ENCODERS[wire_type](number, value) for number, wire_type, value in fields
    )


def _records(fields: UnknownFieldSet) -> tuple[UnknownField, ...]:
    return tuple(map(_record, (fields[index] for index in range(len(fields)))))


def _record(field: Any) -> UnknownField:
    value = _records(field.data) if field.wire_type == _GROUP else field.data
    return field.field_number, field.wire_type, value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ENCODERS: dict[int, Callable[[int, Any], bytes]] = {
    _VARINT: lambda _, value: _varint(value),
    _FIXED64: lambda _, value: struct.pack("<Q", value),
    _BYTES: lambda _, value: _varint(len(value)) + value,
    _GROUP: lambda number, value: encode_fields(value) + _varint(number << 3 | _GROUP_END),
    _FIXED32: lambda _, value: struct.pack("<I", value),
}
