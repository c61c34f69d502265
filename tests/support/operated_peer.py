"""North, a peer of west whose operator does each step by hand: its secrets, its processes, a small disk."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace

from bookkeeper.errors import ExistsError
from bookkeeper.security.secret_store import SecretStore
from tests.support.cluster import Cluster
from tests.support.local_pair import LocalCluster, local_cluster
from tests.support.small_disk import NoMountError, SmallDisk, small_disk

SMALL: dict[str, object] = {"tserver.value_bytes_max": 1_000, "tserver.memtable_flush_bytes": 4 << 20}

DISK_BYTES = 256 << 20
"""Of the disk of the peer's own: room for the other tests, for old versions, and for the reserve."""


class OperatedPeer:
    """North, which may be replaced by another cluster at the same address, and the directory for west's operator."""

    def __init__(self, west: Cluster, place: Path) -> None:
        self.west = west
        self.here = place / "operator"
        self.here.mkdir()
        self._place = place
        self._stack = ExitStack()
        self._running = ExitStack()
        self.disk: SmallDisk | NoMountError = self._small_disk(place / "north")
        self.north = self._start("north")

    def _small_disk(self, place: Path) -> SmallDisk | NoMountError:
        """A disk of its own for a directory; without the right to mount, the reason."""
        try:
            return self._stack.enter_context(small_disk(place, DISK_BYTES))
        except NoMountError as error:
            return error

    def _start(self, name: str, overrides: dict[str, object] | None = None) -> LocalCluster:
        started = self._running.enter_context(local_cluster(self._place / name, {**SMALL, **(overrides or {})}))
        for known in (started.directory / "secrets").rglob("everybody*"):
            known.unlink()
        return started

    def stop(self) -> None:
        """Nobody answers at its address."""
        self.end_processes()
        self._stack.close()

    def end_processes(self) -> None:
        """Its directory stays as it is."""
        self._running.close()

    def start_again(self) -> None:
        """It goes on in the state of its directory."""
        self.north = self._start("north")

    def replace_by_another(self) -> None:
        """Another cluster answers at its address."""
        self.stop()
        port = self.north.settings.master.port
        self.north = self._start("other", {"master.port": port})

    @property
    def store(self) -> SecretStore:
        """Its secrets."""
        return SecretStore(self.north.directory)

    def make_secret(self, *tables: str) -> None:
        """Its operator makes a secret for west, and gives it to west's."""
        own = self.north.settings.instance
        west_id = self.west.settings.instance.instance_id
        try:
            self.store.make_for_peer("west", own.name, own.instance_id, west_id, list(tables), not tables)
        except ExistsError:
            self.store.change_rights("west", lambda found: replace(found, tables=tables, all_tables=not tables))
        self.hand_over()

    def hand_over(self) -> None:
        """A copy of the secret, where west's operator works."""
        shutil.copy(self.store.directory / "from" / "west.secret", self.here / "west.secret")

    def define(self) -> None:
        """West knows it as north."""
        self.west.client.replication.define_cluster("north", self.north.quorum, self.here / "west.secret")

    @property
    def places(self) -> dict[str | None, Path]:
        """Where the steps are typed."""
        return {None: self.here, "north": self.north.directory}
