"""The command ``hosts``: the directories on which a cluster runs."""

from __future__ import annotations

import click

from shell.output import Output
from shell.shell_session import Session, in_session

_COLUMNS = ("host", "state", "incarnation", "tservers", "tablets")


@click.command()
@in_session
def hosts(session: Session, output: Output) -> None:
    """List all hosts that joined the cluster: state, disk, tablet servers and tablets of each.

    A host is "alive" while a tablet server holds its replicas; otherwise it is "away". INCARNATION is the identity of
    its disk: a wiped disk has a new one. Further tablet servers of a host hold no replicas and are not listed.
    """
    rows = [
        {
            "host": found.name,
            "state": "alive" if found.tservers else "away",
            "incarnation": found.incarnation,
            "tservers": list(found.tservers),
            "tablets": found.tablets,
        }
        for found in session.client.hosts()
    ]
    output.records(rows, _COLUMNS, "no host has joined")


COMMANDS = (hosts,)
