"""Markdown from plain facts.

The input is rows of text and docstrings, the output is tables and paragraphs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

_ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")
_LITERAL = re.compile(r"``([^`]+)``")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a bar inside a cell is escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(value: object) -> str:
    """A literal."""
    return f"`{value}`"


def doc(thing: object) -> str:
    """The docstring of a thing as Markdown, its paragraphs one line each."""
    text = _LITERAL.sub(r"`\1`", _ROLE.sub(r"`\1`", inspect.getdoc(thing) or ""))
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
