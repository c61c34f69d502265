"""The page cache of Linux and the disk below it, for files whose writes go through :class:`FileOps`.

A file shows every byte that was written. The disk has the bytes of the last sync that succeeded. A sync that fails
marks the pages clean, as Linux does: the file still shows them, and no later sync is about them. A power failure leaves
the disk's bytes. (ext4, on a block device that fails: ``test_failing_disk`` shows the same of a real one.)
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from bookkeeper.storage.volume.file_ops import FileOps


class PageCache:
    """For each file the bytes on disk, and the bytes that are written and not synced, with their positions."""

    def __init__(self) -> None:
        self._disk: dict[str, bytearray] = {}
        self._dirty: dict[str, list[tuple[int, bytes]]] = {}

    def written(self, path: str, position: int, content: bytes) -> None:
        """Bytes are in the file, and in dirty pages."""
        self._dirty.setdefault(path, []).append((position, content))

    def synced(self, path: str) -> None:
        """The disk has what was dirty."""
        disk = self._disk.setdefault(path, bytearray())
        for position, content in self._dirty.pop(path, []):
            disk.extend(bytes(max(0, position - len(disk))))
            disk[position : position + len(content)] = content

    def failed(self, path: str) -> None:
        """A sync failed: nothing is dirty any more, and the disk has what it had."""
        self._dirty.pop(path, None)

    def forget(self, path: str) -> None:
        """The file is gone, or empty and new."""
        self._disk.pop(path, None)
        self._dirty.pop(path, None)

    def renamed(self, source: str, target: str) -> None:
        """The file has another name."""
        self.forget(target)
        self.linked(source, target)
        self.forget(source)

    def linked(self, source: str, target: str) -> None:
        """The file has a second name, and no later write."""
        if source in self._disk:
            self._disk[target] = self._disk[source]
        if source in self._dirty:
            self._dirty[target] = self._dirty[source]

    def truncated(self, path: str, length: int) -> None:
        """The file was cut."""
        del self._disk.get(path, bytearray())[length:]
        dirty = self._dirty.get(path, [])
        dirty[:] = [(position, content[: length - position]) for position, content in dirty if position < length]

    def on_disk(self, path: str) -> bytes:
        """The bytes of a file that survive a power failure."""
        return bytes(self._disk.get(path, b""))

    def read_disk(self, path: str, buffer: mmap.mmap, position: int) -> int:
        """Read past the page cache; returns how many bytes there are."""
        found = self.on_disk(path)[position : position + len(buffer)]
        buffer[: len(found)] = found
        return len(found)

    def lose_power(self, path: Path) -> None:
        """The file is as its disk has it."""
        self._dirty.pop(str(path), None)
        if path.exists():
            path.write_bytes(self.on_disk(str(path)))


class CachedFileOps(FileOps):
    """Real files over a modelled disk. ``fails``: whether syncs do."""

    def __init__(self, cache: PageCache) -> None:
        self.cache = cache
        self.fails = False

    def writev(self, fd: int, buffers: Sequence[bytes | pa.Buffer | memoryview]) -> int:
        position = write_position(fd)
        count = super().writev(fd, buffers)
        self.cache.written(path_of_descriptor(fd), position, b"".join(map(bytes, buffers))[:count])
        return count

    def fdatasync(self, fd: int) -> None:
        self._sync(fd)

    def fsync(self, fd: int) -> None:
        self._sync(fd)

    def read_disk(self, fd: int, buffer: mmap.mmap, position: int) -> int:
        return self.cache.read_disk(path_of_descriptor(fd), buffer, position)

    def _sync(self, fd: int) -> None:
        path = path_of_descriptor(fd)
        if self.fails:
            self.cache.failed(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        self.cache.synced(path)


def write_position(fd: int) -> int:
    """The position of the next write to a descriptor."""
    if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND:
        return os.fstat(fd).st_size
    return os.lseek(fd, 0, os.SEEK_CUR)


def path_of_descriptor(fd: int) -> str:
    """The file that a descriptor is of."""
    return str(Path(f"/proc/self/fd/{fd}").readlink())
