"""The JSON form of a tablet's origin intervals: thousands of logs in few directories (rule R22).

By directory (instance, directory, table, as a root is encoded) and name: ``[last_ms, [[after, through, family,
runs]]]``; rows and family in base64 or null, runs as ``Runs.flat``. A log takes about 60 bytes. Pure; raises
CorruptionError.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from bookkeeper.errors import CorruptionError
from bookkeeper.model import RowRange
from bookkeeper.origins import Part, Root, RootIntervals, Runs
from bookkeeper.strict_json import INT_MAX


def encode_origin_intervals(origin_intervals: Mapping[Root, RootIntervals]) -> dict[str, dict[str, list[Any]]]:
    """The JSON object of a tablet's origin intervals."""
    directories: dict[tuple[str, str, str], dict[str, list[Any]]] = {}
    for root, intervals in origin_intervals.items():
        cut = root.file.rfind("/") + 1
        directory = (root.instance_id, root.file[:cut], root.table_id)
        parts = [[*_rows(part.rows), _base64(part.family), part.runs.flat()] for part in intervals.parts]
        directories.setdefault(directory, {})[root.file[cut:]] = [intervals.last_ms, parts]
    return {Root(*directory).encode(): logs for directory, logs in directories.items()}


def decode_origin_intervals(found: Mapping[str, Any]) -> dict[Root, RootIntervals]:
    """Inverse of :func:`encode_origin_intervals`; raises CorruptionError."""
    origin_intervals: dict[Root, RootIntervals] = {}
    for key, logs in found.items():
        try:
            directory = Root.decode(key)
            for name, (last_ms, parts) in logs.items():
                root = Root(directory.instance_id, directory.file + name, directory.table_id)
                origin_intervals[root] = RootIntervals(tuple(map(_part, parts)), _number(last_ms))
        except (ValueError, TypeError, AttributeError) as error:
            raise CorruptionError(f"not origin intervals of {key!r}: {error}") from error
    return origin_intervals


def _part(encoded: list[Any]) -> Part:
    prev_row, end_row, family, flat = encoded
    return Part(_range(prev_row, end_row), _raw(family), Runs.from_flat([_number(value) for value in flat]))


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= INT_MAX:
        raise ValueError(f"{value!r} is no whole number from 0 to {INT_MAX}")
    return value


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
