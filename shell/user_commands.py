"""Commands about users: ``setauths getauths``.

Arrives: names as typed. Leaves: a call of :mod:`bookkeeper.client`, and what it answered.
"""

from __future__ import annotations

import click

from bookkeeper.client.user_admin import ROOT
from shell import parameters
from shell.output import Output
from shell.shell_session import Session, in_session

_USER = click.option("-u", "--user", default=ROOT, show_default=True, metavar="NAME")


@click.command()
@_USER
@click.option("-s", "--set", "authorizations", type=parameters.names, metavar="A,B", help="What the user may see.")
@click.option("-c", "--clear", is_flag=True, help="Nothing that has a label.")
@in_session
def setauths(session: Session, output: Output, user: str, authorizations: list[str] | None, clear: bool) -> None:
    """Replace the authorizations of a user: with which cells that have a visibility label are seen.

    A user is whoever a client says it is: a client has the rights of the secret that it shows.
    """
    if clear == bool(authorizations):
        raise click.UsageError("give either --set A,B or --clear")
    wanted = sorted(set(authorizations or ()))
    session.client.users.set_authorizations(wanted, user)
    facts = {"user": user, "authorizations": wanted}
    output.done(f"user {user} has {', '.join(wanted) or 'no authorizations'}", facts)


@click.command()
@_USER
@in_session
def getauths(session: Session, output: Output, user: str) -> None:
    """Print the authorizations of a user."""
    held = list(session.client.users.authorizations(user))
    output.line({"user": user, "authorizations": held}, ",".join(held) or f"user {user} has no authorizations")


COMMANDS = (setauths, getauths)
