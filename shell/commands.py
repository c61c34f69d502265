"""All commands of ``bookkeeper shell``, by name, with ``help``."""

from __future__ import annotations

import click

from shell import (
    data_commands,
    host_commands,
    operation_commands,
    replication_commands,
    session_commands,
    storage_commands,
    table_commands,
    tablet_commands,
    user_commands,
)
from shell.output import Output, Record
from shell.shell_session import Session, in_session


@click.group(name="shell", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def commands(as_json: bool) -> None:
    """Commands of the shell; COMMAND --help explains one."""


def _names(ctx: click.Context, parameter: click.Parameter, prefix: str) -> list[str]:
    """Commands that may follow the words of ``help`` before the cursor."""
    group: click.Command | None = commands
    for word in ctx.params.get(parameter.name or "") or ():
        group = group.commands.get(word) if isinstance(group, click.Group) else None
    return [name for name in group.commands if name.startswith(prefix)] if isinstance(group, click.Group) else []


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
        subcommands = found.commands if isinstance(found, click.Group) else {}
        if word not in subcommands:
            raise click.UsageError(f"No such command '{word}'", click.get_current_context())
        found = subcommands[word]
    output.result("", _command_record(found))


def _command_record(command: click.Command) -> Record:
    """A command as JSON: its help, its options, its subcommands."""
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
        "commands": [_command_record(subcommand) for subcommand in command.commands.values()]
        if isinstance(command, click.Group)
        else [],
    }


for _command in (
    *table_commands.COMMANDS,
    *storage_commands.COMMANDS,
    *user_commands.COMMANDS,
    *tablet_commands.COMMANDS,
    *host_commands.COMMANDS,
    *data_commands.COMMANDS,
    *replication_commands.COMMANDS,
    *operation_commands.COMMANDS,
    *session_commands.COMMANDS,
):
    commands.add_command(_command)
