"""The command ``bookkeeper shell``."""

from __future__ import annotations

from pathlib import Path

import click

from bookkeeper.security.access import CredentialFiles
from shell.interactive import run_words


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The client's secret, or a directory of secrets; default: the secret in DIR, else BOOKKEEPER_SECRET_FILE.",
)
@click.option(
    "--tls-ca",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The CA of a cluster with TLS.",
)
@click.option(
    "--tls-certificate", type=click.Path(path_type=Path), metavar="FILE", help="The client's certificate with its key."
)
@click.argument("cluster", metavar="DIR|QUORUM")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]...")
@click.pass_context
def shell(
    ctx: click.Context,
    cluster: str,
    words: tuple[str, ...],
    as_json: bool,
    secret_file: Path | None,
    tls_ca: Path | None,
    tls_certificate: Path | None,
) -> None:
    """Run one COMMAND on a cluster, or a loop that reads commands.

    The cluster is a directory, or the addresses HOST:PORT[,HOST:PORT] of its masters. COMMAND `help` lists all
    commands. If commands come from a file or pipe, the first that fails ends the loop.
    """
    ctx.exit(run_words(cluster, list(words), as_json, CredentialFiles(secret_file, tls_ca, tls_certificate)))
