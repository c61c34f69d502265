"""A group of commands that imports a command's module only when that command runs.

``--help`` and completion of a group show the short help of the table, and import no command at all.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem


class LazyCommand(NamedTuple):
    """Where a command is, and the first sentences of its help; a test compares them with the command's."""

    module: str
    name: str
    help: str


class LazyCommands(MutableMapping[str, click.Command]):
    """The commands of a group by name; reading one imports it. Iteration imports nothing."""

    def __init__(self, table: Mapping[str, LazyCommand]) -> None:
        self.table = table
        self._added: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name in self._added:
            return self._added[name]
        entry = self.table[name]
        command: click.Command = getattr(importlib.import_module(entry.module), entry.name)
        return command

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._added[name] = command

    def __delitem__(self, name: str) -> None:
        del self._added[name]

    def __contains__(self, name: object) -> bool:
        return name in self._added or name in self.table

    def __iter__(self) -> Iterator[str]:
        return iter({**self._added, **self.table})

    def __len__(self) -> int:
        return len({**self._added, **self.table})

    def help_of(self, name: str, limit: int = 45) -> str:
        """The short help of a command, at most so many characters, without an import of those in the table."""
        listed = click.Command(name, help=self.table[name].help) if name in self.table else self._added[name]
        return listed.get_short_help_str(limit)


class LazyGroup(click.Group):
    """A group over :class:`LazyCommands`."""

    commands: LazyCommands

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their short help."""
        names = self.list_commands(ctx)
        limit = formatter.width - 6 - max(map(len, names))
        rows = [(name, self.commands.help_of(name, limit)) for name in names]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin so, then the options of the group."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=self.commands.help_of(name)) for name in names]
        return found + click.Command.shell_complete(self, ctx, incomplete)
