"""Commands about a cluster's secrets: ``secret make``, ``tables``, ``relays``, ``list``, ``renew``, ``forget`` and
``export``.

They write files in ``DIR/secrets`` and never print a key. The cluster need not run. Its running processes use a changed
secret from the next connection on, and changed tables and relays within a second.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import click
from msgspec.structs import replace

from bookkeeper.config.file import SETTINGS_FILE, load_settings
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.shared_settings import KINDS
from bookkeeper.errors import NotFoundError, RefusedError
from bookkeeper.security.join_file import join_file_of, write_join_file
from bookkeeper.security.secret import Secret
from bookkeeper.security.secret_store import OWN_HOLDERS, SecretStore, StoredSecret
from shell.output import Output, Record, utc
from shell.parameters import names

_DIRECTORY = click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_COLUMNS = ("id", "use", "who", "made", "tables", "relays", "file")


@click.group()
def secret() -> None:
    """Manage secrets: those that a cluster accepts, and those that it shows to its peers."""


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
@click.option("--any-instance", is_flag=True, help="Any instance may use it; the claimed identity is not checked.")
@click.option("--tables", metavar="TABLE,…", help="The tables that it opens, by name; they need not exist yet.")
@click.option("--all-tables", is_flag=True, help="It opens every table, later ones too.")
@click.option(
    "--relays",
    metavar="CLUSTER,…",
    help="The clusters whose records NAME sends on: names of secrets in DIR, instance_ids, or directories. A record of "
    "them that also comes by another path is then taken once.",
)
@_JSON
def make(
    directory: Path,
    name: str,
    instance: str | None,
    any_instance: bool,
    tables: str | None,
    all_tables: bool,
    relays: str | None,
    as_json: bool,
) -> None:
    """Make the secret with which the cluster NAME may replicate to tables of the one in DIR, and nothing else.

    The operator of NAME passes the file to `definecluster --secret-file`. A repeated command changes nothing. `secret
    tables` changes the tables that it opens, `secret relays` the clusters that NAME relays.
    """
    _require_one("--instance", instance is not None, "--any-instance", any_instance)
    _require_one("--tables", tables is not None, "--all-tables", all_tables)
    if any_instance and relays:
        raise click.UsageError("--relays needs --instance: with --any-instance the origins of records are not checked")
    settings = load_settings(directory)
    own, store = settings.instance, SecretStore(settings.cluster_directory)
    relayed = _relayed(store, names(relays or ""))
    stored = store.make_for_peer(
        name, own.name, own.instance_id, _instance_id(instance), names(tables or ""), all_tables, relayed
    )
    opened = _opened(stored.secret)
    text = f"{name} may replicate to {opened} of {own.name} with {stored.path}: copy it there, and let no other read it"
    Output(as_json).result(text + _for_hosts(settings, stored), _record(stored, settings))


def _require_one(one: str, has_one: bool, other: str, has_other: bool) -> None:
    if has_one == has_other:
        raise click.UsageError(f"give either {one} or {other}")


def _instance_id(instance: str | None) -> str:
    """The id ``instance``, or the id of the cluster in the directory ``instance``; empty = any instance."""
    if instance is None:
        return ""
    if not instance:
        raise click.UsageError("--instance is empty; give an instance_id, or the directory of a cluster")
    directory = Path(instance)
    return load_settings(directory).instance.instance_id if (directory / SETTINGS_FILE).is_file() else instance


def _relayed(store: SecretStore, clusters: Iterable[str]) -> list[str]:
    """The instance ids of clusters: each is the name of a peer's secret here, a cluster's directory, or an id. Raises
    NotFoundError, and UsageError when a secret names no instance.
    """
    found = []
    holders = {stored.secret.holder: stored.secret for stored in store.listed() if stored.path.parent.name == "from"}
    for cluster in clusters:
        instance = holders[cluster].holder_instance_id if cluster in holders else _instance_id(cluster)
        if not instance:
            raise click.UsageError(f"the secret of {cluster} is for any instance: give the instance_id of {cluster}")
        if cluster == instance and not _is_id(instance):
            raise NotFoundError(
                f"there is no secret for {cluster}: name it by its instance_id, which `bookkeeper config show` prints"
            )
        found.append(instance)
    return found


def _is_id(text: str) -> bool:
    try:
        return bool(uuid.UUID(text))
    except ValueError:
        return False


def _opened(peer_secret: Secret) -> str:
    """The tables that a peer's secret opens, in words."""
    if peer_secret.all_tables:
        return "every table"
    return f"table {', '.join(peer_secret.tables)}" if peer_secret.tables else "no table"


