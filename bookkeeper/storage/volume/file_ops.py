"""The system calls below a local Volume: writes, and directory entries that survive a crash.

Small files appear complete or not at all. Every call of the operating system that matters for durability goes through
:class:`FileOps`, so that a test can count it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

IOV_MAX = 1024
"""Buffers that one ``writev`` takes on Linux."""

CALL_BYTES = 1 << 20
"""Most bytes of one call to write. Linux 6.18 (ext4) took 0.4 s of CPU for a GB in calls of 1 MiB, and 1 to 4 s in
calls of 2.5 and 4 MiB: it allocates new memory for a large call, and reuses freed memory for a small one.
"""


_KEEP_SIZE = 1
"""FALLOC_FL_KEEP_SIZE of Linux."""

_WRITE = 2
"""SYNC_FILE_RANGE_WRITE of Linux."""

_libc = ctypes.CDLL(None, use_errno=True)


class FileOps:
    """The system calls of a writer; a test may count or delay them in a subclass, never replace them."""

    def open(self, path: Path, flags: int) -> int:
        """Open a file that no child process inherits; raises OSError."""
        return os.open(path, flags | os.O_CLOEXEC, 0o600)

    def writev(self, fd: int, buffers: Sequence[bytes | pa.Buffer | memoryview]) -> int:
        """Write some bytes and return how many; raises OSError."""
        return os.writev(fd, buffers)

    def allocate(self, fd: int, position: int, length: int) -> None:
        """Reserve disk for bytes that will be written, without making the file longer; raises OSError. Does nothing
        on a filesystem without reservations.
        """
        if _libc.fallocate(fd, _KEEP_SIZE, ctypes.c_long(position), ctypes.c_long(length)) != 0:
            number = ctypes.get_errno()
            if number not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise OSError(number, os.strerror(number))

    def free_bytes(self, fd: int) -> int:
        """Free bytes on the disk of an open file; raises OSError."""
        disk = os.fstatvfs(fd)
        return disk.f_bavail * disk.f_frsize

    def truncate(self, fd: int, length: int) -> None:
        """Cut a file, and free the disk that is reserved behind its end; raises OSError."""
        os.ftruncate(fd, length)

    def uncache(self, fd: int, position: int) -> None:
        """Free the page cache's memory of synced bytes before ``position``; raises OSError. A page that is not full yet
        stays until the next call.
        """
        os.posix_fadvise(fd, 0, position, os.POSIX_FADV_DONTNEED)

    def begin_writing(self, fd: int, position: int, length: int) -> None:
        """Start the transfer of written bytes to the disk, so that their sync is shorter; guarantees nothing. Raises
        OSError.
        """
        if _libc.sync_file_range(fd, ctypes.c_long(position), ctypes.c_long(length), _WRITE) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def fdatasync(self, fd: int) -> None:
        """Make written bytes and the length durable; raises OSError, after which the disk may have any part of them."""
        os.fdatasync(fd)

    def fsync(self, fd: int) -> None:
        """Make a file or directory durable; raises OSError."""
        os.fsync(fd)

    def read_disk(self, fd: int, buffer: mmap.mmap, position: int) -> int:
        """Read around the page cache into aligned memory, from a descriptor that was opened with O_DIRECT. Returns the
        number of bytes; raises OSError.
        """
        return os.preadv(fd, [buffer], position)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; raises FileExistsError when the name is taken."""
        os.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its final name; raises OSError."""
        source.rename(target)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)


def beside(path: Path, suffix: str) -> Path:
    """A companion of a log: its name with ``suffix`` added."""
    return path.with_name(path.name + suffix)


def sync_directory(directory: Path, ops: FileOps) -> None:
    """Make the names in a directory durable; raises OSError."""
    fd = ops.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        ops.fsync(fd)
    finally:
        ops.close(fd)


def make_directory(directory: Path, ops: FileOps) -> None:
    """Make a directory and its missing parents, durable on return: a synced file in a lost directory is lost.

    Raises OSError, NotADirectoryError where a file has the name.
    """
    if directory.is_dir():
        return
    make_directory(directory.parent, ops)
    try:
        directory.mkdir(exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, "a file has this name", str(directory)) from error
    sync_directory(directory.parent, ops)


def create_once(path: Path, content: bytes, ops: FileOps) -> None:
    """Make ``path`` hold ``content``, complete and durable; an existing file stays as it is. Raises OSError."""
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".", suffix=".tmp")
    temporary = Path(name)
    try:
        try:
            with memoryview(content) as view:
                write_all(fd, [view], ops)
            ops.fsync(fd)
        finally:
            ops.close(fd)
        with contextlib.suppress(FileExistsError):
            ops.link(temporary, path)
    finally:
        temporary.unlink()
    sync_directory(path.parent, ops)


def write_all(fd: int, buffers: Sequence[bytes | pa.Buffer | memoryview], ops: FileOps) -> None:
    """Write every byte, in as many calls as the system needs; raises OSError with an unknown part written."""
    for call in _calls(buffers):
        remaining = call
        while remaining:
            remaining = _behind(remaining, ops.writev(fd, remaining))


def _calls(buffers: Sequence[bytes | pa.Buffer | memoryview]) -> Iterator[list[memoryview]]:
    """The same bytes in the same order, up to :data:`CALL_BYTES` and :data:`IOV_MAX` buffers for each call."""
    call: list[memoryview] = []
    free = CALL_BYTES
    for buffer in buffers:
        remaining = memoryview(buffer)
        while len(remaining):
            call.append(remaining[:free])
            free -= len(call[-1])
            remaining = remaining[len(call[-1]) :]
            if free == 0 or len(call) == IOV_MAX:
                yield call
                call, free = [], CALL_BYTES
    if call:
        yield call


def _behind(buffers: list[memoryview], written: int) -> list[memoryview]:
    """The buffers without their first ``written`` bytes."""
    index = 0
    while index < len(buffers) and written >= len(buffers[index]):
        written -= len(buffers[index])
        index += 1
    remaining = buffers[index:]
    if written:
        remaining[0] = remaining[0][written:]
    return remaining
