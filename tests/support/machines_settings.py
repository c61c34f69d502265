"""Settings of a cluster whose hosts share no directory, and the file that lets a new host in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bookkeeper.config.sections import Settings
from bookkeeper.security.join_file import join_file_of, write_join_file
from bookkeeper.security.secret_store import SecretStore

NO_VOLUME: Mapping[str, object] = {"storage.volume": "none", "storage.logs": "host"}

ON_MACHINES: Mapping[str, object] = {
    **NO_VOLUME,
    "coordination.url": "zk://z1:2181/west",
    "metadata.url": "hbase://h1:9090/west",
}
"""Nobody listens at these addresses."""


def exported(settings: Settings, file: Path) -> Path:
    """``file``, which lets a new host in: what ``bookkeeper secret export`` writes."""
    own, named = settings.instance, settings.coordination
    store = SecretStore(settings.directory)
    write_join_file(file, join_file_of(store, own.name, own.instance_id, named.store_id, named.user))
    return file
