"""What commands print: text for people, JSON for programs; the same facts in both.

Arrives: rows as plain dictionaries. Leaves: text or JSON on standard output. The output is an interface: keys of the
JSON form are stable. Bytes are shown, and read, as printable ASCII with ``\\xHH`` for everything else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import click
from rich.cells import cell_len

Record = Mapping[str, object]
"""What JSON can hold, by name."""

_GAP = "  "


def printable(raw: bytes) -> str:
    r"""Bytes as text: printable ASCII stays, everything else and the backslash become ``\xHH``."""
    return "".join(chr(b) if 0x20 <= b < 0x7F and b != 0x5C else f"\\x{b:02x}" for b in raw)


def parse_bytes(text: str) -> bytes:
    r"""Inverse of :func:`printable` for what a user types: UTF-8, with ``\xHH`` for single bytes."""
    first, *escaped = text.split("\\x")
    result = first.encode()
    for part in escaped:
        digits = part[:2]
        if len(digits) != 2 or not set(digits) <= set("0123456789abcdefABCDEF"):
            raise click.BadParameter(f"{text!r}: \\x must be followed by two hexadecimal digits")
        result += bytes.fromhex(digits) + part[2:].encode()
    return result


def utc(time_ms: int) -> str | None:
    """ISO 8601 with milliseconds; None for a time that is not set."""
    if not time_ms:
        return None
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Output:
    """Prints for one command; ``as_json`` is its ``--json`` switch."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def records(self, rows: Sequence[Record], columns: Sequence[str], empty: str) -> None:
        """A list: aligned columns (``empty`` when there is no row), or one JSON array."""
        if self.as_json:
            click.echo(json.dumps([dict(row) for row in rows]))
        elif not rows:
            click.echo(empty)
        else:
            for line in _aligned(rows, columns):
                click.echo(line)

    def done(self, text: str, facts: Record) -> None:
        """The end of a command that changed something: one line, or one JSON object."""
        self.line(facts, text)

    def warning(self, text: str, facts: Record) -> None:
        """What makes an answer weaker, on standard error: one line, or one JSON object."""
        click.echo(json.dumps({"warning": text, **facts}) if self.as_json else f"warning: {text}", err=True)

    def line(self, row: Record, text: str) -> None:
        """One element of a stream: a line of text, or one JSON object a line."""
        click.echo(json.dumps(dict(row)) if self.as_json else text)


def _aligned(rows: Sequence[Record], columns: Sequence[str]) -> list[str]:
    numeric = [all(_is_number(row.get(column)) for row in rows) for column in columns]
    lines = [[column.upper().replace("_", " ") for column in columns]]
    lines += [[_text(row.get(column)) for column in columns] for row in rows]
    widths = [max(cell_len(line[n]) for line in lines) for n in range(len(columns))]
    return [_GAP.join(_pad(*cell) for cell in zip(line, widths, numeric, strict=True)).rstrip() for line in lines]


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
