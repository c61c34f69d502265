r"""The words of a line that a user types, as in a Unix shell, except that ``\xHH`` stays: a byte of a name or value.

Spaces separate words. Single quotes keep everything; in double quotes a backslash protects a quote and a backslash.
Elsewhere a backslash protects the next character, unless that is an ``x``. A ``#`` at the beginning of a word begins a
comment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

_PARTS = re.compile(
    r"""
      (?P<blank>\s+)
    | '(?P<single>[^']*)'
    | "(?P<double>(?:[^"\\]|\\.)*)"
    | (?P<byte>\\x)
    | \\(?P<protected>.)
    | (?P<plain>[^\s'"\\]+)
    """,
    re.VERBOSE | re.DOTALL,
)

_IN_DOUBLE = re.compile(r'\\(["\\])')

_NEGATIVE = re.compile(r"-\.?[0-9]")
"""The beginning of a negative number."""


def split_words(line: str) -> list[str]:
    """The words of a line. Raises ValueError for a quote without its end, and for a backslash at the end."""
    words: list[str] = []
    word: str | None = None
    position = 0
    while position < len(line):
        if word is None and line[position] == "#":
            break
        part = _PARTS.match(line, position)
        if part is None:
            raise ValueError("No escaped character" if line[position] == "\\" else "No closing quotation")
        position = part.end()
        if part.lastgroup == "blank":
            words += [] if word is None else [word]
            word = None
        else:
            word = (word or "") + _content(part)
    return words if word is None else [*words, word]


def _content(part: re.Match[str]) -> str:
    if part.lastgroup == "byte":
        return "\\x"
    text = str(part[part.lastgroup or 0])
    return _IN_DOUBLE.sub(r"\1", text) if part.lastgroup == "double" else text


class CellCommand(click.Command):
    """A command about a cell, whose arguments may be negative numbers: ``-7.45`` is a value and no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        r"""See click; ``\x2d`` is a dash."""
        with_value = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }
        return super().parse_args(ctx, _protected(args, with_value))


def _protected(args: Sequence[str], with_value: set[str]) -> list[str]:
    """The arguments; the dash of a negative number that no option takes is a byte."""
    return [
        rf"\x2d{arg[1:]}" if _NEGATIVE.match(arg) and before not in with_value else arg
        for before, arg in zip(["", *args], args, strict=False)
    ]
