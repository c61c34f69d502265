"""Exit codes of commands, and their error line: the thing, the reason and the next step.

A defect of the program itself is not caught here, because its maintainers need the traceback.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import IntEnum

import click
from click.exceptions import NoArgsIsHelpError

from bookkeeper.errors import BookkeeperError, PermanentError, TransientError
from shell.shortening import shortened


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILED = 1
    """A permanent error: the same command fails again."""
    USAGE = 2
    """The command line is wrong; the command did nothing."""
    UNAVAILABLE = 3
    """A transient error, such as a cluster that does not answer: try again later."""
    TIMED_OUT = 4
    """``replication wait`` or ``hosts --wait`` reached its time limit; the work continues."""
    NEEDS_PERSON = 5
    """``replication why``: records wait until a person does something."""
    INTERRUPTED = 130
    """Ended by Ctrl-C, or by Ctrl-D at a question."""


class WaitTimedOutError(PermanentError):
    """A command reached the time limit of its wait."""

    code = "timed_out"


def run(
    command: click.Command,
    words: list[str],
    obj: object = None,
    as_json: bool = False,
    defaults: Mapping[str, object] | None = None,
) -> int:
    """Run one command line, print its error if it fails, and return its exit code. ``defaults`` are click's default
    map.
    """
    try:
        result = command.main(words, prog_name=command.name, standalone_mode=False, obj=obj, default_map=defaults)
    except click.Abort:
        return ExitCode.INTERRUPTED
    except NoArgsIsHelpError as error:  # a group without a command
        click.echo(error.format_message())
        return ExitCode.OK
    except (click.ClickException, BookkeeperError) as error:
        return _report(error, words, as_json)
    return result if isinstance(result, int) else ExitCode.OK


def describe(error: click.ClickException | BookkeeperError) -> tuple[str, str, ExitCode]:
    """The message of an error, its stable code, and the exit code."""
    match error:
        case click.UsageError():
            return _usage_text(error), "usage", ExitCode.USAGE
        case click.ClickException():
            return error.format_message(), "failed", ExitCode.FAILED
        case WaitTimedOutError():
            return error.message, error.code, ExitCode.TIMED_OUT
        case TransientError():
            return error.message, error.code, ExitCode.UNAVAILABLE
    return error.message, error.code, ExitCode.FAILED


def _usage_text(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else ""
    return f"{path}: {error.format_message().rstrip('.')}; see: {path} --help" if path else error.format_message()


def _report(error: click.ClickException | BookkeeperError, words: Iterable[str], as_json: bool) -> int:
    message, code, exit_code = describe(error)
    line = one_line(message, words)
    click.echo(json.dumps({"error": code, "message": line}) if as_json else f"error: {line}", err=True)
    return exit_code


def one_line(message: str, words: Iterable[str]) -> str:
    """A message on one line, with long ``words`` of the command line shortened."""
    return shortened(" ".join(message.split()), (" ".join(word.split()) for word in words))
