"""A page of the documentation as a session: the commands of its console blocks, and their recorded output.

The module reads Markdown, gives the steps in the order of the page, and writes the page with other outputs. The *shape*
of an output has the same text for each part that differs from run to run (numbers, ids, addresses, times, widths).
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (*sorted((ROOT / "docs" / "commands").glob("*.md")), ROOT / "docs" / "quick-start.md")
"""Every page that is run."""

OPENING, CLOSING, PROMPT = "```console", "```", "$ "

_VOLATILE = (  # ids of tables have letters too: (id 1a, …), east:1a, the column before "online", a record's second word
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"\btoken=[\w-]{43}"), "token=<token>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?"), "<time>"),
    (re.compile(r"\b[a-z]+\d*-\d+-[0-9a-f]{8}\b"), "<session>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"\b0000[0-9a-f]{12}\b"), "<operation>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<incarnation>"),
    (re.compile(r"\b[0-9a-f]{16}\b"), "<secret>"),
    (re.compile(r"(?<=\(id )[0-9a-z]+(?=,)|(?<=:)[0-9a-z]{1,2}(?= )|(?<= )[0-9a-z]{1,2}(?= +online )"), "<n>"),
    (re.compile(r"^\d+  [0-9a-z]{1,2}(?=  )"), "<n> <n>"),
    (re.compile(r"\d[\d,]*(\.\d+)?"), "<n>"),
    (re.compile(r"\s+"), " "),
)
_TABLE_HEADER = re.compile(r"[A-Z][A-Z ]+")


@dataclass(frozen=True, slots=True)
class Step:
    """One command line, its place, and its recorded output."""

    line: int
    command: str
    output: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The command line, split at spaces."""
        return self.command.split()


def steps(text: str) -> list[Step]:
    """The session of a page; raises ValueError when a console block does not begin with a command."""
    found: list[Step] = []
    inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line == OPENING:
            inside, fresh = True, True
        elif inside and line == CLOSING:
            inside = False
        elif inside and line.startswith(PROMPT):
            found.append(Step(number, line.removeprefix(PROMPT), ()))
            fresh = False
        elif inside and fresh:
            raise ValueError(f"line {number}: a console block begins with a command: {PROMPT}…")
        elif inside:
            last = found[-1]
            found[-1] = Step(last.line, last.command, (*last.output, line))
    return found


def with_outputs(text: str, outputs: Sequence[Sequence[str]]) -> str:
    """The page with these outputs, one for each step."""
    made, inside, rest = [], False, iter(outputs)
    for line in text.splitlines():
        inside = line == OPENING or (inside and line != CLOSING)
        if not inside or line == OPENING:
            made.append(line)
        elif line.startswith(PROMPT):
            made += [line, *next(rest)]
    return "\n".join(made) + "\n"


def shape(lines: Sequence[str]) -> list[str]:
    """Lines without what differs from run to run; equal ones that follow each other are one."""
    found: list[str] = []
    for line in lines:
        plain = line.strip()
        for pattern, name in _VOLATILE:
            plain = pattern.sub(name, plain)
        if not found or found[-1] != plain:
            found.append(plain)
    return found


def same_shape(recorded: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether both say the same. A table may have other rows between those recorded: a cluster has more users."""
    wanted, given = shape(recorded), shape(printed)
    if wanted and wanted[:1] == given[:1] and _TABLE_HEADER.fullmatch(wanted[0]):
        rest = iter(given)
        return all(line in rest for line in wanted)
    return wanted == given
