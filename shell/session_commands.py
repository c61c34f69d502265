"""Commands about the conversation itself: ``table notable``.

Arrives: a table's name. Leaves: the session, in which commands that need a table and are given none take that one.
"""

from __future__ import annotations

import click

from shell import parameters
from shell.output import Output
from shell.shell_session import Session, in_session


@click.command()
@click.argument("name", required=False, type=parameters.TABLE)
@in_session
def table(session: Session, output: Output, name: str | None) -> None:
    """Make a table the current one, or say which is.

    Commands that need a table and are given none take the current one, until the shell ends or `notable`.
    """
    if name is not None:
        session.use_table(session.client.tables.get(name).name)
    output.done(_text(session), {"table": session.table})


@click.command()
@in_session
def notable(session: Session, output: Output) -> None:
    """Have no current table any more."""
    session.use_table(None)
    output.done(_text(session), {"table": session.table})


def _text(session: Session) -> str:
    return "there is no current table" if session.table is None else f"the current table is {session.table}"


COMMANDS = (table, notable)
