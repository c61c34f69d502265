"""A Volume in one local directory: one file for each name, with the system calls of ``file_ops``.

The fence of a file is an empty file beside it, ``<name>.fence``. It holds together with the leases of sessions: a
recovery fences the log of a session that is dead, and an owner that is late looks for the fence after each sync. Rule:
R15.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from bookkeeper.errors import is_full, unavailable
from bookkeeper.storage.volume.file_ops import (
    FileOps,
    beside,
    create_once,
    make_directory,
    sync_directory,
    write_all,
)
from bookkeeper.storage.volume.names import FENCE_SUFFIX, SCRATCH_SUFFIX, check_name
from bookkeeper.storage.volume.sources import DiskSource, map_file
from bookkeeper.storage.volume.volume_protocol import Buffers, Scratch, Source


class LocalAppender:
    """See :class:`Appender`: an open descriptor."""

    def __init__(self, fd: int, ops: FileOps) -> None:
        self._fd = fd
        self._ops = ops

    def write(self, buffers: Buffers) -> None:
        """See :class:`Appender`; at most a mebibyte with each call of the system."""
        write_all(self._fd, buffers, self._ops)

    def sync(self) -> None:
        """See :class:`Appender`."""
        self._ops.fdatasync(self._fd)

    def free_bytes(self) -> int:
        """See :class:`Appender`."""
        return self._ops.free_bytes(self._fd)

    def reserve(self, position: int, length: int) -> None:
        """See :class:`Appender`."""
        self._ops.allocate(self._fd, position, length)

    def truncate(self, length: int) -> None:
        """See :class:`Appender`."""
        self._ops.truncate(self._fd, length)

    def uncache(self, position: int) -> None:
        """See :class:`Appender`. A page that is not full yet stays until the next call."""
        self._ops.uncache(self._fd, position)

    def close(self) -> None:
        """See :class:`Appender`."""
        self._ops.close(self._fd)


class LocalVolume:
    """See :class:`Volume`. Thread-safe."""

    def __init__(self, root: Path, ops: FileOps | None = None) -> None:
        """``root``: the directory of all files; made with the first file."""
        self._root = root.absolute()
        self._prefix = str(self._root).rstrip("/") + "/"
        self._ops = ops or FileOps()

    def create(self, name: str, parts: Iterable[bytes | pa.Buffer]) -> LocalAppender:
        """See :class:`Volume`."""
        path = self._path(name)
        make_directory(path.parent, self._ops)
        fd = self._ops.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            for part in parts:
                write_all(fd, [part], self._ops)
            self._ops.fsync(fd)
            sync_directory(path.parent, self._ops)
        except BaseException as error:
            self._ops.close(fd)
            if isinstance(error, OSError) and is_full(error):
                path.unlink()
            raise
        return LocalAppender(fd, self._ops)

    def reopen(self, name: str, length: int) -> LocalAppender:
        """See :class:`Volume`."""
        fd = self._ops.open(self._path(name), os.O_WRONLY | os.O_APPEND)
        found = os.fstat(fd).st_size
        if found != length:
            self._ops.close(fd)
            raise OSError(f"it has {found} bytes, and {length} were written")
        return LocalAppender(fd, self._ops)

    def create_once(self, name: str, content: bytes) -> None:
        """See :class:`Volume`."""
        path = self._path(name)
        make_directory(path.parent, self._ops)
        create_once(path, content, self._ops)

    def fence(self, name: str) -> None:
        """See :class:`Volume`."""
        path = self._path(name)
        fd = self._ops.open(path, os.O_RDONLY)
        try:
            raise_fence(path)
            self._ops.fsync(fd)
        finally:
            self._ops.close(fd)

    def is_fenced(self, name: str) -> bool:
        """See :class:`Volume`."""
        return self.exists(name + FENCE_SUFFIX)

    def open(self, name: str) -> Source:
        """See :class:`ReadableVolume`. Blocks of the file share its pages."""
        return map_file(self._path(name))

    def read(self, name: str, length_max: int) -> bytes | None:
        """See :class:`ReadableVolume`."""
        try:
            with self._path(name).open("rb") as file:
                return file.read(length_max)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unavailable(f"{name} can't be read", error) from error

    @contextmanager
    def open_durable(self, name: str) -> Iterator[Source]:
        """See :class:`Volume`."""
        fd = self._ops.open(self._path(name), os.O_RDONLY | os.O_DIRECT)
        try:
            yield DiskSource(fd, os.fstat(fd).st_size, self._ops)
        finally:
            self._ops.close(fd)

    def scratch(self, name: str, writer: str = "") -> Scratch:
        """See :class:`Volume`: beside the file, because a rename stays on one filesystem."""
        path = self._path(name)
        make_directory(path.parent, self._ops)
        return Scratch(scratch_path(path, writer), self._ops)

    def publish(self, names: Sequence[str], writer: str = "") -> None:
        """See :class:`Volume`."""
        paths = [self._path(name) for name in names]
        for path in paths:
            self._ops.rename(scratch_path(path, writer), path)
        for directory in {path.parent: None for path in paths}:
            sync_directory(directory, self._ops)

    def discard(self, names: Sequence[str]) -> None:
        """See :class:`Volume`."""
        for path in map(self._path, names):
            scratch_path(path).unlink(missing_ok=True)
            path.unlink(missing_ok=True)

    def link(self, names: Mapping[str, str]) -> None:
        """Give files second names by hard links, ``names`` from new to present ones; durable on return. No other Volume
        can, so only a host's own disk is used so. Raises FileNotFoundError, FileExistsError, OSError with some of them
        made, perhaps.
        """
        paths = {self._path(name): self._path(present) for name, present in names.items()}
        for path, present in paths.items():
            make_directory(path.parent, self._ops)
            self._ops.link(present, path)
        for directory in {path.parent: None for path in paths}:
            sync_directory(directory, self._ops)

    def size(self, name: str) -> int:
        """See :class:`Volume`."""
        return os.stat(self._prefix + check_name(name)).st_size  # noqa: PTH116 - as below

    def read_range(self, name: str, position: int, length: int) -> bytes:
        """See :class:`Volume`."""
        fd = os.open(self._prefix + check_name(name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, length, position)
        finally:
            os.close(fd)

    def list_names(self, prefix: str) -> list[str]:
        """See :class:`Volume`."""
        directory, _, _ = prefix.rpartition("/")
        return sorted(name for name in self._files(directory) if name.startswith(prefix))

    def list_directories(self, directory: str) -> list[str]:
        """See :class:`Volume`."""
        try:
            with os.scandir(self._root / directory) as found:
                return sorted(entry.name for entry in found if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def entries(self, directory: str) -> Iterator[str]:
        """See :class:`Volume`: one scan of the directory."""
        try:
            with os.scandir(self._root / directory) as found:
                for entry in found:
                    if not entry.is_dir(follow_symlinks=False):
                        yield f"{directory}/{entry.name}"
        except FileNotFoundError:
            return

    def _files(self, directory: str) -> Iterator[str]:
        """The names of all files below a directory."""
        try:
            entries = list(os.scandir(self._root / directory))
        except FileNotFoundError:
            return
        for entry in entries:
            name = f"{directory}/{entry.name}" if directory else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from self._files(name)
            else:
                yield name

    def exists(self, name: str) -> bool:
        """See :class:`Volume`."""
        try:
            os.stat(self._prefix + check_name(name))  # noqa: PTH116 - of each commit: Path takes longer than the call
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def delete(self, names: Sequence[str]) -> None:
        """See :class:`Volume`."""
        paths = [self._path(name) for name in names]
        for path in paths:
            path.unlink(missing_ok=True)
        for directory in {path.parent: None for path in paths}:
            if directory.is_dir():
                sync_directory(directory, self._ops)

    def remove_tree(self, directory: str) -> None:
        """See :class:`Volume`."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._path(directory))

    def prune(self, directory: str) -> None:
        """See :class:`Volume`."""
        try:
            self._path(directory).rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise

    def _path(self, name: str) -> Path:
        return self._root / check_name(name)


def raise_fence(path: Path) -> None:
    """Make the fence of a file; idempotent."""
    beside(path, FENCE_SUFFIX).touch(exist_ok=True)


def scratch_path(path: Path, writer: str = "") -> Path:
    """The scratch file of one writer; its name begins and ends like that of the file, which the collector knows."""
    return beside(path.with_name(f"{path.stem}~{writer}{path.suffix}") if writer else path, SCRATCH_SUFFIX)