@secret.command()
@_DIRECTORY
@click.argument("name")
@click.option("--add", metavar="TABLE,…", help="Open these tables, too.")
@click.option("--remove", metavar="TABLE,…", help="Close these tables.")
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
    """Change the tables of the cluster in DIR that the secret of its peer NAME opens, without a new secret.

    Running processes notice it within a second. Replicated records stay in their tables. Replication to an added
    table continues without a command, after the last record that arrived.
    """
    if sum((add is not None or remove is not None, exactly is not None, all_tables)) != 1:
        raise click.UsageError("give --add or --remove or both, or --set, or --all-tables")

    def change(found: Secret) -> Secret:
        if all_tables:
            return replace(found, tables=(), all_tables=True)
        if exactly is not None:
            return replace(found, tables=tuple(sorted(set(names(exactly)))), all_tables=False)
        if found.all_tables:
            raise click.UsageError(f"the secret of {name} opens every table; use --set")
        opened = (set(found.tables) | set(names(add or ""))) - set(names(remove or ""))
        return replace(found, tables=tuple(sorted(opened)))

    settings = load_settings(directory)
    stored = SecretStore(settings.cluster_directory).change_rights(name, change)
    text = f"{name} may replicate to {_opened(stored.secret)} of {settings.instance.name}"
    Output(as_json).result(text + _for_hosts(settings, stored), _record(stored, settings))


@secret.command()
@_DIRECTORY
@click.argument("name")
@click.option("--add", metavar="CLUSTER,…", help="NAME relays these clusters, too.")
@click.option("--remove", metavar="CLUSTER,…", help="NAME does not relay these clusters.")
@click.option("--set", "exactly", metavar="CLUSTER,…", help="NAME relays these clusters and no others; empty = none.")
@_JSON
def relays(directory: Path, name: str, add: str | None, remove: str | None, exactly: str | None, as_json: bool) -> None:
    """Change the clusters whose records the peer NAME may send on to the cluster in DIR, without a new secret.

    CLUSTER is the name of a secret in DIR, an instance_id, or the directory of a cluster. Name the relays of a cluster
    whose records come by several paths: then each record is taken once. Records of other clusters count as NAME's own.
    """
    if (add is not None or remove is not None) == (exactly is not None):
        raise click.UsageError("give --add or --remove or both, or --set")
    settings = load_settings(directory)
    store = SecretStore(settings.cluster_directory)
    added, removed, only = (_relayed(store, names(given or "")) for given in (add, remove, exactly))

    def change(found: Secret) -> Secret:
        if not found.holder_instance_id:
            raise click.UsageError(
                f"the secret of {name} is for any instance: the origins of its records are not checked"
            )
        relayed = set(only) if exactly is not None else (set(found.relays) | set(added)) - set(removed)
        return replace(found, relays=tuple(sorted(relayed)))

    stored = store.change_rights(name, change)
    relayed = ", ".join(stored.secret.relays) or "no other cluster"
    text = f"{name} relays records of {relayed} to {settings.instance.name}"
    Output(as_json).result(text + _for_hosts(settings, stored), _record(stored, settings))


@secret.command(name="list")
@_DIRECTORY
@_JSON
def list_secrets(directory: Path, as_json: bool) -> None:
    """List the secrets in DIR without their keys.

    USE is `accepted` for secrets of callers, `shown` for those that this cluster shows to a peer, and `both` for the
    cluster's own.
    """
    settings = load_settings(directory)
    rows = [_record(stored, settings) for stored in SecretStore(settings.cluster_directory).listed()]
    Output(as_json).records(rows, _COLUMNS, "no secrets; bookkeeper standalone makes missing ones")


