"""Strict JSON for values that outlive a process: compact UTF-8 with sorted keys, and typed fields.

A missing, unknown, repeated or mistyped field raises CorruptionError, because a process that rewrites a value must not
drop fields that it does not support. Encoding raises InvalidInputError for a value that decoding would refuse. Pure.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bookkeeper.errors import CorruptionError, InvalidInputError

_T = TypeVar("_T")

INT_MAX = 2**63 - 1
"""Highest integer of a typed field."""


def encode_json(decode: Callable[[bytes], object], fields: dict[str, Any]) -> bytes:
    """JSON bytes that ``decode`` accepts; raises InvalidInputError."""
    try:
        raw = json.dumps(fields, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode()
        decode(raw)
    except (ValueError, TypeError, RecursionError, CorruptionError) as error:
        raise InvalidInputError(f"can't be written: {error}") from error
    return raw


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key is repeated")
    return fields


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def read_object(raw: bytes, what: str) -> dict[str, Any]:
    """A JSON object; ``what`` names it in the error. Raises CorruptionError."""
    try:
        parsed = json.loads(raw.decode(), object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)
        json.dumps(parsed, ensure_ascii=False).encode()  # a lone surrogate can't be written again
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"{what} is not JSON: {raw[:200]!r} ({error})") from error
    if not isinstance(parsed, dict):
        raise CorruptionError(f"{what} is not a JSON object: {raw[:200]!r}")
    return parsed


def read_fields(raw: bytes, what: str, *names: str) -> dict[str, Any]:
    """A JSON object with exactly these fields; raises CorruptionError."""
    fields = read_object(raw, what)
    check_names(fields, raw, what, *names)
    return fields


def check_names(fields: Mapping[str, Any], raw: bytes, what: str, *names: str) -> None:
    """Raise CorruptionError unless the object has exactly these fields."""
    if fields.keys() != set(names):
        raise CorruptionError(f"{what} has {', '.join(sorted(names))}, and no other field: {raw[:200]!r}")


def typed(fields: Mapping[Any, Any], name: object, kind: type[_T]) -> _T:
    """A field of exactly this type."""
    value = fields[name]
    if type(value) is not kind:
        raise CorruptionError(f"field {name} is {value!r}, not of type {kind.__name__}")
    return value


def text(fields: Mapping[Any, Any], name: object) -> str:
    """A text field."""
    return typed(fields, name, str)


def number(fields: Mapping[Any, Any], name: object, least: int = 0) -> int:
    """A whole number, from ``least`` to :data:`INT_MAX`."""
    value = typed(fields, name, int)
    if not least <= value <= INT_MAX:
        raise CorruptionError(f"field {name} is {value}, outside {least} to {INT_MAX}")
    return value


def mapping(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object field."""
    return typed(fields, name, dict)


def texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A list of texts."""
    found = dict(enumerate(typed(fields, name, list)))
    return tuple(text(found, index) for index in found)


def offsets(fields: Mapping[str, Any], name: str) -> dict[str, int]:
    """An object of whole numbers."""
    found = mapping(fields, name)
    return {key: number(found, key) for key in found}


def tuples(fields: Mapping[Any, Any], name: object, length: int) -> list[dict[int, Any]]:
    """The elements of a list of lists of that length, by index."""
    found = [dict(enumerate(typed({0: part}, 0, list))) for part in typed(fields, name, list)]
    if any(len(part) != length for part in found):
        raise CorruptionError(f"field {name} does not consist of lists of {length}")
    return found


def raw_bytes(fields: Mapping[Any, Any], name: object) -> bytes:
    """Bytes in canonical base64."""
    encoded = text(fields, name)
    try:
        raw = b64decode(encoded, validate=True)
    except ValueError as error:
        raise CorruptionError(f"field {name} is not base64: {encoded!r}") from error
    if b64encode(raw).decode() != encoded:
        raise CorruptionError(f"field {name} is not canonical base64: {encoded!r}")
    return raw
