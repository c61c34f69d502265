"""The tables are those of the contract, as another Thrift library reads it, and the classes have their fields."""

from __future__ import annotations

import inspect
import json
import operator
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.rpc.contract import services
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION
from bookkeeper.rpc.contract.specs import BINARY, FieldSpec, TypeSpec, WireType, list_of, map_of, struct_of
from bookkeeper.rpc.contract.tables import SERVICES, STRUCTS
from bookkeeper.rpc.frames.envelope import FRAME_HEADER, method_codec, read_start
from bookkeeper.rpc.frames.wire import Buffers, struct_reader, struct_writer
from tests.support.thrift_contract import thriftpy2_contract

SCALARS = {WireType.BOOL: bool, WireType.I32: int, WireType.I64: int, WireType.DOUBLE: float}
CLASSES = {cls.__name__: cls for cls in STRUCTS}
THEIR_BINARY = 18
"""thriftpy2's type of a binary string."""


# ---- the classes


def _python_type(spec: TypeSpec, sequence: Any, mapping: Any) -> Any:
    if spec.wire is WireType.STRING:
        return bytes if spec.binary else str
    if spec.wire is WireType.STRUCT:
        return spec.struct
    if spec.wire is WireType.LIST:
        assert spec.element is not None
        element: Any = _python_type(spec.element, tuple, mapping)
        return operator.getitem(sequence, (element, ...) if sequence is tuple else element)
    if spec.wire is WireType.MAP:
        assert spec.key is not None
        assert spec.element is not None
        return mapping[_python_type(spec.key, tuple, mapping), _python_type(spec.element, tuple, mapping)]
    return SCALARS[spec.wire]


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_a_class_has_the_fields_of_its_struct(cls: type) -> None:
    """Also a class of another module, which the contract only names."""
    declared = typing.get_type_hints(cls)
    for spec in STRUCTS[cls]:
        expected = _python_type(spec.type, tuple, Mapping)
        if not spec.required:
            expected = expected | None
        assert declared.pop(spec.name) == expected, spec.name
    assert not declared


@pytest.mark.parametrize("service", SERVICES)
def test_a_protocol_has_the_methods_of_its_service(service: str) -> None:
    protocol = getattr(services, service)
    declared = {n for n, m in inspect.getmembers(protocol, inspect.isfunction) if not n.startswith("_")}
    assert declared == set(SERVICES[service]) - {"hello"}
    for name in declared:
        spec = SERVICES[service][name]
        hints = typing.get_type_hints(getattr(protocol, name))
        result = type(None) if spec.result is None else _python_type(spec.result, Sequence, Mapping)
        assert hints.pop("return") == result, name
        expected = {one.name: _python_type(one.type, Sequence, Mapping) for one in spec.arguments}
        assert list(hints.items()) == list(expected.items()), name


# ---- the tables


def _their_fields(spec: Mapping[int, Any]) -> tuple[FieldSpec, ...]:
    return tuple(
        FieldSpec(number, entry[1], _their_type(entry[0], entry[2] if len(entry) > 3 else None), entry[-1])
        for number, entry in sorted(spec.items())
    )


def _their_type(kind: int, inner: Any) -> TypeSpec:
    def part(found: Any) -> TypeSpec:
        return _their_type(*found) if isinstance(found, tuple) else _their_type(found, None)

    if kind == THEIR_BINARY:
        return BINARY
    if kind == WireType.STRUCT:
        return struct_of(CLASSES[inner.__name__])
    if kind == WireType.LIST:
        return list_of(part(inner))
    if kind == WireType.MAP:
        return map_of(part(inner[0]), part(inner[1]))
    return TypeSpec(WireType(kind))


def test_another_library_reads_the_same_structs() -> None:
    module = thriftpy2_contract()
    theirs = {*module.__thrift_meta__["structs"], *module.__thrift_meta__["exceptions"]}
    assert {found.__name__ for found in theirs} == set(CLASSES)
    for name, cls in CLASSES.items():
        assert STRUCTS[cls] == _their_fields(getattr(module, name).thrift_spec), name
    assert module.PROTOCOL_VERSION == PROTOCOL_VERSION


def test_another_library_reads_the_same_methods() -> None:
    module = thriftpy2_contract()
    assert {found.__name__ for found in module.__thrift_meta__["services"]} == set(SERVICES)
    for service, methods in SERVICES.items():
        theirs = getattr(module, service)
        assert set(theirs.thrift_services) == set(methods)
        for name, spec in methods.items():
            result = getattr(theirs, f"{name}_result")
            returned = {found.number: found.type for found in _their_fields(result.thrift_spec)}
            assert spec.arguments == _their_fields(getattr(theirs, f"{name}_args").thrift_spec), name
            assert (spec.result, spec.oneway) == (returned.get(0), result.oneway), name


# ---- the bytes

RECORDED: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "recorded_messages.json").read_text())
"""Bytes that an earlier version of this protocol sent, in hex: each struct, each call and each answer."""


@pytest.mark.parametrize("name", RECORDED["structs"])
def test_recorded_structs_are_read_and_sent_as_they_were(name: str) -> None:
    raw = bytes.fromhex(RECORDED["structs"][name])
    value, end = struct_reader(CLASSES[name])(memoryview(raw), 0)
    out: Buffers = []
    struct_writer(CLASSES[name])(out, value)
    assert (b"".join(out), end) == (raw, len(raw))


def _frames(kind: str) -> Iterator[tuple[str, str, bytes]]:
    for name, raw in RECORDED[kind].items():
        service, _, method = name.partition(".")
        yield service, method, bytes.fromhex(raw)


def test_recorded_calls_are_read_and_sent_as_they_were() -> None:
    for service, method, raw in _frames("calls"):
        codec, frame = method_codec(service, method), memoryview(raw)[FRAME_HEADER.size :]
        start = read_start(frame)
        sent = b"".join(codec.call(start.sequence, codec.read_call(frame, start), 1 << 20))
        assert sent == raw, f"{service}.{method}"


def test_recorded_answers_are_read_and_sent_as_they_were() -> None:
    for service, method, raw in _frames("answers"):
        codec, frame = method_codec(service, method), memoryview(raw)[FRAME_HEADER.size :]
        sequence = read_start(frame).sequence
        sent = b"".join(codec.success(sequence, codec.read_answer(frame, sequence).result, 1 << 20))
        assert sent == raw, f"{service}.{method}"


def test_everything_that_was_recorded_is_still_in_the_contract() -> None:
    assert set(RECORDED["structs"]) <= set(CLASSES)
    methods = {f"{service}.{method}" for service, known in SERVICES.items() for method in known}
    assert set(RECORDED["calls"]) | set(RECORDED["answers"]) <= methods
