"""Seals a log once the disk has every byte before the seal (rule R15).

The page cache is no proof. When ``fsync`` fails, Linux reports the error once and marks the pages clean: reads still
show the bytes, the next ``fsync`` succeeds, and the disk does not have them. To write the same bytes again does not
help everywhere: ext4 treats blocks that it has mapped as written, and after a power failure they read as zeros. So
recovery reads the blocks that no later sync has proven around the page cache. Each block says how much of its log was
durable when its owner wrote it, so these are the last groups, also of a long log.

Records that the disk lacks were never acknowledged, but other processes may have read them, and blocks behind them may
be complete. So recovery copies the log, as the cache shows it, into a new file, and the seal names that file. The first
seal wins, so all processes agree on the file, too. A copy that no seal names goes with the log.
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
    """The blocks of a log, as a recovery has counted them. They end at ``end``; a later block proves that the bytes
    before ``synced_position``, where a frame begins, were durable. ``salt``: of the blocks.
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
    """Whether the disk has every frame that no sync has proven. False also when this can't be checked: the filesystem
    has no reads around the page cache, or the disk can't be read.
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
    """Complete frames up to the end, each copied into memory and checked there: the page cache may drop a clean page at
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
    """A frame in memory, as a :class:`Source` with the frame at its position."""

    position: int
    content: pa.Buffer

    @property
    def size(self) -> int:
        return self.position + int(self.content.size)

    def read(self, position: int, length: int) -> pa.Buffer:
        return self.content.slice(position - self.position, length)


def _copy(uri: str, source: Source, count: BlockCount, ops: FileOps) -> str:
    """Write the log into a new file beside it, durable on return; returns the suffix of its name."""
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
