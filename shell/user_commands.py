"""Commands about users: ``setauths getauths``."""

from __future__ import annotations

import click

from bookkeeper.client.user_admin import ROOT
from shell import parameters
from shell.output import Output
from shell.shell_session import Session, in_session

_USER = click.option("-u", "--user", default=ROOT, show_default=True, metavar="NAME")


@click.command()
@_USER
@click.option("-s", "--set", "authorizations", type=parameters.names, metavar="A,B", help="Authorizations of the user.")
@click.option("-c", "--clear", is_flag=True, help="Remove all authorizations of the user.")
@in_session
def setauths(session: Session, output: Output, user: str, authorizations: list[str] | None, clear: bool) -> None:
    """Replace the authorizations of a user; they choose the labelled cells that its scans show.

    A user is a name that a client sends. The client's rights come from its secret, not from this name.
    """
    if clear == bool(authorizations):
        raise click.UsageError("give either --set A,B or --clear")
    new = sorted(set(authorizations or ()))
    session.client.users.set_authorizations(new, user)
    output.result(f"user {user} has {', '.join(new) or 'no authorizations'}", {"user": user, "authorizations": new})


@click.command()
@_USER
@in_session
def getauths(session: Session, output: Output, user: str) -> None:
    """Print the authorizations of a user."""
    found = list(session.client.users.authorizations(user))
    output.line({"user": user, "authorizations": found}, ",".join(found) or f"user {user} has no authorizations")
