"""Unknown protobuf fields as a set: what a newer version wrote survives a merge made by this one.

Arrives: parsed messages. Leaves: their unknown fields as comparable records, and the bytes of a joined set.
The join is the set union, kept in ascending order of (field number, wire type, value). So it is commutative,
associative and idempotent whatever the fields mean, and the version that knows a field reads the union sensibly:
of a number set once it takes the last, which is the greatest, as offsets and states merge; of repeated
messages it sees each one once, as barriers merge. A field that must merge otherwise (a minimum) has to be
read as repeated by the version that adds it.
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
    """Unknown fields of ``message`` itself (not of its submessages) in wire order."""
    return _records(UnknownFieldSet(message))


def encode_fields(fields: Iterable[UnknownField]) -> bytes:
    """Wire form of ``fields`` in the order given; parsing it back gives the same fields."""
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
