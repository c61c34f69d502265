"""The directory of one cluster, and of a host that joined it: ``init`` makes it, and each start completes it.

``init`` creates the books with their owner first. Then it writes the settings file, atomically; that file claims the
directory. :func:`complete_cluster` makes everything else, idempotently, at ``init`` and at each start: the directories,
the secrets and the record of the instance in the coordination store. An ``init`` that is interrupted before the
settings file leaves books without a cluster, and the next ``init`` reports them. ``joining`` makes the directory of a
further host, which shares the stores of the cluster. Rule: R23 (a permanent identity).
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config.file import SETTINGS_FILE, new_settings, write_settings
from bookkeeper.config.host_id import host_id_of, make_host_id
from bookkeeper.config.sections import Settings, hbase_quorum
from bookkeeper.coordination.config_changes import register_instance
from bookkeeper.coordination.config_tree import Instance
from bookkeeper.coordination.connect import keep_password, make_zookeeper, open_coordination, remove_zookeeper
from bookkeeper.coordination.embedded import COORDINATION_FILE
from bookkeeper.coordination.fixed_election import agree_on_election, replace_election
from bookkeeper.coordination.host_names import claim_name, place_of
from bookkeeper.coordination.host_starts import refuse_older_store
from bookkeeper.coordination.shared_settings import agree_on_settings, record_settings
from bookkeeper.errors import ExistsError, InvalidInputError, NotFoundError
from bookkeeper.metadata.opening import sqlite_path
from bookkeeper.security.file_roots import private_roots
from bookkeeper.security.private_files import DIRECTORY_MODE, tighten
from bookkeeper.security.secret_store import SECRETS_DIR, SecretStore
from bookkeeper.sqlite_file import check_journal
from bookkeeper.standalone.books import check_books, make_books
from bookkeeper.standalone.durable_stores import make_durable
from bookkeeper.standalone.file_birth import born_ns
from bookkeeper.standalone.hbase.gateway import GATEWAY_PORT, gateway_for
from bookkeeper.standalone.ports import free_ports
from bookkeeper.storage.replicas.host_store import read_starts

LOG = logging.getLogger(__name__)

MONITOR_PORT = "monitor.port"

ZOOKEEPER_LEASE_MS = 15_000
"""Lease of a new cluster in ZooKeeper: three renewals may go without an answer while its servers elect a leader."""

NOTE = Path("run") / "directory"
"""The inode and the path of the directory at its last start, and when the directory and this file were born."""


def init_cluster(
    directory: Path | str,
    name: str,
    master_port: int | None = None,
    tservers: int = 1,
    metadata_url: str | None = None,
    overrides: Mapping[str, object] | None = None,
    password_file: Path | None = None,
) -> Settings:
    """Make a cluster in ``directory`` and return its settings. ``overrides`` are further settings by dotted name.
    Chooses a free port for the master without ``master_port``, and for the monitor unless ``overrides`` has one.
    ``password_file`` has the password of ``coordination.user``, and is copied to the secrets.

    Changes nothing when it raises InvalidInputError (a bad value, or an unusable directory, such as one of another
    user), ExistsError (the directory has a cluster or any other entry, the metadata table belongs to a cluster, or the
    root in ZooKeeper is there), NotFoundError (no Java or no jars for the gateway to the books, no node above that
    root), RefusedError (ZooKeeper refuses the user), or TransientError (a store does not answer).
    """
    home = Path(directory).absolute()
    _refuse_used_directory(home)
    free_port, monitor_port, gateway_port = free_ports(3)
    own_gateway = {GATEWAY_PORT: gateway_port} if hbase_quorum(metadata_url or "") else {}
    settings = new_settings(
        home,
        name,
        master_port=free_port if master_port is None else master_port,
        tservers=tservers,
        metadata_url=metadata_url,
        overrides={MONITOR_PORT: monitor_port, **own_gateway, **_chosen(overrides or {}), **(overrides or {})},
    )
    if settings.host.cluster:
        raise InvalidInputError("host.cluster is for a host that joins a cluster: bookkeeper init DIR --join CLUSTER")
    _refuse_missing_directory(settings)
    _refuse_other_entries(home, sqlite_path(settings.metadata_url))
    try:
        clock = SystemClock()
        with gateway_for(settings, clock), _new_store(settings, clock, password_file) as settings:
            make_books(settings)
            if settings.storage.volume == "none":
                make_host_id(settings.directory)
            write_settings(settings)
            keep_password(settings, password_file)
            complete_cluster(settings, is_new=True)
    except OSError as error:
        raise InvalidInputError(f"{home} can't hold a cluster ({error.strerror}); choose another directory") from error
    return settings


def _chosen(overrides: Mapping[str, object]) -> Mapping[str, object]:
    """Settings of a new cluster that follow from others: a lease in ZooKeeper has to outlast an election of
    ZooKeeper's own, and without a common Volume the logs lie on the hosts.
    """
    chosen: dict[str, object] = {}
    if str(overrides.get("coordination.url", "")).startswith("zk:"):
        chosen["coordination.session_lease_ms"] = ZOOKEEPER_LEASE_MS
    if overrides.get("storage.volume") == "none":
        chosen["storage.logs"] = "host"
    return chosen


@contextmanager
def _new_store(settings: Settings, clock: Clock, password_file: Path | None) -> Iterator[Settings]:
    """Make the root of a new cluster in ZooKeeper, and yield the settings that name it; an embedded store is made when
    it is opened. When the settings are not written in the end, the root is removed.
    """
    if settings.coordination_dir is not None:
        yield settings
        return
    store_id = make_zookeeper(settings, clock, password_file)
    settings = replace(settings, coordination=replace(settings.coordination, store_id=store_id))
    try:
        yield settings
    except BaseException:
        if not (settings.directory / SETTINGS_FILE).exists():
            remove_zookeeper(settings, clock, password_file)
        raise


def complete_cluster(settings: Settings, *, alone: bool = True, is_new: bool = False) -> list[str]:
    """Make missing directories, secrets and the records of instance and host, and check the stores. ``alone``: no
    process uses the stores meanwhile, so they are repaired, too, and checked cell by cell, and the election of these
    settings is from now on that of the cluster. Never creates books. Returns lines for the operator of a cluster that
    was there before: its secrets were missing, or it is a copy.

    With a store in ZooKeeper hosts of other machines may run, and a host may be alone in its own directory. So only
    ``init`` (``is_new``) makes secrets then, and fixes the election.

    Raises as :func:`check_books`, :func:`refuse_older_store`, :func:`claim_name`, :func:`agree_on_election` and
    :func:`agree_on_settings`; NotFoundError for secrets, or the id of the host, that are missing and can't be made.
    """
    is_embedded = settings.coordination_dir is not None
    may_make = is_embedded or is_new
    if not may_make:
        refuse_missing_secrets(settings)
        open_coordination(settings).close()  # before anything is changed
    if alone:
        make_stores_durable(settings)
        check_journals(settings)
    close_to_others(settings)
    for path in (settings.wal_dir, settings.tables_dir, settings.logs_dir, *private_roots(settings)):
        path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    secrets = SecretStore(settings.cluster_directory)
    made = secrets.complete(settings.instance.name, settings.instance.instance_id) if may_make else []
    copy = _noted_copy(settings.directory)
    coordination = open_coordination(settings)
    try:
        check_books(settings, coordination, thoroughly=alone)
        refuse_older_store(coordination, settings.host.name, read_starts(settings.replicas_dir))
        register_instance(coordination, Instance(settings.instance.instance_id, settings.instance.name))
        claim_name(coordination, settings.host.name, place_of_host(settings), host_id_of(settings))
        fix_election = replace_election if alone and may_make else agree_on_election
        fix_election(coordination, settings.replicas.election)
        agree_on_settings(coordination, settings)
        record_settings(coordination, settings)
    finally:
        coordination.close()
    return [line for line in (_made_line(settings, made), copy) if line]


def place_of_host(settings: Settings) -> str:
    """The directory of this host in its record: a path of its own machine where hosts share no directory."""
    if settings.storage.volume == "none":
        return str(settings.directory)
    return place_of(settings.directory, settings.cluster_directory)


def refuse_missing_secrets(settings: Settings) -> None:
    """Raise NotFoundError when one of the cluster's own secrets is missing."""
    store = SecretStore(settings.cluster_directory)
    if missing := store.missing():
        raise NotFoundError(
            f"{store.directory} lacks the secrets of {', '.join(missing)}, and a start makes none where other hosts "
            "may have them: restore this directory from a backup, or copy them from another host"
        )


