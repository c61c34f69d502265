"""The promise of a seal (rule R15): the disk has every byte of the log before it.

Arrives: a log that a recovery has counted, as the page cache shows it. Leaves: its seal, and a copy of the log where
the disk has less. Survives a crash: the seal, and the copy that it names; a copy that no seal names goes with the log.

The page cache is no proof. When ``fsync`` fails, Linux reports the error once and marks the pages clean: reads still
show the bytes, the next ``fsync`` succeeds, and the disk has nothing. To write the same bytes once more does not help
everywhere: ext4 takes blocks that it has mapped for written ones, and after a power failure they read as zeros. So the
blocks that no later sync has proven are read past the page cache. Each block says how much of its log was durable when
its owner wrote it, so these are the last groups, however long the log is. What the disk lacks was never acknowledged,
but others may have read it, and blocks behind it may be whole; the log is copied into a new file as the cache shows it,
and the seal names that file. The first seal wins, so all agree on the file, too.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bookkeeper.errors import UnavailableError
from bookkeeper.storage.wal.blocks.frame import BLOCK_MAGIC, FILE_MAGIC, FrameError, Source, read_frame, read_payload
from bookkeeper.storage.wal.wal_files import DiskSource, FileOps, beside, path_of, sync_directory, write_all
from bookkeeper.storage.wal.writing.seal import COPY_SUFFIX, Seal, write_seal


@dataclass(frozen=True, slots=True)
class BlockCount:
    """The blocks of a log, as a recovery has counted them: they end at ``end``, and a block that an owner wrote later
    proves the bytes before ``synced_position``, where a frame begins. ``salt``: of the blocks.
    """

    end: Seal
    synced_position: int = 0
    salt: int = 0


def seal_proven(uri: str, source: Source, count: BlockCount, ops: FileOps) -> Seal:
    """Seal a log where its blocks end, and return the seal that holds. The file was synced before its blocks were
    counted. Raises OSError, and UnavailableError when the log changes meanwhile.
    """
    path = path_of(uri)
    if is_on_disk(path, count, ops):
        return write_seal(uri, count.end, ops)
    copy = _copy(uri, source, count, ops)
    return write_seal(uri, count.end, ops, copy)


def is_on_disk(path: Path, count: BlockCount, ops: FileOps) -> bool:
    """Whether the disk has every frame that no sync has proven. False, too, where nobody can tell: the filesystem gives
    no way past the page cache, or the disk can't be read.
    """
    try:
        fd = ops.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return False
    try:
        disk = DiskSource(fd, os.fstat(fd).st_size, ops)
        for _ in _frames(disk, count, count.synced_position):
            continue
    except (OSError, FrameError):
        return False
    finally:
        ops.close(fd)
    return True


def _frames(source: Source, count: BlockCount, position: int) -> Iterator[pa.Buffer]:
    """Whole frames up to the end, each in memory of its own and proven there: the page cache may drop a clean page at
    any time, and read older bytes from the disk. Raises FrameError.
    """
    while position < count.end.position:
        magic, salt = (BLOCK_MAGIC, count.salt) if position else (FILE_MAGIC, 0)
        length = read_frame(source, magic, position, count.end.position, salt).prefix.frame_length
        frame = _OneFrame(position, pa.py_buffer(source.read(position, length).to_pybytes()))
        read_payload(frame, read_frame(frame, magic, position, frame.size, salt))
        yield frame.content
        position = frame.size


@dataclass(frozen=True, slots=True)
class _OneFrame:
    """A frame in memory, as a :class:`Source` that holds it at its place."""

    position: int
    content: pa.Buffer

    @property
    def size(self) -> int:
        return self.position + int(self.content.size)

    def read(self, position: int, length: int) -> pa.Buffer:
        return self.content.slice(position - self.position, length)


def _copy(uri: str, source: Source, count: BlockCount, ops: FileOps) -> str:
    """Write the log into a new file beside it, durable on return; returns what its name adds to the log's."""
    suffix = f".{uuid.uuid4().hex}{COPY_SUFFIX}"
    target = beside(path_of(uri), suffix)
    try:
        _write_copy(target, _frames(source, count, 0), ops)
    except FrameError as error:
        target.unlink(missing_ok=True)
        raise UnavailableError(f"{uri} changes while it is recovered ({error}): try again") from error
    except OSError:
        target.unlink(missing_ok=True)
        raise
    return suffix


def _write_copy(target: Path, frames: Iterator[pa.Buffer], ops: FileOps) -> None:
    fd = ops.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        for frame in frames:
            write_all(fd, [frame], ops)
        ops.fsync(fd)
    finally:
        ops.close(fd)
    sync_directory(target.parent, ops)
