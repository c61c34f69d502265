"""A cluster whose hosts have their logs on their own disks, without a master: the test does a master's acts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bookkeeper.clock import SystemClock
from bookkeeper.config.sections import Settings
from bookkeeper.log_homes.log_volume import LogVolume
from bookkeeper.log_homes.opening import open_homes, open_logs
from bookkeeper.standalone.joining import join_cluster
from bookkeeper.storage.volume.names import log_directory
from tests.support.tservers import Ground, Node

ON_HOSTS: Mapping[str, object] = {"storage.logs": "host"}


def logs_of(west: Ground) -> LogVolume:
    """All logs of the cluster, as a process finds them that holds no host."""
    return open_logs(
        west.volume, open_homes(west.metadata, west.volume), west.coordination, west.pool.tserver, SystemClock()
    )


def another_host(west: Ground, directory: Path, name: str = "host2") -> Settings:
    """A host that has joined."""
    return join_cluster(directory / name, west.settings.directory, name)


def names_of(west: Ground, node: Node) -> list[str]:
    """The names of a node's logs, in order. Raises OSError while its host is away."""
    found = logs_of(west).list_names(f"{log_directory(node.session_id)}/")
    return [name for name in found if name.endswith(".wal")]
