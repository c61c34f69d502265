"""The directory of one cluster: making it, and completing what a cut left out.

Arrives: a directory, a name, and what the operator wants different. Leaves: the settings file, the directories, the
secrets of its processes and clients, the record of this instance in the coordination store, and the metadata table.
Survives a crash: the settings file is written whole or not at all and claims the directory; everything after it is
idempotent and is done again by :func:`complete_cluster` whenever the cluster is started.
Sources: design section 9; rule R23 (an identity of its own, for ever).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from bookkeeper.config import SETTINGS_FILE, Settings, new_settings, write_settings
from bookkeeper.coordination.config_changes import register_instance
from bookkeeper.coordination.config_tree import Instance, read_config
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.embedded import COORDINATION_FILE
from bookkeeper.coordination.protocol import Coordination
from bookkeeper.errors import ExistsError, InvalidInputError
from bookkeeper.metadata.opening import open_metadata, sqlite_path
from bookkeeper.metadata.sqlite import SqliteMetadataTable
from bookkeeper.security.store import SECRETS_DIR, SecretStore
from bookkeeper.sqlite_file import JOURNAL_SUFFIX, check_journal, damaged
from bookkeeper.standalone.hbase_process import free_ports

METADATA_RETRY_MS = 5_000
"""How long init waits for a metadata store; longer than a hiccup, shorter than an operator's patience."""


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
    _refuse_used_books(settings)
    try:
        write_settings(settings)
        complete_cluster(settings)
    except OSError as error:
        raise InvalidInputError(f"{home} can't hold a cluster ({error.strerror}); choose another directory") from error
    open_metadata(settings.metadata_url, retry_for_ms=METADATA_RETRY_MS).close()
    return settings


def complete_cluster(settings: Settings) -> None:
    """Make the directories, the secrets and the instance's record where they are missing, and check the stores: nothing
    may be at work in them. Raises RefusedError when one belongs to another instance, CorruptionError when it is damaged
    or gone.
    """
    check_journals(settings)
    for path in (settings.wal_dir, settings.tables_dir, settings.logs_dir):
        path.mkdir(exist_ok=True)
    SecretStore(settings.directory).complete(settings.instance.name, settings.instance.instance_id)
    coordination = open_coordination(settings)
    try:
        check_books(settings, coordination)
        register_instance(coordination, Instance(settings.instance.instance_id, settings.instance.name))
    finally:
        coordination.close()


def check_journals(settings: Settings) -> None:
    """Before SQLite opens the files. Raises CorruptionError."""
    check_journal(settings.coordination_dir / COORDINATION_FILE, "coordination store")
    path = sqlite_path(settings.metadata_url)
    if path is not None:
        check_journal(path, "metadata table")


def check_books(settings: Settings, coordination: Coordination) -> None:
    """What is in a metadata table of SQLite is as it was written, and both stores are there: a table without its books
    would be empty, books without the tables' names would be collected. Raises CorruptionError, RefusedError.
    """
    path = sqlite_path(settings.metadata_url)
    if path is None:
        return
    empty = is_fresh(path)
    if not empty:
        with closing(SqliteMetadataTable(path)) as table:
            table.check(settings.instance.instance_id)
            empty = next(table.scan(), None) is None
    config = read_config(coordination)
    if empty and any(table.state == "online" for table in config.tables.values()):
        raise damaged(path, "metadata table", "it is gone or empty, and there are tables")
    if not empty and config.instance is None:
        store = settings.coordination_dir / COORDINATION_FILE
        raise damaged(store, "coordination store", f"it is gone or empty, and {path} holds books")


def is_fresh(path: Path) -> bool:
    """Whether nothing was ever written there. A write-ahead file may hold all that a database has."""
    journal = path.with_name(path.name + JOURNAL_SUFFIX)
    return not any(file.is_file() and file.stat().st_size for file in (path, journal))


def _refuse_used_directory(home: Path) -> None:
    if (home / SETTINGS_FILE).exists():
        raise ExistsError(
            f"{home} holds a cluster already; choose another directory, or start it: bookkeeper standalone"
        )
    for name in ("coordination", "wal", "tables", SECRETS_DIR):
        if (home / name).exists():
            raise ExistsError(f"{home} holds a directory '{name}' of some other cluster; choose an empty directory")


def _refuse_used_books(settings: Settings) -> None:
    """Two clusters over one metadata table would delete each other's files."""
    url = settings.metadata_url
    path = sqlite_path(url)
    if path is not None:
        if path.parent != settings.directory and not path.parent.is_dir():
            raise InvalidInputError(f"metadata URL {settings.metadata.url}: no directory {path.parent}; make it first")
        if not path.exists():
            return
    table = open_metadata(url, retry_for_ms=METADATA_RETRY_MS)
    try:
        used = next(iter(table.scan()), None) is not None
    finally:
        table.close()
    if used:
        raise ExistsError(f"the metadata table {url} holds the books of a cluster; name another one with --metadata")
