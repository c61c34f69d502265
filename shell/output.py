"""The output of commands: text for people, or JSON for programs with the same facts.

The keys of the JSON are an interface and stay. Commands print and read bytes as printable ASCII, with ``\\xHH`` for
all other bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import click
from rich.cells import cell_len

from shell import colours

Record = Mapping[str, object]
"""JSON values by their keys."""

_GAP = "  "


def printable(raw: bytes) -> str:
    r"""Bytes as text: printable ASCII stays; all other bytes and the backslash become ``\xHH``."""
    return "".join(chr(b) if 0x20 <= b < 0x7F and b != 0x5C else f"\\x{b:02x}" for b in raw)


def parse_bytes(text: str) -> bytes:
    r"""Typed text as bytes: UTF-8, and ``\xHH`` for a byte; inverse of :func:`printable`. Raises BadParameter."""
    first, *escaped = text.split("\\x")
    result = first.encode()
    for part in escaped:
        digits = part[:2]
        if len(digits) != 2 or not set(digits) <= set("0123456789abcdefABCDEF"):
            raise click.BadParameter(f"{text!r}: \\x must be followed by two hexadecimal digits")
        result += bytes.fromhex(digits) + part[2:].encode()
    return result


def utc(time_ms: int) -> str | None:
    """Milliseconds since 1970 as ISO 8601; None for 0, an unset time."""
    if not time_ms:
        return None
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Output:
    """The printer of one command; ``as_json`` is its option ``--json``."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def records(self, rows: Sequence[Record], columns: Sequence[str], empty: str) -> None:
        """Print a list: aligned columns (``empty`` without a row), or one JSON array."""
        if self.as_json:
            click.echo(json.dumps([dict(row) for row in rows]))
        elif not rows:
            click.echo(empty)
        else:
            for line in aligned(rows, columns, colours.are_wanted()):
                click.echo(line)

    def result(self, text: str, facts: Record) -> None:
        """Print the result of a command: one line, or one JSON object."""
        self.line(facts, text)

    def warning(self, text: str, facts: Record) -> None:
        """Print a limit of the answer on standard error: one line, or one JSON object."""
        click.echo(json.dumps({"warning": text, **facts}) if self.as_json else f"warning: {text}", err=True)

    def line(self, row: Record, text: str) -> None:
        """Print one element of a stream: a line of text, or one JSON object a line."""
        click.echo(json.dumps(dict(row)) if self.as_json else text)


def aligned(rows: Sequence[Record], columns: Sequence[str], is_coloured: bool) -> list[str]:
    """The lines of a table: a head, and a line for each row. Colours change no place of a column."""
    numeric = [all(_is_number(row.get(column)) for row in rows) for column in columns]
    lines = [[column.upper().replace("_", " ") for column in columns]]
    lines += [[_text(row.get(column)) for column in columns] for row in rows]
    widths = [max(cell_len(line[n]) for line in lines) for n in range(len(columns))]
    found = [[_pad(*cell) for cell in zip(line, widths, numeric, strict=True)] for line in lines]
    if is_coloured:
        found[1:] = [list(map(_painted, columns, line)) for line in found[1:]]
    return [_GAP.join(line).rstrip() for line in found]


def _painted(column: str, cell: str) -> str:
    word = cell.strip()
    colour = colours.of_cell(column, word)
    return cell if colour is None else cell.replace(word, colours.painted(word, colour))


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _pad(text: str, width: int, right: bool) -> str:
    padding = " " * (width - cell_len(text))
    return padding + text if right else text + padding


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in value.items()) or "-"
    return str(value)