@secret.command()
@_DIRECTORY
@click.argument("who", metavar="WHO")
@_JSON
def renew(directory: Path, who: str, as_json: bool) -> None:
    """Make a new secret in DIR for WHO: `processes`, `clients`, or the name of a peer.

    The former secret stays accepted until `secret forget`, so that no caller is refused while the new one is copied
    to all callers.
    """
    settings = load_settings(directory)
    if who == OWN_HOLDERS["cluster"]:
        refuse_running_hosts(settings)
    stored = SecretStore(settings.cluster_directory).renew(who)
    text = f"the new secret for {who} is in {stored.path}; when all use it: bookkeeper secret forget {directory} {who}"
    Output(as_json).result(text + _for_hosts(settings, stored), _record(stored, settings))


def _for_hosts(settings: Settings, stored: StoredSecret) -> str:
    """What hosts that share no directory still need; "" where all read one."""
    if settings.storage.volume != "none":
        return ""
    file = stored.path.relative_to(settings.cluster_directory)
    return f"; copy {file} to the same place on all other hosts, mode 600"


def refuse_running_hosts(settings: Settings) -> None:
    """Raise RefusedError while processes run on hosts that share no directory: those of this host would show a secret
    that the others do not know yet.
    """
    if settings.storage.volume != "none":
        return
    with closing(open_coordination(settings)) as coordination:
        running = [one.session_id for one in coordination.sessions(*KINDS) if one.alive]
    if running:
        raise RefusedError(
            f"{', '.join(running)} run, and those of other hosts do not know a new secret: stop all hosts, renew it, "
            "copy secrets/cluster.secret and secrets/cluster.previous.secret to each, and start them"
        )


@secret.command()
@_DIRECTORY
@click.argument("who", metavar="WHO")
@click.option("--all", "all_secrets", is_flag=True, help="For a peer: refuse its present secret, too.")
@_JSON
def forget(directory: Path, who: str, all_secrets: bool, as_json: bool) -> None:
    """Refuse the secret that WHO had before `secret renew`, and close connections that were opened with it."""
    settings = load_settings(directory)
    removed = SecretStore(settings.cluster_directory).forget(who, all_secrets)
    ids = [stored.secret.id for stored in removed]
    text = f"{who} is refused with {', '.join(ids)} from now on" if ids else f"{who} has no previous secret"
    Output(as_json).result(text, {"who": who, "forgotten": ids})


@secret.command()
@_DIRECTORY
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
@_JSON
def export(directory: Path, file: Path, as_json: bool) -> None:
    """Write all secrets in DIR into the new FILE, mode 0600, for a host on another machine.

    Carry it there, join with `bookkeeper init NEW --join zk://... --secret-file FILE`, and remove all copies: who reads
    it counts as a process of the cluster. A cluster with an embedded coordination store has hosts on its machine alone.
    """
    settings = load_settings(directory)
    own, store = settings.instance, SecretStore(settings.cluster_directory)
    if settings.coordination_dir is not None:
        raise RefusedError(
            f"the coordination store of {own.name} is in {settings.coordination_dir}, which no other machine reaches: "
            f"a host of this machine needs no file (bookkeeper init NEW --join {directory})"
        )
    join = join_file_of(store, own.name, own.instance_id, settings.coordination.store_id, settings.coordination.user)
    write_join_file(file, join)
    text = (
        f"{file} lets a host of another machine into {own.name}; there: bookkeeper init NEW --join "
        f"{settings.coordination.url} --secret-file FILE; then remove all copies of it"
    )
    Output(as_json).result(text, {"file": str(file), "cluster": own.name, "secrets": sorted(join.secrets)})


def _record(stored: StoredSecret, settings: Settings) -> Record:
    shown, own = stored.path.parent.name == "to", stored.path.name in ("cluster.secret", "client.secret")
    return {
        "id": stored.secret.id,
        "use": "shown" if shown else "both" if own else "accepted",
        "who": stored.secret.cluster if shown else stored.secret.holder,
        "made": utc(stored.secret.made_ms),
        "file": str(stored.path.relative_to(settings.cluster_directory)),
        "path": str(stored.path),
        "instance_id": stored.secret.holder_instance_id or None,
        "tables": _tables(stored.secret) if stored.secret.kind == "peer" and not shown else None,
        "relays": list(stored.secret.relays) if stored.secret.kind == "peer" and not shown else None,
    }


def _tables(peer_secret: Secret) -> list[str]:
    return ["(all)"] if peer_secret.all_tables else list(peer_secret.tables)


COMMANDS = (make, tables, relays, list_secrets, renew, forget, export)
