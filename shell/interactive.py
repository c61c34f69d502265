"""The shell's loop: one command from the command line, or commands line by line.

On a terminal an error or Ctrl-C ends one command, and the loop continues. In a script the first failing command ends
the loop with its exit code, so that no later command runs on a wrong base.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click

from bookkeeper.security.access import CredentialFiles
from shell.commands import commands
from shell.completion import QUIT
from shell.failures import ExitCode, one_line, run
from shell.shell_session import Session
from shell.words import split_words

SHELL_OPTIONS = ("--secret-file", "--tls-ca", "--tls-certificate")
"""Options of ``bookkeeper shell`` that no command has."""


def run_words(cluster: str, words: list[str], as_json: bool, credentials: CredentialFiles | None = None) -> int:
    """Run one command, or the loop without a command, and return the exit code. Raises UsageError when an option stands
    where the command does.
    """
    if words and words[0].startswith("-") and words[0].partition("=")[0] in SHELL_OPTIONS:
        raise click.UsageError(f"options stand before {cluster}: bookkeeper shell {words[0]} ... {cluster}")
    with Session(cluster, as_json, credentials) as session:
        if words:
            return run_command(session, words)
        if not sys.stdin.isatty():
            return _loop(session, sys.stdin, stop_at_error=True)
        # Imported here, because the import takes longer than many commands.
        from shell.terminal import terminal_lines

        return _loop(session, terminal_lines(commands, session), stop_at_error=False)


def _loop(session: Session, lines: Iterable[str], stop_at_error: bool) -> int:
    for line in lines:
        try:
            words = split_words(line)
        except ValueError as error:
            problem = f"{error}: {line.strip()}; quote it, or write \\x27 and \\x22 for quotes"
            click.echo(f"error: {one_line(problem, [line])}", err=True)
            code = int(ExitCode.USAGE)
        else:
            if words and words[0] in QUIT:
                break
            code = run_command(session, words) if words else ExitCode.OK
        if code != ExitCode.OK and stop_at_error:
            return code
    return ExitCode.OK


def run_command(session: Session, words: list[str]) -> int:
    """Run one command of the shell and return its exit code."""
    defaults = None if session.table is None else table_defaults(commands, session.table)
    return run(commands, words, session, session.as_json or "--json" in words, defaults)


def table_defaults(group: click.Group, table: str) -> dict[str, object]:
    """Click's default map with ``table`` for each command of a group that requires a table."""
    defaults: dict[str, object] = {}
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            defaults[name] = table_defaults(command, table)
        elif any(parameter.name == "table" and parameter.required for parameter in command.params):
            defaults[name] = {"table": table}
    return defaults
