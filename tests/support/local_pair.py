"""Two whole clusters inside the test, without Spark and without processes: what one writes arrives on the other.

Arrives: directories and settings. Leaves: :class:`LocalCluster`: a master with its threads, one tserver, the ship loop
behind the service of a replay process, a client. Nothing outlives the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from bookkeeper.client import Client, Mutation
from bookkeeper.clock import SystemClock
from bookkeeper.config.file import SETTINGS_FILE, load_settings
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.storage.volume.opening import open_volume
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.tserver.process import TServerProcess
from tests.support.books import books_of
from tests.support.exchange import EXCHANGE
from tests.support.local_replay import LocalReplay
from tests.support.masters import LocalMaster
from tests.support.volumes import path_of

HASTE: dict[str, object] = {
    "master.scan_interval_ms": 200,
    "master.gc_interval_ms": 100,
    "master.backoff_base_ms": 10,
    "master.backoff_max_ms": 50,
    "replay.message_retries": 0,
    "coordination.session_lease_ms": 600_000,
    "coordination.session_renew_ms": 1_000,
}
"""A test waits for what others need seconds for; no session ends because a machine is busy."""


Books = Callable[[str], str | None]
"""The metadata URL for a cluster of this name; None: a file of its own in the cluster's directory."""


def own_file(name: str) -> None:
    """SQLite for every cluster."""


@dataclass(slots=True)
class LocalCluster:
    """One cluster; see :func:`local_cluster`."""

    settings: Settings
    metadata: MetadataTable
    coordination: Coordination
    master: LocalMaster
    tserver: TServerProcess
    replay: LocalReplay
    client: Client
    died: list[str]

    @property
    def directory(self) -> Path:
        """The cluster's directory."""
        return self.settings.directory

    @property
    def volume(self) -> Volume:
        """Its files."""
        return open_volume(self.settings)

    def path(self, file: str) -> Path:
        """Where a file of the cluster lies."""
        return path_of(file, self.directory)

    @property
    def quorum(self) -> str:
        """The address by which a peer finds the cluster: that of its master."""
        return self.settings.master.address

    def replace_tserver(self, **changes: object) -> None:
        """End the tserver cleanly, and start another one with other settings."""
        self.tserver.stop()
        self.start_tserver(**changes)

    def start_tserver(self, **changes: object) -> None:
        """Start a tserver in place of one that has ended, with other settings."""
        settings = replace(self.settings, tserver=replace(self.settings.tserver, **changes))
        self.tserver = TServerProcess(settings, self.coordination, self.metadata, SystemClock(), self.died.append)
        self.tserver.start()

    def put(self, table: str, row: bytes, value: bytes, timestamp: int | None = None) -> None:
        """Write one cell, durably: a block of its own."""
        with self.client.writer(table) as writer:
            writer.add(Mutation(row).put(b"f", b"q", value, timestamp=timestamp))

    def rows(self, table: str) -> dict[bytes, bytes]:
        """Row to value."""
        return {cell.row: cell.value for cell in self.client.scan(table).cells()}


@contextmanager
def local_cluster(
    directory: Path, overrides: Mapping[str, object] | None = None, metadata_url: str | None = None
) -> Iterator[LocalCluster]:
    """A cluster that runs until the end of the block: a new one, or the one that the directory has."""
    wanted = {**HASTE, **EXCHANGE, **(overrides or {})}
    if (directory / SETTINGS_FILE).exists():
        settings = load_settings(directory)
    else:
        settings = init_cluster(directory, directory.name, metadata_url=metadata_url, overrides=wanted)
    died: list[str] = []
    with ExitStack() as stack:
        metadata = books_of(settings)
        stack.callback(metadata.close)
        master = stack.enter_context(LocalMaster(settings))
        coordination = open_coordination(settings)
        stack.callback(coordination.close)
        replay = stack.enter_context(LocalReplay(settings, coordination))
        tserver = TServerProcess(settings, coordination, metadata, SystemClock(), died.append)
        tserver.start()
        client = stack.enter_context(Client.connect(directory))
        made = LocalCluster(settings, metadata, coordination, master, tserver, replay, client, died)
        stack.callback(lambda: made.tserver.stop())
        yield made
    assert not died, died


@contextmanager
def local_pair(
    directory: Path,
    west_overrides: Mapping[str, object] | None = None,
    east_overrides: Mapping[str, object] | None = None,
    books: Books = own_file,
) -> Iterator[tuple[LocalCluster, LocalCluster]]:
    """``west`` replicates its table ``t`` to ``east``."""
    with (
        local_cluster(directory / "east", east_overrides, books("east")) as east,
        local_cluster(directory / "west", west_overrides, books("west")) as west,
    ):
        for cluster in (east, west):
            cluster.client.tables.create("t")
        west.client.replication.define_cluster("east", east.quorum)
        west.client.replication.enable("t", "east")
        yield west, east
