"""The reference of files and of the wire, from the modules that read and write them.

The input is names of modules and schemas, the output is Markdown.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator

import pyarrow as pa

from bookkeeper.errors import BookkeeperError, TransientError
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.storage.tablet.sorting.entries import ENTRY_SCHEMA
from bookkeeper.storage.wal.blocks import frame
from docs.extension.markdown import code, doc, table

_SCHEMAS = {"mutation": MUTATION_SCHEMA, "entry": ENTRY_SCHEMA}
_ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")


def docstring(module: str) -> str:
    """The docstring of a module as it stands, its tables included; raises ValueError."""
    if not module.startswith("bookkeeper."):
        raise ValueError(f"{module} is not a module of the project")
    text = _ROLE.sub(r"``\1``", inspect.getdoc(importlib.import_module(module)) or "")
    return f"```{{eval-rst}}\n{text}\n```"


def magic(_: str) -> str:
    """The first bytes of files and blocks, and the limits of a frame."""
    rows = [
        ["a log", code(frame.FILE_MAGIC.hex(" "))],
        ["a block", code(frame.BLOCK_MAGIC.hex(" "))],
        ["format version", code(frame.FORMAT_VERSION)],
        ["largest header", f"{frame.HEADER_BYTES_MAX:,} bytes"],
        ["largest payload", f"{frame.PAYLOAD_BYTES_MAX:,} bytes"],
    ]
    return table(("", ""), rows)


def schema(name: str) -> str:
    """An Arrow schema; raises ValueError."""
    if name not in _SCHEMAS:
        raise ValueError(f"no schema {name}, there are {', '.join(_SCHEMAS)}")
    fields: pa.Schema = _SCHEMAS[name]
    rows = [[code(field.name), code(field.type), "may be null" if field.nullable else ""] for field in fields]
    return table(("column", "Arrow type", ""), rows)


def errors(_: str) -> str:
    """Every error that crosses the wire, by its code."""
    rows = [
        [code(error.code), "yes" if issubclass(error, TransientError) else "no", doc(error)]
        for error in _classes(BookkeeperError)
    ]
    return table(("code", "worth trying again", "meaning"), rows)


def _classes(base: type[BookkeeperError]) -> Iterator[type[BookkeeperError]]:
    yield base
    for derived in base.__subclasses__():
        if derived.__module__ == BookkeeperError.__module__:
            yield from _classes(derived)
