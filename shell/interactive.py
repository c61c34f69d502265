"""The shell's loop: one command given on the command line, or commands read line by line.

Arrives: words, or lines from a terminal, file or pipe. Leaves: an exit code. On a terminal an error is shown and the
loop goes on; in a script the first failing command ends it with its exit code, so that nothing runs on a wrong base.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator

import click

from shell.commands import commands
from shell.failures import ExitCode, run
from shell.session import Session

QUIT = ("exit", "quit")


def run_words(cluster: str, words: list[str], as_json: bool) -> int:
    """Run one command, or the loop when there is none; returns the exit code."""
    with Session(cluster, as_json) as session:
        if words:
            return _run(session, words)
        return _loop(session, sys.stdin.isatty())


def _loop(session: Session, terminal: bool) -> int:
    for line in _terminal_lines(session.cluster) if terminal else sys.stdin:
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            click.echo(f"error: {error}: {line.strip()}; quote it, or write \\x27 and \\x22 for quotes", err=True)
            code = int(ExitCode.USAGE)
        else:
            if words and words[0] in QUIT:
                break
            code = _run(session, words) if words else ExitCode.OK
        if code != ExitCode.OK and not terminal:
            return code
    return ExitCode.OK


def _terminal_lines(cluster: str) -> Iterator[str]:
    click.echo(f"{cluster}: help lists the commands, exit leaves")
    while True:
        try:
            yield input("bookkeeper> ")
        except EOFError:
            click.echo()
            return
        except KeyboardInterrupt:
            click.echo()


def _run(session: Session, words: list[str]) -> int:
    return run(commands, words, session, session.as_json or "--json" in words)
