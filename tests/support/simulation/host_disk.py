"""The disk of a simulated host: real files, and a power failure that forgets bytes and names that were not synced. The
Volume of a cluster with hosts has real files, too, which no power failure takes.

Each write to a manifest, to a segment file or to a file under way is a step, and so is each new name. A log on a host's
disk takes the steps of any log. The lock of a host's directory goes with the process that has it.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path

import pyarrow as pa

from bookkeeper.storage.replicas.host_store import INCOMING, LOCK, MANIFESTS, HostStore
from bookkeeper.storage.replicas.manifest import ReplicaKey
from bookkeeper.storage.volume.file_ops import FileOps
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.volume.names import LOG_SUFFIX, LOGS, TABLES
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.writing.seal import COPY_SUFFIX
from tests.support.page_cache import path_of_descriptor, write_position
from tests.support.simulation.disk import Disk, SimFileOps
from tests.support.simulation.primitives import kernel
from tests.support.volumes import root_of

REPLICAS = "replicas"
"""The directory of a host's disk."""

STEPS = tuple(f"/{directory}/" for directory in (MANIFESTS, INCOMING, "tables", "wal"))
"""Parts of the paths of files whose changes are steps. The start of a process takes none: one host is as none."""


class HostDisks:
    """Writes that a power failure would undo, and listeners; for one world. ``incarnations``: how many disks there
    were. ``beside``: the roots of the Volumes of clusters with hosts. ``full``: the directories of hosts whose disks
    have no room; a log has its own, kept for its end. ``saved``: of a manifest; ``published``: of a segment on such a
    Volume; ``deleting``: of a host's directory and the names of files that go; ``removing``: of
    a host's directory and a replica.
    """

    unsynced: dict[Path, list[tuple[Path, Callable[[], object]]]] = {}  # noqa: RUF012
    written: set[str] = set()  # noqa: RUF012
    incarnations: int = 0
    beside: set[Path] = set()  # noqa: RUF012
    full: set[Path] = set()  # noqa: RUF012
    saved: Callable[[Path], None] = lambda _manifest: None
    published: Callable[[Path], None] = lambda _segment: None
    deleting: Callable[[Path, Sequence[str]], None] = lambda _root, _names: None
    removing: Callable[[Path, ReplicaKey], None] = lambda _root, _key: None

    @classmethod
    def clear(cls) -> None:
        """A new world."""
        cls.unsynced, cls.written, cls.incarnations, cls.beside, cls.full = {}, set(), 0, set(), set()
        cls.saved, cls.published, cls.deleting, cls.removing = nothing, nothing, nothing, nothing

    @classmethod
    def named(cls, path: Path, undo: Callable[[], object]) -> None:
        """A name changed, and its directory is not synced yet."""
        cls.unsynced.setdefault(path.parent, []).append((path, undo))

    @classmethod
    def take_room(cls, path: str) -> None:
        """Raise OSError when the disk has no room for a file."""
        if any(Path(path).is_relative_to(root) for root in cls.full) and not is_log(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    @classmethod
    def is_durable(cls, path: Path) -> bool:
        """Whether a power failure leaves a file as it is."""
        names = [name for name, _ in cls.unsynced.get(path.parent, ())]
        return path not in names and Disk.cache.on_disk(str(path)) == path.read_bytes()

    @classmethod
    def lose_power(cls, root: Path) -> None:
        """The disk has what was synced: names, then bytes."""
        for directory in [directory for directory in cls.unsynced if directory.is_relative_to(root)]:
            for _, undo in reversed(cls.unsynced.pop(directory)):
                undo()
        for path in sorted(cls.written):
            if Path(path).is_relative_to(root):
                Disk.cache.lose_power(Path(path))

    @classmethod
    def forget(cls, root: Path) -> None:
        """The disk is gone."""
        cls.unsynced = {d: undo for d, undo in cls.unsynced.items() if not d.is_relative_to(root)}
        gone = {path for path in cls.written if Path(path).is_relative_to(root)}
        cls.written -= gone
        for path in gone:
            Disk.cache.forget(path)


class SimHostOps(SimFileOps):
    """System calls on a host's disk; on other files those of logs."""

    def open(self, path: Path, flags: int) -> int:
        if not is_on_host(str(path)):
            return super().open(path, flags)
        is_new = bool(flags & os.O_CREAT) and not path.exists()
        if is_new:
            HostDisks.take_room(str(path))
        fd = FileOps.open(self, path, flags)
        if path.name == LOCK:
            released_with_the_process(fd, str(path))
        elif flags & os.O_WRONLY:
            Disk.open_files[fd] = str(path)
            HostDisks.written.add(str(path))
            if is_new:
                HostDisks.named(path, lambda: path.unlink(missing_ok=True))
            elif flags & os.O_TRUNC:
                Disk.cache.forget(str(path))
        return fd

    def writev(self, fd: int, buffers: Sequence[bytes | pa.Buffer | memoryview]) -> int:
        path = opened(fd)
        if not is_on_host(path) or is_log(path):
            return super().writev(fd, buffers)
        step(f"write {short(path)}", path)
        HostDisks.take_room(path)
        position = write_position(fd)
        count = os.writev(fd, buffers)
        HostDisks.written.add(path)
        Disk.cache.written(path, position, b"".join(map(bytes, buffers))[:count])
        return count

    def fdatasync(self, fd: int) -> None:
        if is_on_host(opened(fd)) and not is_log(opened(fd)):
            self.fsync(fd)
        else:
            super().fdatasync(fd)

    def fsync(self, fd: int) -> None:
        path = opened(fd)
        if not is_on_host(path) or is_log(path):
            super().fsync(fd)
        elif Path(path).is_dir():
            HostDisks.unsynced.pop(Path(path), None)
        else:
            step(f"sync {short(path)}", path)
            Disk.cache.synced(path)

    def truncate(self, fd: int, length: int) -> None:
        super().truncate(fd, length)
        Disk.cache.truncated(opened(fd), length)

    def link(self, source: Path, target: Path) -> None:
        if not is_on_host(str(target)):
            super().link(source, target)
            return
        step(f"link {short(str(target))}", str(target))
        HostDisks.take_room(str(target))
        FileOps.link(self, source, target)
        HostDisks.written.add(str(target))
        Disk.cache.linked(str(source), str(target))
        HostDisks.named(target, lambda: target.unlink(missing_ok=True))

    def rename(self, source: Path, target: Path) -> None:
        if not is_on_host(str(target)):
            if not is_shared_segment(target):
                super().rename(source, target)
                return
            kernel().pause(f"publish {target.parent.name}/{target.name}")
            super().rename(source, target)
            HostDisks.published(target)
            return
        step(f"rename {short(str(target))}", str(target))
        before = target.read_bytes() if target.exists() else None
        super().rename(source, target)
        HostDisks.written.discard(str(source))
        HostDisks.written.add(str(target))
        Disk.cache.renamed(str(source), str(target))
        HostDisks.named(target, lambda: put_back(target, before))
        if f"/{MANIFESTS}/" in str(target):
            HostDisks.saved(target)


def opened(fd: int) -> str:
    """The path of a descriptor."""
    return Disk.open_files.get(fd) or path_of_descriptor(fd)


def is_on_host(path: str) -> bool:
    """Whether a path lies on the disk of a host."""
    return f"/{REPLICAS}/" in path or path.endswith(f"/{REPLICAS}")


def is_shared_segment(path: Path) -> bool:
    """Whether a path is that of a segment on a Volume beside hosts."""
    return any(path.is_relative_to(root / TABLES) for root in HostDisks.beside)


def is_log(path: str) -> bool:
    """Whether a path on a host's disk is that of a log, or of a copy of one."""
    return f"/{REPLICAS}/{LOGS}" in path and path.endswith((LOG_SUFFIX, COPY_SUFFIX))


def nothing(*_arguments: object) -> None:
    """No listener."""


def judged_delete(
    delete: Callable[[LocalVolume, Sequence[str]], None],
) -> Callable[[LocalVolume, Sequence[str]], None]:
    """The product's deletion on a Volume; on a host's disk it is a step, and judged first."""

    @wraps(delete)
    def watched(volume: LocalVolume, names: Sequence[str]) -> None:
        if is_of_host(volume) and names:
            kernel().pause(f"delete {' '.join(names)}")
            HostDisks.deleting(volume._root, names)
        delete(volume, names)

    return watched


def is_of_host(volume: Volume) -> bool:
    """Whether a Volume is the disk of a host."""
    return isinstance(volume, LocalVolume) and volume._root.name == REPLICAS


def has_files(volume: Volume) -> bool:
    """Whether segments on a Volume are real files, as on a host: other processes copy them."""
    return is_of_host(volume) or root_of(volume) in HostDisks.beside


def judged_remove(remove: Callable[[HostStore, ReplicaKey], None]) -> Callable[[HostStore, ReplicaKey], None]:
    """The product's removal of a replica, judged first."""

    @wraps(remove)
    def watched(store: HostStore, key: ReplicaKey) -> None:
        kernel().pause(f"remove the replica of {key}")
        HostDisks.removing(store.incoming.parent, key)
        remove(store, key)

    return watched


def put_back(path: Path, content: bytes | None) -> None:
    """A file as it was before a name that a power failure forgot."""
    HostDisks.written.discard(str(path))
    if content is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(content)


def released_with_the_process(fd: int, path: str) -> None:
    """The system closes the descriptors of a process that dies, and a lock goes with them."""
    Disk.open_files[fd] = path
    current = kernel().current
    if current is not None:
        current.process.on_death.append(
            lambda: Disk.forget(fd) if Disk.open_files.get(fd) == path and not is_taken(fd, path) else None
        )


def is_taken(fd: int, path: str) -> bool:
    """Whether the number is another file's by now."""
    return path_of_descriptor(fd) != path


def step(label: str, path: str) -> None:
    """A change of a file is a step, except while a directory is made."""
    if any(part in path for part in STEPS):
        kernel().pause(label)


def short(path: str) -> str:
    """The host, and the end of the file's name."""
    before, _, name = path.rpartition("/replicas/")
    return f"{before.rsplit('/', 1)[-1]}: {name}"


class SimIncarnation:
    """Stands for the module ``uuid`` where a disk gets its incarnation: no seed changes because there are hosts."""

    @staticmethod
    def uuid4() -> uuid.UUID:
        HostDisks.incarnations += 1
        return uuid.UUID(int=HostDisks.incarnations)
