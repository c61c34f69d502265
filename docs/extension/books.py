"""The reference of the metadata table: rows, columns, ranks and values, each made by the function that makes it.

The input is the public functions and values of :mod:`bookkeeper.metadata.keys` and ``values``. The code itself makes
every example of the tables from :data:`SAMPLES`. A maker with an argument without a sample raises ValueError, which
ends the build; add a sample for it.
"""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, Column
from bookkeeper.model import BlockRange, PartialHighWater, RowRange, StreamKey, TargetKey
from bookkeeper.origins import Part, Root, RootIntervals, RootLog, Runs, root_of
from docs.extension.markdown import code, doc, table

_WAL = "wal/tserver-3-e41aed3c/000001.wal"
_STREAM = StreamKey("ff9fae57", _WAL, "1", "4", 2)

SAMPLES: Mapping[str, object] = {
    "table_id": "1",
    "end_row": b"m",
    "segment": "tables/1/t-0001/4294967297.geo.parquet",
    "wal": _WAL,
    "file": _WAL,
    "target": TargetKey("east", "4", "1", 2),
    "source_instance_id": "ff9fae57",
    "stream": _STREAM,
    "txid": "00c0ffee00c0ffee",
    "session_id": "tserver-3-e41aed3c",
    "order": "9f86d081884c7d65",
    "host": "host2",
    "session": "tserver-3-e41aed3c",
    "offset": 100,
    "needed": 100,
    "through": 100,
    "final": 100,
    "finished": 100,
    "serial": 3,
    "done": False,
    "epoch": 2,
    "number": 41,
    "first": 43,
    "log": RootLog("ff9fae57", _WAL),
    "instance_id": "c4b4d4d2",
}
"""The arguments of the examples, by name."""

_TABLET_FAMILIES = ("tablet", "location", "replica", "segment", "log", "repl")


_CONSTANTS: Mapping[Column, str] = {
    keys.PREV_ROW: "The beginning of the tablet: 0x00 for the first one, else 0x01 and the last row of the one before.",
    keys.DIR: "The directory of its segments, UTF-8.",
    keys.PARTS: "The directories of the tablets with replicas that were merged into this one, until enough hosts have "
    "linked their files.",
    keys.FLUSH: "The segments that count, and their records; see the values below.",
    keys.SERIAL: "Empty; its rank counts the holders, splits and merges that the row has had.",
    keys.LOCATION: "The session that serves the tablet; without an address no tserver may load it now.",
    keys.FATE_OP: "The kind and the arguments of an operation; written once.",
    keys.FATE_STEP: "The step that the operation has reached.",
    keys.FATE_REIGN: "In the row `~fate`, empty: the reign of its rank has taken over all earlier operations.",
    keys.ROOT_HERE: "Records of a log have come here, by any path; other paths may bring them again.",
    keys.HOME: "The host whose disk has the logs of the session; from the first log to the last one.",
    keys.HOME_ENDED: "Empty: the session ended in order, and each of its logs is sealed.",
    keys.OWNER: "The instance that owns the books, and their format; written once, by `init`.",
    keys.ROUND: "Empty; its rank counts how often a leader began to read all of the books.",
    keys.DEL: "The garbage collector may delete the file: its mark.",
}


