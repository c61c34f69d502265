"""The disk below a WAL: real files, real frames, and a power failure that forgets what was not synced.

``SimFileOps`` is the product's own system calls with a step before each and a note of what became durable. Files are
read whole, not mapped: a simulated power failure shortens them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from bookkeeper.errors import NotFoundError
from bookkeeper.storage.wal.files import FileOps, MappedSource
from tests.support.simulation.primitives import kernel


class Disk:
    """What is durable: bytes of each file that was synced; and who wants to know."""

    durable: dict[str, int] = {}  # noqa: RUF012 - one world at a time
    open_files: dict[int, str] = {}  # noqa: RUF012
    synced: Callable[[str], None] = lambda _path: None

    @classmethod
    def clear(cls) -> None:
        """A new world."""
        for fd in list(cls.open_files):
            cls.forget(fd)
        cls.durable, cls.open_files = {}, {}
        cls.synced = lambda _path: None

    @classmethod
    def forget(cls, fd: int) -> None:
        """Close a descriptor of a process that is gone."""
        if cls.open_files.pop(fd, None) is not None:
            os.close(fd)


class SimFileOps(FileOps):
    """System calls, one step each where others can notice."""

    def open(self, path: Path, flags: int) -> int:
        fd = super().open(path, flags)
        if flags & os.O_WRONLY:
            Disk.open_files[fd] = str(path)
        return fd

    def writev(self, fd: int, buffers: Sequence[bytes | pa.Buffer | memoryview]) -> int:
        if fd in Disk.open_files:
            kernel().pause(f"append to {_name(Disk.open_files[fd])}")
        return os.writev(fd, buffers)

    def fdatasync(self, fd: int) -> None:
        path = Disk.open_files.get(fd)
        if path is not None:
            kernel().pause(f"sync {_name(path)}")
            Disk.durable[path] = os.fstat(fd).st_size
            Disk.synced(path)

    def fsync(self, fd: int) -> None:
        path = Disk.open_files.get(fd)
        if path is not None:
            Disk.durable[path] = os.fstat(fd).st_size
            return
        path = _path_of(fd)
        if path.endswith(".wal"):
            kernel().pause(f"sync {_name(path)} for its recovery")
            Disk.durable[path] = os.fstat(fd).st_size
            Disk.synced(path)

    def link(self, source: Path, target: Path) -> None:
        kernel().pause(f"seal {_name(str(target))}")
        super().link(source, target)

    def close(self, fd: int) -> None:
        Disk.open_files.pop(fd, None)
        os.close(fd)


def _path_of(fd: int) -> str:
    return str(Path(f"/proc/self/fd/{fd}").readlink())


def _name(path: str) -> str:
    return "/".join(path.rsplit("/", 2)[-2:])


def read_file(path: Path) -> MappedSource:
    """Stands for ``map_file``."""
    try:
        return MappedSource(pa.py_buffer(path.read_bytes()))
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file {path}") from error


def lose_power(paths: Sequence[Path]) -> None:
    """What was written and not synced is gone."""
    for path in paths:
        if path.exists():
            os.truncate(path, Disk.durable.get(str(path), 0))


def with_pause(label: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, as a step of its own."""

    def paused(*arguments: Any, **options: Any) -> Any:
        names = [_name(str(a)) for a in arguments if isinstance(a, str | Path)]
        kernel().pause(f"{label} {' '.join(names)}")
        return function(*arguments, **options)

    return paused
