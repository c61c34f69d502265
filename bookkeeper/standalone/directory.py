"""The directory of one cluster: making it, and completing what a cut left out.

Arrives: a directory, a name, and what the operator wants different. Leaves: the settings file, the directories, the
secrets of its processes and clients, the record of this instance in the coordination store, and the metadata table.
Survives a crash: the settings file is written whole or not at all and claims the directory; everything after it is
idempotent and is done again by :func:`complete_cluster` whenever the cluster is started.
Sources: design section 9; rule R23 (an identity of its own, for ever).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bookkeeper.config import SETTINGS_FILE, Settings, new_settings, write_settings
from bookkeeper.coordination.config_changes import register_instance
from bookkeeper.coordination.config_tree import Instance
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import ExistsError, InvalidInputError
from bookkeeper.metadata.opening import open_metadata
from bookkeeper.security.store import SECRETS_DIR, SecretStore
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
    """Make the directories, the secrets and the instance's record where they are missing. Raises RefusedError when the
    coordination store belongs to another instance.
    """
    for path in (settings.wal_dir, settings.tables_dir, settings.logs_dir):
        path.mkdir(exist_ok=True)
    SecretStore(settings.directory).complete(settings.instance.name, settings.instance.instance_id)
    coordination = open_coordination(settings)
    try:
        register_instance(coordination, Instance(settings.instance.instance_id, settings.instance.name))
    finally:
        coordination.close()


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
    if url.startswith("sqlite:"):
        path = Path(unquote(urlsplit(url).path[1:]))
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
