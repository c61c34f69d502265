"""What may stand at the end of a line that is being typed.

Arrives: the commands, and the line up to the cursor. Leaves: whole words, each with its help. Commands, options and
choices come from click; names of tables and clusters from the types of parameters (:mod:`shell.parameters`).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import click
from click.shell_completion import ShellComplete, split_arg_string

QUIT = ("exit", "quit")
"""Words that end the loop."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possible word; it takes the place of the last ``replaced`` characters of the line."""

    word: str
    replaced: int
    help: str


def candidates(commands: click.Group, line: str, session: object) -> list[Candidate]:
    """Every word that may stand at the end of ``line``; none inside quotes."""
    begun = "" if not line or line[-1].isspace() else line.split()[-1]
    words = split_arg_string(line)
    if begun and (not words or words[-1] != begun):
        return []
    before = words[:-1] if begun else words
    if any(word not in commands.commands for word in before[:1] if not word.startswith("-")):
        return []
    found = ShellComplete(commands, {"obj": session}, commands.name or "", "").get_completions(before, begun)
    replaced = len(begun.partition("=")[2]) if begun.startswith("--") and "=" in begun else len(begun)
    offered = [Candidate(shlex.quote(item.value), replaced, item.help or "") for item in found]
    if not before:
        offered += [Candidate(word, replaced, "Leave the shell.") for word in QUIT if word.startswith(begun)]
    return offered
