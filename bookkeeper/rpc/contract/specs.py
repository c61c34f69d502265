"""The form of the contract's tables: types, fields and methods; ``tables`` is made of them."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct


class WireType(IntEnum):
    """Type numbers of Thrift's binary protocol that the contract uses."""

    STOP = 0
    BOOL = 2
    BYTE = 3
    DOUBLE = 4
    I16 = 6
    I32 = 8
    I64 = 10
    STRING = 11
    STRUCT = 12
    MAP = 13
    SET = 14
    LIST = 15


class TypeSpec(Struct, frozen=True):
    """A type: scalar, text or binary, a list of ``element``, a map of ``key`` to ``element``, or a struct class."""

    wire: WireType
    binary: bool = False
    element: TypeSpec | None = None
    key: TypeSpec | None = None
    struct: type | None = None


class FieldSpec(Struct, frozen=True):
    """One field of a struct or one argument of a method."""

    number: int
    name: str
    type: TypeSpec
    required: bool


class MethodSpec(Struct, frozen=True):
    """One method. ``result`` None = void; ``oneway`` = the server sends no answer."""

    name: str
    arguments: tuple[FieldSpec, ...]
    result: TypeSpec | None
    oneway: bool = False


BOOL = TypeSpec(WireType.BOOL)
I32 = TypeSpec(WireType.I32)
I64 = TypeSpec(WireType.I64)
DOUBLE = TypeSpec(WireType.DOUBLE)
TEXT = TypeSpec(WireType.STRING)
BINARY = TypeSpec(WireType.STRING, binary=True)
"""Binary strings; on the wire they are like text."""


def list_of(element: TypeSpec) -> TypeSpec:
    """A list."""
    return TypeSpec(WireType.LIST, element=element)


def map_of(key: TypeSpec, element: TypeSpec) -> TypeSpec:
    """A map."""
    return TypeSpec(WireType.MAP, key=key, element=element)


def struct_of(cls: type) -> TypeSpec:
    """A struct of this class."""
    return TypeSpec(WireType.STRUCT, struct=cls)


def required(number: int, name: str, of: TypeSpec) -> FieldSpec:
    """A field without which a struct is refused."""
    return FieldSpec(number, name, of, required=True)


def optional(number: int, name: str, of: TypeSpec) -> FieldSpec:
    """A field that may be absent."""
    return FieldSpec(number, name, of, required=False)


def argument(number: int, name: str, of: TypeSpec) -> FieldSpec:
    """An argument of a method; the codec refuses a call without it."""
    return FieldSpec(number, name, of, required=False)


def by_name(*methods: MethodSpec) -> dict[str, MethodSpec]:
    """The methods by their names."""
    return {method.name: method for method in methods}
