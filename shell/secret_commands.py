"""Commands about a cluster's secrets: ``secret make``, ``list``, ``renew`` and ``forget``. The cluster need not run.

Arrives: the directory of a cluster, and for whom a secret is. Leaves: files in ``DIR/secrets``, and where they are;
what is in them is never printed. Running processes see a change with the next connection.
"""

from __future__ import annotations

from pathlib import Path

import click

from bookkeeper.config import Settings, load_settings
from bookkeeper.security.store import Kept, SecretStore
from shell.output import Output, Record, utc

_DIRECTORY = click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_COLUMNS = ("id", "use", "who", "made", "file")


@click.group()
def secret() -> None:
    """Who may come into a cluster, and what it shows to its peers."""


@secret.command()
@_DIRECTORY
@click.argument("name")
@click.option("--instance", "instance_id", metavar="ID", default="", help="The only instance that may use it.")
@_JSON
def make(directory: Path, name: str, instance_id: str, as_json: bool) -> None:
    """Make the secret with which the cluster NAME may replicate to the one in DIR, and nothing else.

    Its operator gets the file and gives it to `definecluster --secret-file`. The same again is fine.
    """
    settings = load_settings(directory)
    own = settings.instance
    kept = SecretStore(settings.directory).make_for_peer(name, own.name, own.instance_id, instance_id)
    text = f"{name} may replicate to {own.name} with {kept.path}: bring it there, unread by others"
    Output(as_json).done(text, _record(kept, settings))


@secret.command(name="list")
@_DIRECTORY
@_JSON
def list_secrets(directory: Path, as_json: bool) -> None:
    """List the secrets in DIR, without their keys.

    USE is `accepted` for those who come with it, `shown` for what this cluster shows to a peer, and `both` for the
    cluster's own.
    """
    settings = load_settings(directory)
    rows = [_record(kept, settings) for kept in SecretStore(settings.directory).listed()]
    Output(as_json).records(rows, _COLUMNS, "no secrets; bookkeeper standalone makes what is missing")


@secret.command()
@_DIRECTORY
@click.argument("who", metavar="WHO")
@_JSON
def renew(directory: Path, who: str, as_json: bool) -> None:
    """Make a new secret in DIR for WHO: `processes`, `clients`, or the name of a peer.

    The one before is let in still, until `secret forget`: so nobody is turned away while the new one is brought to
    those who need it.
    """
    settings = load_settings(directory)
    kept = SecretStore(settings.directory).renew(who)
    text = f"the new secret for {who} is in {kept.path}; when all use it: bookkeeper secret forget {directory} {who}"
    Output(as_json).done(text, _record(kept, settings))


@secret.command()
@_DIRECTORY
@click.argument("who", metavar="WHO")
@click.option("--all", "everything", is_flag=True, help="Of a peer: the present one too, so that it may not come in.")
@_JSON
def forget(directory: Path, who: str, everything: bool, as_json: bool) -> None:
    """Let the secret that WHO had before `secret renew` in no more, and close connections that came with it."""
    settings = load_settings(directory)
    gone = SecretStore(settings.directory).forget(who, everything)
    ids = [kept.secret.id for kept in gone]
    text = (
        f"{who} can't come in with {', '.join(ids)} any more" if ids else f"{who} had no secret before the present one"
    )
    Output(as_json).done(text, {"who": who, "forgotten": ids})


def _record(kept: Kept, settings: Settings) -> Record:
    shown, own = kept.path.parent.name == "to", kept.path.name in ("cluster.secret", "client.secret")
    return {
        "id": kept.secret.id,
        "use": "shown" if shown else "both" if own else "accepted",
        "who": kept.secret.cluster if shown else kept.secret.holder,
        "made": utc(kept.secret.made_ms),
        "file": str(kept.path.relative_to(settings.directory)),
        "path": str(kept.path),
        "instance_id": kept.secret.holder_instance_id or None,
    }


COMMANDS = (make, list_secrets, renew, forget)
