"""Hosts of a simulated cluster: a directory with a disk of its own, and the one tserver process that holds it.

Arrives: what a schedule wants to happen to a host: its process starts, dies, stops and goes on, its machine loses its
power, its disk is wiped. Leaves: the host's processes as nodes of the cluster, and what its disk has, as anybody who
reads it finds it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from bookkeeper.config.sections import Settings
from bookkeeper.storage.replicas.host_store import INCARNATION, INCOMING, MANIFESTS
from bookkeeper.storage.replicas.manifest import Manifest
from bookkeeper.storage.replicas.manifest_codec import decode_manifest
from bookkeeper.storage.volume.names import SCRATCH_SUFFIX
from tests.support.simulation.host_disk import HostDisks
from tests.support.simulation.kernel import Process

if TYPE_CHECKING:
    from tests.support.simulation.cluster import Cluster, Node


@dataclass(eq=False)
class Host:
    """One host. ``node``: the process that was started last on it."""

    cluster: Cluster
    name: str
    settings: Settings
    node: Node | None = None

    # ---- its process

    def start(self) -> Node:
        """A new tserver process."""
        self.node = self.cluster.start_tserver(self)
        return self.node

    @property
    def process(self) -> Process:
        """The process that was started last."""
        assert self.node is not None, f"no process was started on {self.name}"
        return self.node.process

    @property
    def is_up(self) -> bool:
        """Whether its process lives."""
        return self.node is not None and not self.node.process.dead

    @property
    def serves(self) -> bool:
        """Whether its process has begun, its session is valid, and the session names the host."""
        node = self.node
        return node is not None and node in self.cluster.booted(self.cluster.tservers) and self.holds_lock

    @property
    def holds_lock(self) -> bool:
        """Whether its process opened its session as this host."""
        session = self.cluster.coordination.sessions_by_id.get(self.session or "")
        return session is not None and session.host is not None and session.host.name == self.name

    @property
    def session(self) -> str | None:
        """The session of its process."""
        return None if self.node is None else self.cluster.session_of(self.node)

    def kill(self, power: bool = False) -> None:
        """kill -9, or a power failure of the machine: its log and its disk have what was synced."""
        if self.is_up:
            assert self.node is not None
            self.cluster.kill(self.node, power)
        if power:
            HostDisks.lose_power(self.settings.replicas_dir)
            for session in {Path(log).parent.name for log in self.logs()}:
                self.cluster.world.ledger.power_lost(f"{self.cluster.name}/{session}")

    def stop(self, outlived: bool = True) -> None:
        """Stop the process; the others believe that it is dead when it outlives its session."""
        assert self.node is not None
        self.node.process.suspended = True
        if outlived:
            self.cluster.expire(self.node)

    def resume(self) -> None:
        """Let the stopped process go on."""
        assert self.node is not None
        self.cluster.world.kernel.resume(self.node.process)

    # ---- its disk

    def wipe(self) -> None:
        """Destroy the disk, with the process that uses it."""
        self.kill()
        HostDisks.forget(self.settings.replicas_dir)
        shutil.rmtree(self.settings.replicas_dir, ignore_errors=True)
        self.cluster.world.kernel.note(f"the disk of {self.name} is wiped")

    def fill(self) -> None:
        """The disk has no room from now on, except for the logs."""
        HostDisks.full.add(self.settings.replicas_dir)
        self.cluster.world.kernel.note(f"the disk of {self.name} is full")

    def make_room(self) -> None:
        """The disk has room again."""
        HostDisks.full.discard(self.settings.replicas_dir)

    @property
    def incarnation(self) -> str | None:
        """The incarnation of the disk; None on an empty one."""
        path = self.settings.replicas_dir / INCARNATION
        return path.read_text() if path.exists() else None

    def manifests(self) -> list[Manifest]:
        """The manifests on the disk. Raises CorruptionError."""
        found = sorted((self.settings.replicas_dir / MANIFESTS).glob("*/*"))
        return [read_manifest(path) for path in found if not path.name.endswith(SCRATCH_SUFFIX)]

    def manifest(self, table_id: str, directory: str) -> Manifest | None:
        """The manifest of a tablet's replica."""
        path = self.settings.replicas_dir / MANIFESTS / table_id / directory
        return read_manifest(path) if path.exists() else None

    def files(self) -> set[str]:
        """The names of the segment files on the disk."""
        root = self.settings.replicas_dir
        return {path.relative_to(root).as_posix() for path in (root / "tables").rglob("*") if path.is_file()}

    def logs(self) -> list[str]:
        """The names of the logs on the disk."""
        root = self.settings.replicas_dir
        return [path.relative_to(root).as_posix() for path in sorted((root / "wal").glob("*/*.wal"))]

    def incoming(self) -> set[str]:
        """The names of the files under way to the host."""
        root = self.settings.replicas_dir / INCOMING
        return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}

    def has(self, manifest: Manifest, name: str) -> bool:
        """Whether the disk has a file of a manifest, complete."""
        path = self.settings.replicas_dir / name
        held = manifest.files.get(name)
        return held is not None and path.exists() and path.stat().st_size == held.size_bytes


def read_manifest(path: Path) -> Manifest:
    """A manifest as the disk has it. Raises CorruptionError."""
    return _decoded(path.read_bytes())


_decoded = lru_cache(maxsize=512)(decode_manifest)
"""The laws read each manifest many times."""
