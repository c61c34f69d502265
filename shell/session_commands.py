"""Commands that change the current table of the session: ``table notable``."""

from __future__ import annotations

import click

from shell import parameters
from shell.output import Output
from shell.shell_session import Session, in_session


@click.command()
@click.argument("name", required=False, type=parameters.TABLE)
@in_session
def table(session: Session, output: Output, name: str | None) -> None:
    """Make a table the current one, or print the current table.

    A command that needs a table uses the current one by default, until `notable` or the end of the shell.
    """
    if name is not None:
        session.use_table(session.client.tables.get(name).name)
    output.result(_text(session), {"table": session.table})


@click.command()
@in_session
def notable(session: Session, output: Output) -> None:
    """Unset the current table."""
    session.use_table(None)
    output.result(_text(session), {"table": session.table})


def _text(session: Session) -> str:
    return "there is no current table" if session.table is None else f"the current table is {session.table}"
