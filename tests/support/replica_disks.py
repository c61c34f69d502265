"""Hosts with disks of their own in one directory of a test, and segments on them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bookkeeper.model import Extent
from bookkeeper.replicas.values import Stage, Target
from bookkeeper.storage.replicas.file_checks import held_file
from bookkeeper.storage.replicas.host_store import HostStore
from bookkeeper.storage.replicas.manifest import HeldFile, ReplicaKey
from bookkeeper.storage.volume.file_ops import FileOps
from bookkeeper.tserver.replicas.held_replica import HeldReplica
from bookkeeper.tserver.replicas.held_replicas import HeldReplicas

KEY = ReplicaKey("3a", "t-0001")
EXTENT = Extent("3a", None, None)


class PowerLostError(Exception):
    """The machine loses its power."""


class WatchedOps(FileOps):
    """Notes the calls that change the disk. Loses the power at one of them, before or behind it; fails where told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls: list[str] = []
        self.cut_at = -1
        self.is_behind = False
        self.fail: dict[str, OSError] = {}

    def _call(self, name: str, act: Callable[[], object]) -> None:
        if name in self.fail:
            raise self.fail[name]
        with self._lock:  # a manifest is synced by another thread
            dies = len(self.calls) == self.cut_at
            self.calls.append(name)
        if dies and not self.is_behind:
            raise PowerLostError
        act()
        if dies:
            raise PowerLostError

    def writev(self, fd: int, buffers: Sequence[bytes | pa.Buffer | memoryview]) -> int:
        written: list[int] = []
        self._call("write", lambda: written.append(FileOps.writev(self, fd, buffers)))
        return written[0]

    def fsync(self, fd: int) -> None:
        name = "sync directory" if Path(f"/proc/self/fd/{fd}").is_dir() else "sync"
        self._call(name, lambda: FileOps.fsync(self, fd))

    def rename(self, source: Path, target: Path) -> None:
        self._call("rename", lambda: FileOps.rename(self, source, target))


@dataclass(slots=True)
class Disk:
    """One host: its directory, its open store, and the replicas on it."""

    directory: Path
    name: str
    ops: WatchedOps
    store: HostStore
    replicas: HeldReplicas

    def reopen(self) -> None:
        """The process dies and another one opens the directory."""
        self.store.close()
        self.ops = WatchedOps()
        self.store = HostStore.open(self.directory, self.name, self.ops)
        self.replicas = HeldReplicas(self.store)

    def held(self, placement_id: str = "", stage: Stage = Stage.LIVE, targets: tuple[Target, ...] = ()) -> HeldReplica:
        """The replica of the tablet of these tests."""
        return self.replicas.open(KEY, EXTENT, placement_id or f"p-{self.name}", stage, targets)

    def file(self, name: str, content: bytes | None = None) -> HeldFile:
        """A durable file in the tablet's directory."""
        full = KEY.prefix + name
        self.store.volume.create(full, [os.urandom(100) if content is None else content]).close()
        return held_file(self.store.volume, full, b'{"records":1}')


def disk(directory: Path, name: str, ops: WatchedOps | None = None) -> Disk:
    """A host with an empty disk below ``directory``."""
    ops = ops or WatchedOps()
    store = HostStore.open(directory / name / "replicas", name, ops)
    return Disk(directory / name / "replicas", name, ops, store, HeldReplicas(store))
