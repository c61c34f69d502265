"""Commands about a cluster's secrets: ``secret make``, ``tables``, ``list``, ``renew`` and ``forget``. The cluster need
not run.

Arrives: the directory of a cluster, and for whom a secret is. Leaves: files in ``DIR/secrets``, and where they are;
what is in them is never printed. Running processes see a change with the next connection, that of tables within a
second.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from bookkeeper.config import SETTINGS_FILE, Settings, load_settings
from bookkeeper.security.secret import Secret
from bookkeeper.security.secret_store import Kept, SecretStore
from shell.output import Output, Record, utc
from shell.parameters import names

_DIRECTORY = click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_COLUMNS = ("id", "use", "who", "made", "tables", "file")


@click.group()
def secret() -> None:
    """Who may come into a cluster, and what it shows to its peers."""


@secret.command()
@_DIRECTORY
@click.argument("name")
@click.option(
    "--instance",
    "instance",
    metavar="ID",
    help="The only instance that may use it: its instance_id, which `bookkeeper config show` prints there, or the "
    "directory of that cluster on this machine.",
)
@click.option("--any-instance", is_flag=True, help="Whoever has it may use it, and is believed to be whom it says.")
@click.option("--tables", metavar="TABLE,…", help="The tables that it opens, by name; they need not be there yet.")
@click.option("--all-tables", is_flag=True, help="It opens every table, later ones too.")
@_JSON
def make(
    directory: Path,
    name: str,
    instance: str | None,
    any_instance: bool,
    tables: str | None,
    all_tables: bool,
    as_json: bool,
) -> None:
    """Make the secret with which the cluster NAME may replicate to tables of the one in DIR, and nothing else.

    Its operator gets the file and gives it to `definecluster --secret-file`. The same again is fine. `secret tables`
    changes later which tables it opens.
    """
    _require_one("--instance", instance is not None, "--any-instance", any_instance)
    _require_one("--tables", tables is not None, "--all-tables", all_tables)
    settings = load_settings(directory)
    own = settings.instance
    kept = SecretStore(settings.directory).make_for_peer(
        name, own.name, own.instance_id, _instance_id(instance), names(tables or ""), all_tables
    )
    opened = _opened(kept.secret)
    text = f"{name} may replicate to {opened} of {own.name} with {kept.path}: bring it there, unread by others"
    Output(as_json).done(text, _record(kept, settings))


def _require_one(one: str, has_one: bool, other: str, has_other: bool) -> None:
    if has_one == has_other:
        raise click.UsageError(f"say either {one} or {other}")


def _instance_id(instance: str | None) -> str:
    """The id that was given, or that of the cluster whose directory was given; empty = any instance."""
    if instance is None:
        return ""
    if not instance:
        raise click.UsageError("an instance id is not empty")
    place = Path(instance)
    return load_settings(place).instance.instance_id if (place / SETTINGS_FILE).is_file() else instance


def _opened(found: Secret) -> str:
    """What a peer's secret opens, for people."""
    if found.all_tables:
        return "every table"
    return f"table {', '.join(found.tables)}" if found.tables else "no table"


@secret.command()
@_DIRECTORY
@click.argument("name")
@click.option("--add", metavar="TABLE,…", help="Open these tables, too.")
@click.option("--remove", metavar="TABLE,…", help="Open these tables no more.")
@click.option("--set", "exactly", metavar="TABLE,…", help="Open these tables and no others; empty = none.")
@click.option("--all-tables", is_flag=True, help="Open every table, later ones too.")
@_JSON
def tables(
    directory: Path,
    name: str,
    add: str | None,
    remove: str | None,
    exactly: str | None,
    all_tables: bool,
    as_json: bool,
) -> None:
    """Change which tables of the cluster in DIR the secret of its peer NAME opens, without a new secret.

    Running processes know it within a second. What a table got stays there. Replication to a table that
    is added goes on by itself, behind what arrived before.
    """
    if sum((add is not None or remove is not None, exactly is not None, all_tables)) != 1:
        raise click.UsageError("say --add or --remove or both, or --set, or --all-tables")

    def change(found: Secret) -> Secret:
        if all_tables:
            return replace(found, tables=(), all_tables=True)
        if exactly is not None:
            return replace(found, tables=tuple(sorted(set(names(exactly)))), all_tables=False)
        if found.all_tables:
            raise click.UsageError(f"the secret of {name} opens every table: say --set")
        opened = (set(found.tables) | set(names(add or ""))) - set(names(remove or ""))
        return replace(found, tables=tuple(sorted(opened)))

    settings = load_settings(directory)
    kept = SecretStore(settings.directory).change_tables(name, change)
    text = f"{name} may replicate to {_opened(kept.secret)} of {settings.instance.name}"
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
        "tables": _tables(kept.secret) if kept.secret.kind == "peer" and not shown else None,
    }


def _tables(found: Secret) -> list[str]:
    return ["(all)"] if found.all_tables else list(found.tables)


COMMANDS = (make, tables, list_secrets, renew, forget)
