"""What a tablet holds of each root, as its state says it: thousands of logs of few directories (rule R22).

By directory (instance, directory, table, as a root is encoded) and name: ``[last_ms, [[after, through, family,
runs]]]``; rows and family in base64 or null, runs as ``Runs.flat``. Some 60 bytes a log, and nothing is looked at twice
that is the same for all.

Arrives: parsed JSON, or what is held. Leaves: the other. Pure; raises CorruptionError.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from bookkeeper.errors import CorruptionError
from bookkeeper.metadata.strict_json import INT_MAX
from bookkeeper.model import RowRange
from bookkeeper.origins import Part, Root, RootIntervals, Runs


def encode_origin_intervals(held: Mapping[Root, RootIntervals]) -> dict[str, dict[str, list[Any]]]:
    """As described."""
    directories: dict[tuple[str, str, str], dict[str, list[Any]]] = {}
    for root, what in held.items():
        cut = root.file.rfind("/") + 1
        place = (root.instance_id, root.file[:cut], root.table_id)
        parts = [[*_rows(part.rows), _base64(part.family), part.runs.flat()] for part in what.parts]
        directories.setdefault(place, {})[root.file[cut:]] = [what.last_ms, parts]
    return {Root(*place).encode(): logs for place, logs in directories.items()}


def decode_origin_intervals(found: Mapping[str, Any]) -> dict[Root, RootIntervals]:
    """Inverse of :func:`encode_origin_intervals`; raises CorruptionError."""
    held: dict[Root, RootIntervals] = {}
    for key, logs in found.items():
        try:
            place = Root.decode(key)
            for name, (last_ms, parts) in logs.items():
                root = Root(place.instance_id, place.file + name, place.table_id)
                held[root] = RootIntervals(tuple(map(_part, parts)), _number(last_ms))
        except (ValueError, TypeError, AttributeError) as error:
            raise CorruptionError(f"not what is held of {key!r}: {error}") from error
    return held


def _part(encoded: list[Any]) -> Part:
    prev_row, end_row, family, flat = encoded
    return Part(_range(prev_row, end_row), _raw(family), Runs.from_flat([_number(given) for given in flat]))


def _number(given: object) -> int:
    if type(given) is not int or not 0 <= given <= INT_MAX:
        raise ValueError(f"{given!r} is no whole number from 0 to {INT_MAX}")
    return given


def _rows(rows: RowRange) -> tuple[str | None, str | None]:
    return _base64(rows.prev_row), _base64(rows.end_row)


@lru_cache(1_000)
def _range(prev_row: str | None, end_row: str | None) -> RowRange:
    return RowRange(_raw(prev_row), _raw(end_row))


def _base64(raw: bytes | None) -> str | None:
    return None if raw is None else b64encode(raw).decode()


def _raw(encoded: str | None) -> bytes | None:
    if encoded is None:
        return None
    raw = b64decode(encoded, validate=True)
    if b64encode(raw).decode() != encoded:
        raise ValueError(f"{encoded!r} is not canonical base64")
    return raw
