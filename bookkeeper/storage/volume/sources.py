"""Bytes of files: mapped local files, read in place, files of ``pyarrow.fs``, and the disk below the page cache."""

from __future__ import annotations

import mmap
import os
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs
from msgspec import Struct

from bookkeeper.errors import InvalidInputError, NotFoundError, UnavailableError
from bookkeeper.storage.volume.file_ops import CALL_BYTES, FileOps
from bookkeeper.storage.volume.file_uris import path_of
from bookkeeper.storage.volume.remote_source import RemoteSource
from bookkeeper.storage.volume.volume_protocol import Source

MAPPED_WINDOW_BYTES = 1 << 24
"""A process that reads a mapped file from start to end retains at least so much of it behind its position, and at most
three times as much: more than the messages in flight.
"""


class MappedSource(Struct):
    """A local file, mapped: reads share the page cache's memory. Logs never shrink, so the mapping stays valid.

    The system counts pages that a process has read as memory of that process. So the source releases the pages behind
    the reader; a second read finds them in the page cache.
    """

    content: pa.Buffer
    mapped: mmap.mmap | None = None
    _mapped_from: int = 0

    @property
    def size(self) -> int:
        """See :class:`Source`."""
        return int(self.content.size)

    def read(self, position: int, length: int) -> pa.Buffer:
        """See :class:`Source`."""
        if self.mapped is not None and position - self._mapped_from >= 2 * MAPPED_WINDOW_BYTES:
            end = position // MAPPED_WINDOW_BYTES * MAPPED_WINDOW_BYTES - MAPPED_WINDOW_BYTES
            self.mapped.madvise(mmap.MADV_DONTNEED, 0, end)  # from the start: a second read has mapped pages again
            self._mapped_from = end
        return self.content.slice(position, length)


class DiskSource:
    """A local file, read from its disk around the page cache, in aligned windows. One thread."""

    def __init__(self, fd: int, size: int, ops: FileOps) -> None:
        """``fd`` is open with O_DIRECT; the caller closes it."""
        self._fd = fd
        self._ops = ops
        self._window = mmap.mmap(-1, CALL_BYTES)  # memory of whole pages, as such reads need
        self._start = -1
        self.size = size

    def read(self, position: int, length: int) -> pa.Buffer:
        """See :class:`Source`; zeros where the disk has less than ``size``. Raises OSError."""
        parts = []
        end = position + length
        while position < end:
            self._load(position // CALL_BYTES * CALL_BYTES)
            begin = position - self._start
            parts.append(self._window[begin : min(begin + end - position, CALL_BYTES)])
            position += len(parts[-1])
        return pa.py_buffer(b"".join(parts))

    def _load(self, start: int) -> None:
        if start != self._start:
            self._start = -1
            count = self._ops.read_disk(self._fd, self._window, start)
            self._window[count:] = bytes(CALL_BYTES - count)
            self._start = start


def map_file(path: Path) -> MappedSource:
    """Map a local file, up to its length at the call.

    Raises NotFoundError, InvalidInputError for a directory, UnavailableError.
    """
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return MappedSource(pa.py_buffer(b""))
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return MappedSource(pa.py_buffer(mapped), mapped)
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file {path}") from error
    except IsADirectoryError as error:
        raise InvalidInputError(f"{path} is a directory, not a file") from error
    except OSError as error:
        raise UnavailableError(f"{path} can't be read: {error}") from error


def open_source(uri: str) -> Source:
    """Open any file for reading; raises NotFoundError, UnavailableError, or InvalidInputError for a URI of no known
    filesystem.
    """
    if urlsplit(uri).scheme == "file":
        return map_file(path_of(uri))
    try:
        filesystem, path = pyarrow.fs.FileSystem.from_uri(uri)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"{uri!r} names no known filesystem: {error}") from error
    except OSError as error:  # Arrow looks up the region of a bucket of S3
        raise UnavailableError(f"the store of {uri} can't be reached: {error}") from error
    return open_remote(filesystem, path)


def fetch_part(file: pyarrow.fs.NativeFile, position: int, length: int) -> pa.Buffer:
    """Bytes of a file behind ``pyarrow.fs``. Raises UnavailableError when the filesystem fails or returns fewer."""
    try:
        raw = pa.py_buffer(file.read_at(length, position))
    except OSError as error:
        raise UnavailableError(f"a remote file can't be read at {position}: {error}") from error
    if raw.size != length:
        raise UnavailableError(f"a remote file returned {raw.size} of {length} bytes at {position}: try again")
    return raw


def open_remote(filesystem: pyarrow.fs.FileSystem, path: str) -> RemoteSource:
    """Open a file of a filesystem; raises NotFoundError or UnavailableError."""
    try:
        file = filesystem.open_input_file(path)
        return RemoteSource(partial(fetch_part, file), file.size())
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file {path} on {filesystem.type_name}") from error
    except OSError as error:
        raise UnavailableError(f"{path} on {filesystem.type_name} can't be opened: {error}") from error
