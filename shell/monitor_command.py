"""The command ``monitor``: prints the address of a cluster's pages, with the token that opens them.

The cluster need not run. The token goes to standard output and nowhere else.
"""

from __future__ import annotations

from pathlib import Path

import click

from bookkeeper.config.file import load_settings
from bookkeeper.config.sections import Settings
from bookkeeper.errors import NotFoundError
from bookkeeper.monitor.web_server import url_of
from bookkeeper.security.secret_store import SecretStore
from bookkeeper.security.viewers import requires_token, token_of
from shell.output import Output


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--token", "token_only", is_flag=True, help="Print only the token, for Prometheus and other programs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def monitor(directory: Path, token_only: bool, as_json: bool) -> None:
    """Print the address of the monitor of the cluster in DIR, with the token that a browser needs.

    The token allows its holder to read the monitor, and nothing else. It is made from DIR/secrets/monitor.secret;
    `secret renew DIR viewers` makes a new token, `secret forget DIR viewers` ends the previous one.
    """
    settings = load_settings(directory)
    url, token = address_of(settings), ""
    if requires_token(settings):
        token = token_of(SecretStore(settings.cluster_directory).own("monitor"))
    elif token_only:
        raise NotFoundError(
            "this monitor has no token, because monitor.authentication is none; open its address without a token"
        )
    url_with_token = f"{url}?token={token}" if token else url
    Output(as_json).result(
        token if token_only else url_with_token, {"url": url_with_token, "address": url, "token": token or None}
    )


def address_of(settings: Settings) -> str:
    """The URL of the monitor of the cluster's master. Raises NotFoundError if the cluster has no monitor."""
    if not settings.monitor.port:
        raise NotFoundError(
            f"{settings.directory} has no monitor; set monitor.port in its settings, and restart the cluster"
        )
    return url_of(
        settings.monitor.announced_host or settings.monitor.host,
        settings.monitor.port,
        bool(settings.security.tls_certificate),
    )
