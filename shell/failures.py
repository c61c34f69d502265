"""How commands end: exit codes, and one line on standard error that names the thing, the reason and the next step.

Arrives: whatever a command raised. Leaves: an exit code and at most one line. A defect of the program itself is not
caught here: its traceback is what its maintainers need.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import IntEnum

import click

from bookkeeper.errors import BookkeeperError, PermanentError, TransientError


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILED = 1
    """A permanent error: trying again unchanged can't succeed."""
    USAGE = 2
    """The command line is wrong; nothing was done."""
    UNAVAILABLE = 3
    """A transient error, such as a cluster that does not answer: try again later."""
    TIMED_OUT = 4
    """``replication wait`` gave up waiting; replication goes on."""
    INTERRUPTED = 130
    """Ended by Ctrl-C."""


class WaitTimedOutError(PermanentError):
    """``replication wait`` reached its time limit."""

    code = "timed_out"


def run(
    command: click.Command,
    words: list[str],
    obj: object = None,
    as_json: bool = False,
    defaults: Mapping[str, object] | None = None,
) -> int:
    """Run one command line and return its exit code; errors are printed here. ``defaults`` are click's default map."""
    try:
        result = command.main(words, prog_name=command.name, standalone_mode=False, obj=obj, default_map=defaults)
    except click.UsageError as error:
        return _say(_usage_text(error), "usage", ExitCode.USAGE, as_json)
    except click.ClickException as error:
        return _say(error.format_message(), "failed", ExitCode.FAILED, as_json)
    except click.Abort:
        return ExitCode.INTERRUPTED
    except WaitTimedOutError as error:
        return _say(error.message, error.code, ExitCode.TIMED_OUT, as_json)
    except TransientError as error:
        return _say(error.message, error.code, ExitCode.UNAVAILABLE, as_json)
    except BookkeeperError as error:
        return _say(error.message, error.code, ExitCode.FAILED, as_json)
    return result if isinstance(result, int) else ExitCode.OK


def _usage_text(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else ""
    return f"{path}: {error.format_message().rstrip('.')}; see: {path} --help" if path else error.format_message()


def _say(message: str, code: str, exit_code: ExitCode, as_json: bool) -> int:
    line = " ".join(message.split())
    click.echo(json.dumps({"error": code, "message": line}) if as_json else f"error: {line}", err=True)
    return exit_code
