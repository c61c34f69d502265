"""The demo's two clusters, ``west`` and ``east``, of three hosts each: processes on this machine, with books in SQLite
or in one real HBase.

All processes are gone when the context manager ends; if the demo itself is killed with -9, they end by themselves.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from bookkeeper.client import Client
from bookkeeper.errors import InvalidInputError
from bookkeeper.security.secret_store import SecretStore
from bookkeeper.standalone.cluster_process import ClusterProcess
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.standalone.hbase.hbase_process import HBaseProcess
from shell.demo.screen import Screen

HOSTS = 3
"""Hosts of a cluster; each has a tserver."""

READY_S = 120.0
STOP_S = 20.0

SETTINGS: dict[str, object] = {
    "tserver.wal_roll_bytes": 4 * 1024 * 1024,
    "master.gc_interval_ms": 1_000,
    "standalone.hosts": HOSTS,
}
"""Logs roll early, so that the demo also closes logs, ships them to their end and deletes them."""


class DemoCluster(Struct, frozen=True):
    """One cluster: its processes and a client."""

    process: ClusterProcess
    client: Client

    @property
    def name(self) -> str:
        """``west`` or ``east``."""
        return self.process.settings.instance.name

    @property
    def quorum(self) -> str:
        """The address of its master."""
        return self.process.settings.master.address


class DemoClusters(Struct, frozen=True):
    """Both clusters; their masters answer."""

    west: DemoCluster
    east: DemoCluster

    def secret_file(self, *tables: str) -> Path:
        """The file of a secret with which west may replicate to these tables of east."""
        east = self.east.process.settings
        own = east.instance
        west = self.west.process.settings.instance
        made = SecretStore(east.directory).make_for_peer(west.name, own.name, own.instance_id, west.instance_id, tables)
        return made.path


@contextmanager
def running_clusters(directory: Path, metadata: str, screen: Screen) -> Iterator[DemoClusters]:
    """Start both clusters below ``directory``, and stop them at the end. ``metadata`` is ``sqlite``, ``hbase`` (started
    here) or ``hbase://HOST:PORT``. Raises BookkeeperError.
    """
    with ExitStack() as cleanup:
        books = _books(directory, metadata, cleanup, screen)
        processes = {}
        for name in ("west", "east"):
            settings = init_cluster(directory / name, name, None, 1, books and f"{books}_{name}", SETTINGS)
            command = [sys.executable, "-m", "shell.main", "standalone", str(settings.directory)]
            process = processes[name] = ClusterProcess(settings, command)
            cleanup.callback(process.stop, STOP_S)
            process.start()
        with screen.waiting("starting two clusters of a master, three hosts and a replay process each"):
            sides = {name: _ready_cluster(process, cleanup, screen) for name, process in processes.items()}
        yield DemoClusters(sides["west"], sides["east"])


def _books(directory: Path, metadata: str, cleanup: ExitStack, screen: Screen) -> str | None:
    """The URL of the clusters' books, without the name of a cluster; None = a SQLite file for each cluster."""
    if metadata == "sqlite":
        return None
    if metadata == "hbase":
        screen.log("starting a real HBase for the books of both clusters")
        hbase = HBaseProcess(directory / "hbase")
        cleanup.callback(hbase.stop)
        with screen.waiting("HBase starts"):
            hbase.start()
        metadata = f"hbase://{hbase.host}:{hbase.thrift_port}"
        screen.log(f"HBase answers at {metadata}")
    if not metadata.startswith("hbase://"):
        raise InvalidInputError(f"METADATA={metadata}: write sqlite, hbase, or hbase://HOST:PORT")
    return f"{metadata}/demo_{secrets.token_hex(4)}"


def _ready_cluster(process: ClusterProcess, cleanup: ExitStack, screen: Screen) -> DemoCluster:
    process.wait_ready(READY_S)
    settings = process.settings
    client = cleanup.enter_context(Client.connect(settings.directory))
    roles = ["master", "tserver1", *(f"host{n}.tserver1" for n in range(2, HOSTS + 1)), "replay"]
    pids = ", ".join(f"{role} {process.role(role).pid}" for role in roles)
    screen.log(f"{settings.instance.name} answers at {settings.master.address} (pids: {pids})")
    return DemoCluster(process, client)
