"""The command ``bookkeeper shell``. A command after the cluster completes in bash, zsh and fish as at the prompt."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem, ShellComplete

from bookkeeper.security.access import CredentialFiles
from shell.commands import commands
from shell.interactive import run_words
from shell.shell_session import Session


class ShellCommand(click.Command):
    """A command whose last words are a command of the shell, with options of its own."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The options that may follow: those of the shell's command, once there is one."""
        if ctx.params.get("words"):
            return words_that_follow(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)


def words_that_follow(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Completions of the next word of a shell's command; the cluster is asked for names, for half a second at most."""
    credentials = CredentialFiles(*(ctx.params.get(name) for name in ("secret_file", "tls_ca", "tls_certificate")))
    session = Session(ctx.params["cluster"], False, credentials)
    words = ShellComplete(commands, {"obj": session}, commands.name or "", "")
    return words.get_completions(list(ctx.params.get("words") or ()), incomplete)


def complete_words(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """See :func:`words_that_follow`."""
    return words_that_follow(ctx, incomplete)


def complete_directory(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Directories; addresses of masters are not known."""
    return [CompletionItem(incomplete, type="dir")]


@click.command(cls=ShellCommand, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
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
@click.argument("cluster", metavar="DIR|QUORUM", shell_complete=complete_directory)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]...", shell_complete=complete_words)
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

    The cluster is a directory, the addresses HOST:PORT[,HOST:PORT] of its masters, or its root in ZooKeeper,
    zk://HOST:PORT[,HOST:PORT]/ROOT. COMMAND `help` lists all
    commands. If commands come from a file or pipe, the first that fails ends the loop.
    """
    ctx.exit(run_words(cluster, list(words), as_json, CredentialFiles(secret_file, tls_ca, tls_certificate)))