def _makers(result: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Public functions of ``keys`` that return ``result``."""
    for name, function in vars(keys).items():
        own = inspect.isfunction(function) and function.__module__ == keys.__name__
        if own and not name.startswith(("_", "parse_")) and typing.get_type_hints(function)["return"] is result:
            yield name, function


def _example(function: Callable[..., Any]) -> Any:
    names = inspect.signature(function).parameters
    missing = [name for name in names if name not in SAMPLES]
    if missing:
        raise ValueError(f"{function.__name__}: add a sample of {', '.join(missing)} to docs/extension/books.py")
    return function(*(SAMPLES[name] for name in names))


def _shown(raw: bytes) -> str:
    return code(raw.decode())


def _column(column: Column) -> str:
    return code(f"{column.family}:{column.qualifier.decode()}")


def tablet_columns(_: str) -> str:
    """The row of a tablet, and its columns."""
    last = _shown(keys.tablet_row("1", None))
    rows = [["row", f"{_shown(_example(keys.tablet_row))}, {last}", doc(keys.tablet_row)]]
    rows += [["column", _column(column), _meaning(column)] for column in _constants(tablet=True)]
    rows += [["column", _column(_example(function)), doc(function)] for function in _column_makers(tablet=True)]
    return table(("", "example", "meaning"), rows)


def section_rows(_: str) -> str:
    """The rows outside tables, and their columns."""
    rows = [
        ["row", _shown(_example(function)), doc(function)]
        for name, function in _makers(bytes)
        if function is not keys.tablet_row and name.endswith("_row")
    ]
    rows += [["column", _column(column), _meaning(column)] for column in _constants(tablet=False)]
    rows += [["column", _column(_example(function)), doc(function)] for function in _column_makers(tablet=False)]
    rows += [["column", _column(_example(function).column), doc(function)] for _, function in _makers(CellKey)]
    return table(("", "example", "meaning"), rows)


def _meaning(column: Column) -> str:
    if column not in _CONSTANTS:
        raise ValueError(f"add the meaning of {_column(column)} to docs/extension/books.py")
    return _CONSTANTS[column]


def _constants(tablet: bool) -> Iterator[Column]:
    for column in vars(keys).values():
        if isinstance(column, Column) and _is_of_tablet(column) == tablet:
            yield column


def _is_of_tablet(column: Column) -> bool:
    return column.family in _TABLET_FAMILIES and column not in (keys.HOME, keys.HOME_ENDED)


def _column_makers(tablet: bool) -> Iterator[Callable[..., Any]]:
    for _, function in _makers(Column):
        if ("target" not in inspect.signature(function).parameters) == tablet:
            yield function


def ranks(_: str) -> str:
    """Every rank."""
    rows = []
    for name, function in _makers(int):
        arguments = ", ".join(f"{arg} {SAMPLES.get(arg)}" for arg in inspect.signature(function).parameters)
        rows.append([code(name), f"{arguments}: {_example(function):,}", doc(function)])
    return table(("rank", "example", "meaning"), rows)


def values_shown(_: str) -> str:
    """Every value that is JSON, with an example of its bytes."""
    parts = []
    for value in vars(values).values():
        if inspect.isclass(value) and issubclass(value, Struct) and value.__module__ == values.__name__:
            hints = typing.get_type_hints(value, vars(values) | {"Json": object})
            made = value(**{name: _sample(name, hints[name]) for name in value.__struct_fields__})
            parts.append(f"{doc(value)}\n\n```json\n{made.encode().decode()}\n```")  # type: ignore[attr-defined]
    return "\n\n".join(parts)


def _sample(name: str, hint: Any) -> object:
    """A value of a field's type; raises ValueError on an unknown type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _sample(name, next(kind for kind in arguments if kind is not type(None)))
    if origin is typing.Literal:
        return arguments[0]
    if origin is tuple:
        kinds = arguments[:1] if arguments[-1] is Ellipsis else arguments
        return tuple(_sample(name, kind) for kind in kinds)
    if origin in (dict, collections.abc.Mapping):
        return {_sample(f"{name}_key", arguments[0]): _sample(name, arguments[1])}
    plain: Mapping[object, object] = {
        int: 7,
        bool: True,
        str: _WAL if name in ("last_wals", "through_key") else SAMPLES.get(name, name),
        bytes: b"bern",
        object: "...",
        StreamKey: _STREAM,
        RowRange: RowRange(b"bern", b"zug"),
        PartialHighWater: PartialHighWater(RowRange(b"bern", b"zug"), 90),
        Root: root_of(_STREAM),
        RootIntervals: RootIntervals(
            (Part(RowRange(b"bern", b"zug"), None, Runs.of((1, 90), (101, 120))),), 1_700_000_000_000
        ),
        BlockRange: BlockRange(43, 60, 2_856, 4_344),
    }
    if hint not in plain:
        raise ValueError(f"{name}: add a sample of the type {hint} to docs/extension/books.py")
    return plain[hint]
