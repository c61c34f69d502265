"""Thrift's strict binary protocol for the contract: values to buffers, buffers to values.

A writer appends a value to buffers and does not copy large binary fields. A reader returns values that share no memory
with the frame, whose memory is reused; the fields of :data:`LENT_FIELDS` alone are views of it. A reader trusts no
frame: it compares every length with the bytes that are there before it allocates memory, limits nesting, skips unknown
fields and refuses a frame without a required field. A frame that does not parse is
:class:`bookkeeper.errors.CorruptionError`, a value that can't be encoded InvalidInputError.
"""

from __future__ import annotations

import functools
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bookkeeper.errors import CorruptionError, InvalidInputError
from bookkeeper.rpc.contract.specs import FieldSpec, TypeSpec, WireType
from bookkeeper.rpc.contract.tables import STRUCTS

Buffers = list[bytes | memoryview]
Writer = Callable[[Buffers, Any], None]
Reader = Callable[[memoryview, int], tuple[Any, int]]

LARGE_BYTES = 64 * 1024
"""Below this size a ``bytes`` object costs less."""

LARGE_FIELDS = frozenset({"records", "content"})
"""Fields of the contract whose users accept any buffer: a large value is a view of the copy, not ``bytes``."""

LENT_FIELDS = frozenset({("SegmentTransit", "content")})
"""Fields whose users are done with them before the answer: a value is a view of the frame, valid until then."""

DEPTH_MAX = 16
"""Nesting that :func:`skip_value` follows; the contract needs five."""

_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_F64 = struct.Struct(">d")
_FIELD = struct.Struct(">bh")
_LIST = struct.Struct(">bi")
_MAP = struct.Struct(">bbi")

_FIXED = {WireType.I16: _I16, WireType.I32: _I32, WireType.I64: _I64, WireType.DOUBLE: _F64, WireType.BYTE: _I8}
_WIDTH = {WireType.BOOL: 1, **{wire: packer.size for wire, packer in _FIXED.items()}}
_EMPTY_WIDTH = {**_WIDTH, WireType.STRING: 4, WireType.STRUCT: 1, WireType.LIST: 5, WireType.SET: 5, WireType.MAP: 6}


def _broken(reason: str) -> CorruptionError:
    return CorruptionError(f"a message does not parse: {reason}")


def _end_of(view: memoryview, at: int, size: int) -> int:
    """The end of ``size`` bytes from ``at``; raises CorruptionError when the frame ends before."""
    end = at + size
    if size < 0 or end > len(view):
        raise _broken(f"{size} bytes expected, {len(view) - at} there")
    return end


# ---- writing


def writer_of(spec: TypeSpec) -> Writer:
    """A function that appends a value of this type to the buffers."""
    if spec.wire is WireType.STRING:
        return _write_binary if spec.binary else _write_text
    if spec.wire is WireType.LIST and spec.element is not None:
        return _list_writer(spec.element)
    if spec.wire is WireType.MAP and spec.key is not None and spec.element is not None:
        return _map_writer(spec.key, spec.element)
    if spec.wire is WireType.STRUCT and spec.struct is not None:
        return struct_writer(spec.struct)
    if spec.wire is WireType.BOOL:
        return lambda out, value: out.append(b"\x01" if value else b"\x00")
    pack = _FIXED[spec.wire].pack
    return lambda out, value: out.append(pack(value))


def _write_text(out: Buffers, value: str) -> None:
    raw = value.encode()
    out.append(_I32.pack(len(raw)))
    out.append(raw)


def _write_binary(out: Buffers, value: bytes) -> None:
    view = memoryview(value).cast("B")  # any buffer will do, an Arrow one too
    out.append(_I32.pack(len(view)))
    out.append(view)


def _list_writer(element: TypeSpec) -> Writer:
    write, wire = writer_of(element), int(element.wire)

    def write_list(out: Buffers, values: Any) -> None:
        out.append(_LIST.pack(wire, len(values)))
        for value in values:
            write(out, value)

    return write_list


def _map_writer(key: TypeSpec, element: TypeSpec) -> Writer:
    write_key, write_element, wires = writer_of(key), writer_of(element), (int(key.wire), int(element.wire))

    def write_map(out: Buffers, values: Mapping[Any, Any]) -> None:
        out.append(_MAP.pack(*wires, len(values)))
        for name, value in values.items():
            write_key(out, name)
            write_element(out, value)

    return write_map


