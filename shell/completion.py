"""Completions of a line that a user types: complete words, each with its help.

Commands, options and choices come from click; names of tables and clusters from the types of parameters
(:mod:`shell.parameters`).
"""

from __future__ import annotations

import shlex

import click
from click.shell_completion import ShellComplete, split_arg_string
from msgspec import Struct

QUIT = ("exit", "quit")
"""Words that end the loop."""


class Candidate(Struct, frozen=True):
    """One possible word; it replaces the last ``replaced`` characters of the line."""

    word: str
    replaced: int
    help: str


def candidates(commands: click.Group, line: str, session: object) -> list[Candidate]:
    """Every word that may end ``line``; none inside quotes."""
    prefix = "" if not line or line[-1].isspace() else line.split()[-1]
    words = split_arg_string(line)
    if prefix and (not words or words[-1] != prefix):
        return []
    before = words[:-1] if prefix else words
    if any(word not in commands.commands for word in before[:1] if not word.startswith("-")):
        return []
    found = ShellComplete(commands, {"obj": session}, commands.name or "", "").get_completions(before, prefix)
    replaced = len(prefix.partition("=")[2]) if prefix.startswith("--") and "=" in prefix else len(prefix)
    result = [Candidate(shlex.quote(item.value), replaced, item.help or "") for item in found]
    if not before:
        result += [Candidate(word, replaced, "Leave the shell.") for word in QUIT if word.startswith(prefix)]
    return result
