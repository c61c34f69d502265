"""The command ``monitor``: where a cluster's pages are, with the token that opens them. The cluster need not run.

Arrives: the directory of a cluster. Leaves: an address, or the token alone, on standard output and nowhere else.
"""

from __future__ import annotations

from pathlib import Path

import click

from bookkeeper.config import Settings, load_settings
from bookkeeper.errors import NotFoundError
from bookkeeper.monitor.web_server import url_of
from bookkeeper.security.secret_store import SecretStore
from bookkeeper.security.viewers import requires_token, token_of
from shell.output import Output


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--token", "token_only", is_flag=True, help="Print the token alone, for Prometheus and other programs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def monitor(directory: Path, token_only: bool, as_json: bool) -> None:
    """Print the address of the monitor of the cluster in DIR, with the token that lets a browser in.

    Who has the token may look and nothing else. It is made of DIR/secrets/monitor.secret; `secret renew DIR viewers`
    makes a new one, `secret forget DIR viewers` ends the one before.
    """
    settings = load_settings(directory)
    url, token = address_of(settings), ""
    if requires_token(settings):
        token = token_of(SecretStore(settings.directory).own("monitor"))
    elif token_only:
        raise NotFoundError("there is no token, for this monitor asks for none: authentication is none")
    whole = f"{url}?token={token}" if token else url
    Output(as_json).done(token if token_only else whole, {"url": whole, "address": url, "token": token or None})


def address_of(settings: Settings) -> str:
    """Where the monitor of the cluster's master answers. Raises NotFoundError when there is none."""
    if not settings.monitor.port:
        raise NotFoundError(
            f"{settings.directory} has no monitor: set monitor.port in its settings, and start it again"
        )
    return url_of(settings.monitor.host, settings.monitor.port, bool(settings.security.tls_certificate))