@functools.cache
def struct_writer(cls: type) -> Writer:
    """A function that appends a struct of the contract."""
    fields = STRUCTS[cls]
    return fields_writer(fields, [operator.attrgetter(spec.name) for spec in fields])


def fields_writer(fields: Sequence[FieldSpec], getters: Sequence[Callable[[Any], Any]]) -> Writer:
    """A function that appends fields and the stop byte; each getter reads a field of the value, None = absent."""
    plan = [
        (spec.name, spec.required, _FIELD.pack(spec.type.wire, spec.number), get, writer_of(spec.type))
        for spec, get in zip(fields, getters, strict=True)
    ]

    def write_fields(out: Buffers, value: Any) -> None:
        for name, required, header, get, write in plan:
            member = get(value)
            if member is None:
                if required:
                    raise InvalidInputError(f"{name} is missing in {type(value).__name__}")
                continue
            out.append(header)
            try:
                write(out, member)
            except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
                raise InvalidInputError(f"{name} of {type(value).__name__} can't be sent: {error}") from error
        out.append(b"\x00")

    return write_fields


# ---- reading


def reader_of(spec: TypeSpec) -> Reader:
    """A function that reads a value of this type at a position and returns it with the position of its end."""
    if spec.wire is WireType.STRING:
        return _read_binary if spec.binary else _read_text
    if spec.wire is WireType.LIST and spec.element is not None:
        return _list_reader(spec.element)
    if spec.wire is WireType.MAP and spec.key is not None and spec.element is not None:
        return _map_reader(spec.key, spec.element)
    if spec.wire is WireType.STRUCT and spec.struct is not None:
        return struct_reader(spec.struct)
    if spec.wire is WireType.BOOL:
        return _read_bool
    return _fixed_reader(_FIXED[spec.wire])


def _fixed_reader(packer: struct.Struct) -> Reader:
    def read_fixed(view: memoryview, at: int) -> tuple[Any, int]:
        end = _end_of(view, at, packer.size)
        return packer.unpack_from(view, at)[0], end

    return read_fixed


def _read_bool(view: memoryview, at: int) -> tuple[bool, int]:
    return view[at : _end_of(view, at, 1)].tobytes() != b"\x00", at + 1


def _read_binary(view: memoryview, at: int) -> tuple[bytes, int]:
    start = _end_of(view, at, 4)
    end = _end_of(view, start, _I32.unpack_from(view, at)[0])
    return bytes(view[start:end]), end


def own_copy(view: memoryview) -> bytes | memoryview:
    """A copy of the bytes; a large one is a read-only view of Arrow's memory.

    A tserver's allocator retains freed pages, and a fresh page costs more than the copy of its bytes. Other threads run
    meanwhile.
    """
    if len(view) < LARGE_BYTES:
        return bytes(view)
    memory = pa.allocate_buffer(len(view))
    np.copyto(np.frombuffer(memory, np.uint8), np.frombuffer(view, np.uint8))
    return memoryview(memory).cast("B").toreadonly()


def _read_lent(view: memoryview, at: int) -> tuple[memoryview, int]:
    start = _end_of(view, at, 4)
    end = _end_of(view, start, _I32.unpack_from(view, at)[0])
    return view[start:end].toreadonly(), end


def _read_large(view: memoryview, at: int) -> tuple[bytes | memoryview, int]:
    start = _end_of(view, at, 4)
    end = _end_of(view, start, _I32.unpack_from(view, at)[0])
    return own_copy(view[start:end]), end


def _read_text(view: memoryview, at: int) -> tuple[str, int]:
    raw, end = _read_binary(view, at)
    try:
        return raw.decode(), end
    except UnicodeDecodeError:
        raise _broken("text that is not UTF-8") from None


def _count(view: memoryview, at: int, count: int, width: int) -> int:
    """Check that ``count`` elements of at least ``width`` bytes can follow at ``at``."""
    if count < 0 or count * width > len(view) - at:
        raise _broken(f"{count} elements expected, {len(view) - at} bytes there")
    return count


