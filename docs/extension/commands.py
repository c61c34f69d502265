"""The reference of commands: usage, help and options, from the commands themselves.

The input is the path of a command (``shell createtable``), the output is Markdown without headings. The outputs of
commands stand in the pages themselves; :mod:`tests.docs` records them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping

import click

from docs.extension.markdown import code, table
from shell.commands import commands as shell_commands
from shell.failures import ExitCode
from shell.main import bookkeeper

SHELL = "shell"
"""First word of a path to a command of the shell, which takes a cluster before the command."""


def leaves() -> Mapping[str, click.Command]:
    """Every command by its path: those of ``bookkeeper``, and those of its shell as ``shell NAME``."""
    found = dict(_leaves(bookkeeper, ""))
    return found | dict(_leaves(shell_commands, f"{SHELL} "))


def _leaves(group: click.Group, prefix: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _leaves(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


def command(path: str) -> str:
    """Usage, help and options of one command; raises ValueError."""
    found = leaves().get(path)
    if found is None:
        raise ValueError(f"no command {path}")
    context = click.Context(found, info_name=path.rpartition(" ")[2])
    usage = " ".join(part for part in found.collect_usage_pieces(context) if part != "[OPTIONS]")
    first, _, rest = path.partition(" ")
    place = f"bookkeeper shell DIR|QUORUM {rest}" if first == SHELL and rest else f"bookkeeper {path}"
    parts = [f"```text\n{place} [OPTIONS] {usage}\n```".replace("] \n", "]\n"), _help(found)]
    options = [_option(parameter) for parameter in found.params if isinstance(parameter, click.Option)]
    return "\n\n".join([*parts, table(("option", "meaning"), options)])


def _help(found: click.Command) -> str:
    text = inspect.cleandoc(found.help or "").replace("\\", "\\\\")
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _option(option: click.Option) -> list[str]:
    names = ", ".join(map(code, option.opts))
    value = "" if option.is_flag else f" {code(_metavar(option))}"
    meaning = (option.help or "").replace("\\", "\\\\")
    notes = ["required"] if option.required else []
    notes += ["repeatable"] if option.multiple else []
    if option.show_default and option.default is not None:
        notes.append(f"default {option.default}")
    return [names + value, " ".join(part for part in (meaning, f"({', '.join(notes)})" if notes else "") if part)]


def _metavar(option: click.Option) -> str:
    return option.metavar or option.make_metavar(click.Context(click.Command("any")))


def exit_codes(_: str) -> str:
    """Every exit code."""
    source = inspect.getsource(ExitCode)
    rows = []
    for known in ExitCode:
        _, _, after = source.partition(f"{known.name} = {known.value}\n")
        said = after.strip().split('"""')[1] if after.strip().startswith('"""') else "Done."
        rows.append([code(int(known)), " ".join(said.split()).replace("``", "`")])
    return table(("exit code", "meaning"), rows)
