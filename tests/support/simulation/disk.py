"""The disk below a WAL: real files, real frames, and a power failure that forgets what was not synced.

``SimFileOps`` is the product's own system calls with a step before each, over a modelled page cache and disk
(``tests.support.page_cache``). Files are read whole, not mapped: a simulated power failure shortens them.
"""

from __future__ import annotations

import errno
import itertools
import mmap
import os
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import pyarrow as pa

from bookkeeper.errors import NotFoundError
from bookkeeper.storage.volume.file_ops import FileOps
from bookkeeper.storage.volume.sources import MappedSource
from tests.support.page_cache import PageCache, path_of_descriptor, write_position
from tests.support.simulation.primitives import kernel


class Disk:
    """The durable bytes of each file, and the listeners. ``failing``: sessions whose log's next sync fails."""

    cache = PageCache()
    failing: set[str] = set()  # noqa: RUF012 - one world at a time
    open_files: dict[int, str] = {}  # noqa: RUF012
    synced: Callable[[str], None] = lambda _path: None

    @classmethod
    def clear(cls) -> None:
        """A new world."""
        for fd in list(cls.open_files):
            cls.forget(fd)
        cls.cache, cls.failing, cls.open_files = PageCache(), set(), {}
        cls.synced = lambda _path: None

    @classmethod
    def forget(cls, fd: int) -> None:
        """Close a descriptor of a process that is gone."""
        if cls.open_files.pop(fd, None) is not None:
            os.close(fd)


class SimTempfile:
    """Stands for the module ``tempfile``: names are counted, so that a seed is a schedule."""

    @staticmethod
    def mkstemp(dir: Path, prefix: str, suffix: str) -> tuple[int, str]:  # noqa: A002 - the module's name for it
        for number in itertools.count():
            name = str(dir / f"{prefix}{number}{suffix}")
            try:
                return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), name
            except FileExistsError:
                continue
        raise AssertionError("unreachable")


class SimFileOps(FileOps):
    """System calls, one step each where others can notice."""

    def open(self, path: Path, flags: int) -> int:
        fd = super().open(path, flags)
        if flags & os.O_WRONLY:
            Disk.open_files[fd] = str(path)
        return fd

    def writev(self, fd: int, buffers: Sequence[bytes | pa.Buffer | memoryview]) -> int:
        path = Disk.open_files.get(fd)
        if path is None:
            return os.writev(fd, buffers)
        kernel().pause(f"append to {_name(path)}")
        position = write_position(fd)
        count = os.writev(fd, buffers)
        Disk.cache.written(path, position, b"".join(map(bytes, buffers))[:count])
        return count

    def fdatasync(self, fd: int) -> None:
        path = Disk.open_files.get(fd)
        if path is not None:
            kernel().pause(f"sync {_name(path)}")
            _sync(path)

    def fsync(self, fd: int) -> None:
        path = Disk.open_files.get(fd)
        if path is not None:
            Disk.cache.synced(path)
            return
        path = path_of_descriptor(fd)
        if path.endswith(".wal"):
            kernel().pause(f"sync {_name(path)} for its recovery")
            _sync(path)

    def read_disk(self, fd: int, buffer: mmap.mmap, position: int) -> int:
        return Disk.cache.read_disk(path_of_descriptor(fd), buffer, position)

    def link(self, source: Path, target: Path) -> None:
        kernel().pause(f"seal {_name(str(target))}")
        super().link(source, target)

    def close(self, fd: int) -> None:
        Disk.open_files.pop(fd, None)
        os.close(fd)


def _sync(path: str) -> None:
    """Make all written bytes durable, unless the disk fails."""
    session = Path(path).parent.name
    if session in Disk.failing:
        Disk.failing.discard(session)
        Disk.cache.failed(path)
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)
    Disk.cache.synced(path)
    Disk.synced(path)


def _name(path: str) -> str:
    return "/".join(path.rsplit("/", 2)[-2:])


def read_file(path: Path) -> MappedSource:
    """Stands for ``map_file``."""
    try:
        return MappedSource(pa.py_buffer(path.read_bytes()))
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file {path}") from error


def lose_power(paths: Sequence[Path]) -> None:
    """Drop the bytes that were written and not synced."""
    for path in paths:
        Disk.cache.lose_power(path)


def with_pause(label: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, as a step of its own."""

    @wraps(function)
    def paused(*arguments: Any, **options: Any) -> Any:
        names = [_name(str(a)) for a in arguments if isinstance(a, str | Path)]
        kernel().pause(f"{label} {' '.join(names)}")
        return function(*arguments, **options)

    return paused
