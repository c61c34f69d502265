"""The typed classes and Protocols say exactly what the contract says."""

from __future__ import annotations

import inspect
import operator
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from bookkeeper.model import Extent
from bookkeeper.rpc.contract import services
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.contract.schema import TypeSpec, WireType, load_contract
from bookkeeper.rpc.contract.structs import STRUCTS

SCALARS = {WireType.BOOL: bool, WireType.I32: int, WireType.I64: int, WireType.DOUBLE: float}


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


def test_the_version_is_the_contracts() -> None:
    assert load_contract().version == PROTOCOL_VERSION


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_a_class_has_the_fields_of_its_struct(cls: type) -> None:
    hints = typing.get_type_hints(cls)
    declared = {name: hints[name] for name in cls.__struct_fields__}  # type: ignore[attr-defined]
    for spec in load_contract().structs[cls]:
        expected = _python_type(spec.type, tuple, Mapping)
        if not spec.required:
            expected = expected | None
        assert declared.pop(spec.name) == expected, spec.name
    assert not declared


@pytest.mark.parametrize("service", ["Node", "Master", "TServer", "Replay"])
def test_a_protocol_has_the_methods_of_its_service(service: str) -> None:
    protocol = getattr(services, service)
    contract = load_contract().services[service]
    declared = {n for n, m in inspect.getmembers(protocol, inspect.isfunction) if not n.startswith("_")}
    assert declared == set(contract) - {"hello"}
    for name in declared:
        spec = contract[name]
        hints = typing.get_type_hints(getattr(protocol, name))
        result = type(None) if spec.result is None else _python_type(spec.result, Sequence, Mapping)
        assert hints.pop("return") == result, name
        assert list(hints) == [argument.name for argument in spec.arguments], name
        assert list(hints.values()) == [_python_type(a.type, Sequence, Mapping) for a in spec.arguments], name


def test_every_struct_of_the_contract_has_a_class() -> None:
    assert {Extent, Hello} < set(load_contract().structs)
    assert len(STRUCTS) == len(set(STRUCTS)) == len(load_contract().structs)
