"""What every command of the shell gets: the cluster to talk to, and how to print.

Arrives: the name of a cluster (a directory or a quorum) and the ``--json`` switches. Leaves: one client, connected when
a command first needs it, so that a wrong command line is told before an unreachable cluster.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType

import click

from bookkeeper.client import Client
from bookkeeper.security.access import CredentialFiles
from shell.names import Names, ask_cluster, connect
from shell.output import Output


class Session:
    """One conversation with one cluster; a context manager that disconnects."""

    def __init__(self, cluster: str, as_json: bool, given: CredentialFiles | None = None) -> None:
        self.cluster = cluster
        self.as_json = as_json
        self.table: str | None = None
        """The current table: that of commands which need one and are given none."""
        self.names = Names(lambda: ask_cluster(cluster, given))
        self._given = given or CredentialFiles()
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The connected client; raises NotFoundError or TransientError."""
        if self._client is None:
            self._client = connect(self.cluster, self._given)
        return self._client

    def use_table(self, name: str | None) -> None:
        """Make a table the current one; None = there is none."""
        self.table = name

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            self._client.close()


def in_session(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a command the session and an output as its first arguments, and the ``--json`` switch."""

    @functools.wraps(command)
    def wrapped(*, as_json: bool, **arguments: object) -> int | None:
        context = click.get_current_context()
        session = context.find_object(Session)
        assert session is not None
        for_all = session.as_json or bool(context.find_root().params.get("as_json"))
        return command(session, Output(as_json or for_all), **arguments)

    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(wrapped)
