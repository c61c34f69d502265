"""Commands that print again and again, until Ctrl-C: the option ``--watch``."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import click

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.errors import TransientError
from shell import parameters
from shell.output import Output
from shell.shell_session import Session


def watched(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command of a session the option ``--watch``."""

    @functools.wraps(command)
    def wrapped(session: Session, output: Output, watch: float | None, **arguments: Any) -> None:
        show = functools.partial(command, session, output, **arguments)
        if watch is None:
            show()
        else:
            repeat(show, watch, SystemClock(), threading.Event())

    text = "Print again after so many seconds, until Ctrl-C."
    return click.option("--watch", type=parameters.SECONDS, metavar="SECONDS", help=text)(wrapped)


def repeat(show: Callable[[], None], pause_s: float, clock: Clock, ended: threading.Event) -> None:
    """Show until ``ended``. A terminal is cleared before each time. A transient error, such as a master that restarts,
    is a line, and the next time follows.
    """
    while not ended.is_set():
        click.clear()  # does nothing in a pipe
        try:
            show()
        except TransientError as error:
            click.echo(f"error: {error.message}", err=True)
        clock.wait(ended, 1_000 * pause_s)
