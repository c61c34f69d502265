"""The session of the shell: the cluster, its client, the current table and the form of output of every command.

The client connects when a command first needs it, so the shell reports a wrong command line before an unreachable
cluster.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType

import click

from bookkeeper.client import Client
from bookkeeper.security.access import CredentialFiles
from shell.names import NameCache, connect, read_names
from shell.output import Output


class Session:
    """The state of one shell for one cluster (a directory or a quorum); a context manager that disconnects."""

    def __init__(self, cluster: str, as_json: bool, credentials: CredentialFiles | None = None) -> None:
        self.cluster = cluster
        self.as_json = as_json
        self.table: str | None = None
        """The current table: the default of commands that need one."""
        self.names = NameCache(lambda: read_names(cluster, credentials))
        self._credentials = credentials or CredentialFiles()
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The connected client. Raises NotFoundError, TransientError."""
        if self._client is None:
            self._client = connect(self.cluster, self._credentials)
        return self._client

    def use_table(self, name: str | None) -> None:
        """Make a table the current one; None = no current table."""
        self.table = name

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            self._client.close()


def in_session(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a command the session and an output as its first arguments, and the option ``--json``."""

    @functools.wraps(command)
    def wrapped(*, as_json: bool, **arguments: object) -> int | None:
        context = click.get_current_context()
        session = context.find_object(Session)
        assert session is not None
        for_all = session.as_json or bool(context.find_root().params.get("as_json"))
        return command(session, Output(as_json or for_all), **arguments)

    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(wrapped)