def _list_reader(element: TypeSpec) -> Reader:
    read, wire = reader_of(element), element.wire

    def read_list(view: memoryview, at: int) -> tuple[tuple[Any, ...], int]:
        end = _end_of(view, at, _LIST.size)
        found, count = _LIST.unpack_from(view, at)
        if found != wire:
            raise _broken(f"a list of type {found}, expected {int(wire)}")
        values = []
        for _ in range(_count(view, end, count, _EMPTY_WIDTH[wire])):
            value, end = read(view, end)
            values.append(value)
        return tuple(values), end

    return read_list


def _map_reader(key: TypeSpec, element: TypeSpec) -> Reader:
    read_key, read_element = reader_of(key), reader_of(element)

    def read_map(view: memoryview, at: int) -> tuple[dict[Any, Any], int]:
        end = _end_of(view, at, _MAP.size)
        *found, count = _MAP.unpack_from(view, at)
        if count and found != [key.wire, element.wire]:
            raise _broken(f"a map of types {found}")
        values = {}
        for _ in range(_count(view, end, count, _EMPTY_WIDTH[key.wire] + _EMPTY_WIDTH[element.wire])):
            name, end = read_key(view, end)
            values[name], end = read_element(view, end)
        return values, end

    return read_map


@functools.cache
def struct_reader(cls: type) -> Reader:
    """A function that reads a struct of the contract."""
    return fields_reader(STRUCTS[cls], cls.__name__, lambda members: cls(**members))


def _field_reader(spec: FieldSpec, name: str) -> Reader:
    if (name, spec.name) in LENT_FIELDS:
        return _read_lent
    if spec.name in LARGE_FIELDS and spec.type.wire is WireType.STRING and spec.type.binary:
        return _read_large
    return reader_of(spec.type)


def fields_reader(fields: Sequence[FieldSpec], name: str, make: Callable[[dict[str, Any]], Any]) -> Reader:
    """A function that reads a struct: known fields by number and type, others skipped, absent optional ones None."""
    plan = {spec.number: (spec.name, int(spec.type.wire), _field_reader(spec, name)) for spec in fields}
    absent: dict[str, Any] = {spec.name: None for spec in fields}
    required = [spec.name for spec in fields if spec.required]

    def read_fields(view: memoryview, at: int) -> tuple[Any, int]:
        members = absent.copy()
        while True:
            _end_of(view, at, 1)
            wire = view[at]
            if wire == WireType.STOP:
                break
            at = _end_of(view, at, _FIELD.size)
            planned = plan.get(_I16.unpack_from(view, at - 2)[0])
            if planned is None or planned[1] != wire:
                at = skip_value(view, at, wire, DEPTH_MAX)
            else:
                members[planned[0]], at = planned[2](view, at)
        for member in required:
            if members[member] is None:
                raise _broken(f"{member} is missing in {name}")
        return make(members), at + 1

    return read_fields


def skip_value(view: memoryview, at: int, wire: int, depth: int) -> int:
    """The end of the value of any type at ``at``; raises CorruptionError."""
    if wire in _WIDTH:
        return _end_of(view, at, _WIDTH[WireType(wire)])
    if depth == 0:
        raise _broken("nested too deeply")
    if wire == WireType.STRING:
        start = _end_of(view, at, 4)
        return _end_of(view, start, _I32.unpack_from(view, at)[0])
    if wire == WireType.STRUCT:
        return _skip_struct(view, at, depth)
    if wire in (WireType.LIST, WireType.SET):
        end = _end_of(view, at, _LIST.size)
        inner, count = _LIST.unpack_from(view, at)
        return _skip_elements(view, end, [inner], count, depth)
    if wire == WireType.MAP:
        end = _end_of(view, at, _MAP.size)
        *inners, count = _MAP.unpack_from(view, at)
        return _skip_elements(view, end, inners, count, depth)
    raise _broken(f"unknown type {wire}")


def _skip_struct(view: memoryview, at: int, depth: int) -> int:
    while True:
        end = _end_of(view, at, 1)
        wire = view[at]
        if wire == WireType.STOP:
            return end
        at = skip_value(view, _end_of(view, at, _FIELD.size), wire, depth - 1)


def _skip_elements(view: memoryview, at: int, inners: list[int], count: int, depth: int) -> int:
    if count == 0:
        return at
    if all(inner in _WIDTH for inner in inners):
        return _end_of(view, at, count * sum(_WIDTH[WireType(inner)] for inner in inners))
    for _ in range(_count(view, at, count, len(inners))):
        for inner in inners:
            at = skip_value(view, at, inner, depth - 1)
    return at