def _made_line(settings: Settings, made: Sequence[str]) -> str:
    """A line about secrets that were made; empty when none was."""
    if not made:
        return ""
    return (
        f"{settings.cluster_directory / SECRETS_DIR} lacked the secrets of {', '.join(made)}, and new ones were made: "
        "copies of former ones open nothing any more; give clients and viewers the new ones, and make those of "
        "peers again"
    )


def _noted_copy(directory: Path) -> str:
    """Note this directory; a line for the operator when another one was noted before, else empty. A copy of a running
    cluster has the same instance id, and if both run, they are one instance twice. A directory that was moved keeps its
    inode, and a copy has another one. With the original at its place it is a copy for sure; without, it may also have
    been restored or moved to another disk. The roots of all disks have one inode, and a directory into which files are
    restored keeps its own: then the births tell. Raises OSError.
    """
    note = directory / NOTE
    inode = directory.stat().st_ino
    before = _read_note(note)
    note.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    with os.fdopen(os.open(note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        born = [born_ns(directory), born_ns(note)]
        file.write(json.dumps({"inode": inode, "path": str(directory), "born": born}) + "\n")
    if before is None or (before["inode"] == inode and before.get("born", born) == born):
        return ""
    if before["inode"] == inode:
        found = "has files that were restored or copied into it: if the cluster from which they are also runs, both are"
    elif _inode_of(Path(str(before["path"]))) == before["inode"]:
        found = f"is a copy of {before['path']}, which is still there: start only one of the two, because both are"
    else:
        found = (
            f"was {before['path']}, and was copied, restored or moved to another disk: if it also runs there, both are"
        )
    return (
        f"{directory} {found} the same instance; if this one is older, peers may have records that it lacks, and the "
        "records that it sends may be known there under the same names"
    )


def _inode_of(directory: Path) -> int | None:
    """None when there is no such directory, or not for this user."""
    try:
        return directory.stat().st_ino
    except OSError:
        return None


def _read_note(note: Path) -> dict[str, object] | None:
    """The note; None without one, and for one that was cut by a crash: it is no store."""
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) and {"inode", "path"} <= found.keys() else None


def make_stores_durable(settings: Settings) -> None:
    """Make both SQLite files durable, see :func:`make_durable`, and log each repair. Raises OSError."""
    for path in (_coordination_file(settings), sqlite_path(settings.metadata_url)):
        if path is not None:
            for file in make_durable(path):
                LOG.warning("the disk lacked a part of %s; the file was written again", file)


def _coordination_file(settings: Settings) -> Path | None:
    return None if settings.coordination_dir is None else settings.coordination_dir / COORDINATION_FILE


def close_to_others(settings: Settings) -> list[Path]:
    """As :func:`tighten`, and log each path that was open. Raises RefusedError for a path of another owner."""
    opened = tighten(settings, sqlite_path(settings.metadata_url))
    for path in opened:
        LOG.warning("%s was open to other users of this machine; its mode is now private", path)
    return opened


def check_journals(settings: Settings) -> None:
    """Check the write-ahead files before SQLite opens them. Raises CorruptionError."""
    stores = (
        (_coordination_file(settings), "coordination store"),
        (sqlite_path(settings.metadata_url), "metadata table"),
    )
    for path, title in stores:
        if path is not None:
            check_journal(path, title)


def _refuse_used_directory(home: Path) -> None:
    if (home / SETTINGS_FILE).exists():
        raise ExistsError(f"{home} has a cluster already; choose another directory, or start it: bookkeeper standalone")
    for name in ("coordination", "wal", "tables", SECRETS_DIR):
        if (home / name).exists():
            raise ExistsError(f"{home} has a directory '{name}' of another cluster; choose an empty directory")


def _refuse_other_entries(home: Path, database: Path | None) -> None:
    """Raise InvalidInputError for a directory of another user, who could not open it any more, and ExistsError for one
    with entries besides the books, which are reported by themselves: all of them would be closed to other users.
    """
    if not home.is_dir():
        return
    owner = home.stat().st_uid
    if owner != os.geteuid():
        raise InvalidInputError(
            f"{home} belongs to another user (uid {owner}), who would be shut out of it: run as that user, or choose "
            "another directory"
        )
    books = () if database is None else (database.name,)
    known = ("lost+found", f".{SETTINGS_FILE}.", *books)
    others = sorted(path.name for path in home.iterdir() if not path.name.startswith(known))
    if others:
        raise ExistsError(
            f"{home} is not empty ({', '.join(others[:3])}{', ...' * (len(others) > 3)}), and all of it would be "
            "closed to other users; choose an empty directory"
        )


def _refuse_missing_directory(settings: Settings) -> None:
    """Raise InvalidInputError when the books are a file in another directory, which is missing."""
    path = sqlite_path(settings.metadata_url)
    if path is not None and path.parent != settings.directory and not path.parent.is_dir():
        raise InvalidInputError(f"metadata URL {settings.metadata.url}: no directory {path.parent}; make it first")
