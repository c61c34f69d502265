"""All commands of the shell, by name.

Arrives: words after ``bookkeeper shell DIR``. Leaves: one command of :mod:`shell.table_commands`,
:mod:`shell.storage_commands`, :mod:`shell.user_commands`, :mod:`shell.border_commands`, :mod:`shell.data_commands`,
:mod:`shell.operation_commands`, :mod:`shell.replication_commands` or :mod:`shell.session_commands` run over
:mod:`bookkeeper.client`.
"""

from __future__ import annotations

import click

from shell import (
    border_commands,
    data_commands,
    operation_commands,
    replication_commands,
    session_commands,
    storage_commands,
    table_commands,
    user_commands,
)
from shell.output import Output, Record
from shell.shell_session import Session, in_session


@click.group(name="shell", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print JSON, whatever the command.")
def commands(as_json: bool) -> None:
    """Commands of the shell; COMMAND --help tells more about one."""


def _names(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Commands that may follow the words of ``help`` so far."""
    group: click.Command | None = commands
    for word in ctx.params.get(parameter.name or "") or ():
        group = group.commands.get(word) if isinstance(group, click.Group) else None
    return [name for name in group.commands if name.startswith(begun)] if isinstance(group, click.Group) else []


@commands.command(name="help")
@click.argument("words", nargs=-1, metavar="[COMMAND]", shell_complete=_names)
@in_session
def show_help(session: Session, output: Output, words: tuple[str, ...]) -> None:
    """List the commands, or explain one."""
    if not output.as_json:
        commands.main([*words, "--help"], prog_name=commands.name, standalone_mode=False, obj=session)
        return
    found: click.Command = commands
    for word in words:
        known = found.commands if isinstance(found, click.Group) else {}
        if word not in known:
            raise click.UsageError(f"No such command '{word}'", click.get_current_context())
        found = known[word]
    output.done("", _described(found))


def _described(command: click.Command) -> Record:
    """A command for programs: its help, its parameters, the commands below it."""
    context = click.Context(command, info_name=command.name)
    return {
        "name": command.name,
        "help": " ".join((command.help or "").split()),
        "usage": " ".join(command.collect_usage_pieces(context)),
        "options": [
            {"names": option.opts, "required": option.required, "help": option.help}
            for option in command.params
            if isinstance(option, click.Option)
        ],
        "commands": [_described(below) for below in command.commands.values()]
        if isinstance(command, click.Group)
        else [],
    }


for _command in (
    *table_commands.COMMANDS,
    *storage_commands.COMMANDS,
    *user_commands.COMMANDS,
    *border_commands.COMMANDS,
    *data_commands.COMMANDS,
    *replication_commands.COMMANDS,
    *operation_commands.COMMANDS,
    *session_commands.COMMANDS,
):
    commands.add_command(_command)
