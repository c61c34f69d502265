"""The directory of one cluster: making it, and completing what a cut left out.

Arrives: a directory, a name, and what the operator wants different. Leaves: the settings file, the directories, the
secrets of its processes and clients, the record of this instance in the coordination store, and the metadata table.
Survives a crash: the books come first, and with them their owner; the settings file is written whole or not at all and
claims the directory. Everything after it is idempotent and is done again by :func:`complete_cluster` whenever the
cluster is started. An ``init`` that was cut before leaves books that no settings file names: its error tells the next
one.
Rule: R23 (an identity of its own, for ever).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from bookkeeper.config import SETTINGS_FILE, Settings, new_settings, write_settings
from bookkeeper.coordination.config_changes import register_instance
from bookkeeper.coordination.config_tree import Instance
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.embedded import COORDINATION_FILE
from bookkeeper.errors import ExistsError, InvalidInputError
from bookkeeper.metadata.opening import sqlite_path
from bookkeeper.security.file_roots import private_roots
from bookkeeper.security.private_files import DIRECTORY_MODE, tighten
from bookkeeper.security.secret_store import SECRETS_DIR, SecretStore
from bookkeeper.sqlite_file import check_journal
from bookkeeper.standalone.books import check_books, make_books
from bookkeeper.standalone.durable_stores import settle_store
from bookkeeper.standalone.hbase_process import free_ports

LOG = logging.getLogger(__name__)

MONITOR_PORT = "monitor.port"


def init_cluster(
    directory: Path | str,
    name: str,
    master_port: int | None = None,
    tservers: int = 1,
    metadata_url: str | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """Make a cluster in ``directory`` and return its settings; without ``master_port`` a free one is chosen, and so is
    the monitor's, unless ``overrides`` have it.

    ``overrides`` are further settings by dotted name. Nothing is changed when this raises InvalidInputError (a bad
    value, or a directory that can't be used), ExistsError (a cluster is there, or the metadata table belongs to
    one), or TransientError (the metadata store does not answer).
    """
    home = Path(directory).absolute()
    _refuse_used_directory(home)
    free_port, monitor_port = free_ports(2)
    settings = new_settings(
        home,
        name,
        master_port=free_port if master_port is None else master_port,
        tservers=tservers,
        metadata_url=metadata_url,
        overrides={MONITOR_PORT: monitor_port, **(overrides or {})},
    )
    _refuse_missing_directory(settings)
    try:
        make_books(settings)
        write_settings(settings)
        complete_cluster(settings)
    except OSError as error:
        raise InvalidInputError(f"{home} can't hold a cluster ({error.strerror}); choose another directory") from error
    return settings


def complete_cluster(settings: Settings) -> None:
    """Make the directories, the secrets and the instance's record where they are missing, and check the stores: nothing
    may be at work in them. Books are never made here. Raises what :func:`check_books` raises.
    """
    settle_stores(settings)
    check_journals(settings)
    close_to_others(settings)
    for path in (settings.wal_dir, settings.tables_dir, settings.logs_dir, *private_roots(settings)):
        path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    SecretStore(settings.directory).complete(settings.instance.name, settings.instance.instance_id)
    coordination = open_coordination(settings)
    try:
        check_books(settings, coordination, thoroughly=True)
        register_instance(coordination, Instance(settings.instance.instance_id, settings.instance.name))
    finally:
        coordination.close()


def settle_stores(settings: Settings) -> None:
    """What the files of SQLite show is on the disk. Raises OSError."""
    for path in (settings.coordination_dir / COORDINATION_FILE, sqlite_path(settings.metadata_url)):
        if path is not None:
            for file in settle_store(path):
                LOG.warning("the disk lacked a part of %s: it is written anew", file)


def close_to_others(settings: Settings) -> list[Path]:
    """See :func:`tighten`; each place that was open has a line in the log."""
    found = tighten(settings, sqlite_path(settings.metadata_url))
    for path in found:
        LOG.warning("%s was open to other users of this machine, and is no more", path)
    return found


def check_journals(settings: Settings) -> None:
    """Before SQLite opens the files. Raises CorruptionError."""
    check_journal(settings.coordination_dir / COORDINATION_FILE, "coordination store")
    path = sqlite_path(settings.metadata_url)
    if path is not None:
        check_journal(path, "metadata table")


def _refuse_used_directory(home: Path) -> None:
    if (home / SETTINGS_FILE).exists():
        raise ExistsError(
            f"{home} holds a cluster already; choose another directory, or start it: bookkeeper standalone"
        )
    for name in ("coordination", "wal", "tables", SECRETS_DIR):
        if (home / name).exists():
            raise ExistsError(f"{home} holds a directory '{name}' of some other cluster; choose an empty directory")


def _refuse_missing_directory(settings: Settings) -> None:
    """A file of books elsewhere has its directory."""
    path = sqlite_path(settings.metadata_url)
    if path is not None and path.parent != settings.directory and not path.parent.is_dir():
        raise InvalidInputError(f"metadata URL {settings.metadata.url}: no directory {path.parent}; make it first")
