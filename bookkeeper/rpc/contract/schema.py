"""The wire contract as data: ``bookkeeper.thrift`` parsed by thriftpy2 and bound to the classes of ``messages``.

It has the fields of every struct, and the arguments and the result of every method, and whether the method is oneway.
This is the only module that imports thriftpy2.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import thriftpy2
from msgspec import Struct

from bookkeeper.rpc.contract.structs import STRUCTS


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


_TTYPE_BINARY = 18
"""thriftpy2's type of a binary string; on the wire text and binary are STRING."""


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
    oneway: bool


class Contract(Struct, frozen=True):
    """Structs by class, services by name with their methods by name (inherited ones included)."""

    version: int
    structs: Mapping[type, tuple[FieldSpec, ...]]
    services: Mapping[str, Mapping[str, MethodSpec]]


@functools.cache
def load_contract() -> Contract:
    """Parse and bind the contract, once in a process."""
    module = thriftpy2.load(str(Path(__file__).with_name("bookkeeper.thrift")), module_name="bookkeeper_thrift")
    classes = {cls.__name__: cls for cls in STRUCTS}
    structs = {cls: _fields(getattr(module, cls.__name__).thrift_spec, classes) for cls in STRUCTS}
    services = {service.__name__: _methods(service, classes) for service in module.__thrift_meta__["services"]}
    return Contract(module.PROTOCOL_VERSION, MappingProxyType(structs), MappingProxyType(services))


def _fields(spec: Mapping[int, Any], classes: Mapping[str, type]) -> tuple[FieldSpec, ...]:
    fields = []
    for number, entry in spec.items():
        sub = entry[2] if len(entry) > 3 else None
        fields.append(FieldSpec(number, entry[1], _type(entry[0], sub, classes), entry[-1]))
    return tuple(fields)


def _type(ttype: int, sub: Any, classes: Mapping[str, type]) -> TypeSpec:
    def inner(part: Any) -> TypeSpec:
        return _type(part[0], part[1], classes) if isinstance(part, tuple) else _type(part, None, classes)

    if ttype == _TTYPE_BINARY:
        return TypeSpec(WireType.STRING, binary=True)
    if ttype == WireType.STRUCT:
        return TypeSpec(WireType.STRUCT, struct=classes[sub.__name__])
    if ttype == WireType.LIST:
        return TypeSpec(WireType.LIST, element=inner(sub))
    if ttype == WireType.MAP:
        return TypeSpec(WireType.MAP, key=inner(sub[0]), element=inner(sub[1]))
    return TypeSpec(WireType(ttype))


def _methods(service: Any, classes: Mapping[str, type]) -> Mapping[str, MethodSpec]:
    methods = {}
    for name in service.thrift_services:
        arguments = _fields(getattr(service, f"{name}_args").thrift_spec, classes)
        result = getattr(service, f"{name}_result")
        returned = {spec.number: spec.type for spec in _fields(result.thrift_spec, classes)}
        methods[name] = MethodSpec(name, arguments, returned.get(0), result.oneway)
    return MappingProxyType(methods)
