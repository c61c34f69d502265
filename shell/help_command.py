"""The command ``help`` of the shell, which lists its commands or explains one."""

from __future__ import annotations

import click

from shell.commands import commands
from shell.output import Output, Record
from shell.shell_session import Session, in_session


def _names(ctx: click.Context, parameter: click.Parameter, prefix: str) -> list[str]:
    """Commands that may follow the words of ``help`` before the cursor."""
    group: click.Command | None = commands
    for word in ctx.params.get(parameter.name or "") or ():
        group = group.commands.get(word) if isinstance(group, click.Group) else None
    return [name for name in group.commands if name.startswith(prefix)] if isinstance(group, click.Group) else []


@click.command(name="help")
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
