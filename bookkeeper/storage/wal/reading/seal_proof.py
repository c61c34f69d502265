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

import uuid
from collections.abc import Iterator

import pyarrow as pa
from msgspec import Struct

from bookkeeper.errors import UnavailableError
from bookkeeper.storage.volume.volume_protocol import Source, Volume
from bookkeeper.storage.wal.blocks.frame import BLOCK_MAGIC, FILE_MAGIC, FrameError, read_frame, read_payload
from bookkeeper.storage.wal.writing.seal import COPY_SUFFIX, Seal, write_seal


class BlockCount(Struct, frozen=True):
    """The blocks of a log, as a recovery has counted them. They end at ``end``; a later block proves that the bytes
    before ``synced_position``, where a frame begins, were durable. ``salt``: of the blocks.
    """

    end: Seal
    synced_position: int = 0
    salt: int = 0


def seal_proven(volume: Volume, name: str, source: Source, count: BlockCount) -> Seal:
    """Seal a log where its blocks end, and return the seal that holds. The file was synced before its blocks were
    counted. Raises OSError, and UnavailableError when the log changes meanwhile.
    """
    if is_on_disk(volume, name, count):
        return write_seal(volume, name, count.end)
    copy = _copy(volume, name, source, count)
    return write_seal(volume, name, count.end, copy)


def is_on_disk(volume: Volume, name: str, count: BlockCount) -> bool:
    """Whether the disk has every frame that no sync has proven. False also when this can't be checked: the filesystem
    has no reads around the page cache, or the disk can't be read.
    """
    try:
        with volume.open_durable(name) as disk:
            for _ in _frames(disk, count, count.synced_position):
                continue
    except (OSError, FrameError):
        return False
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


class _OneFrame(Struct, frozen=True):
    """A frame in memory, as a :class:`Source` with the frame at its position."""

    position: int
    content: pa.Buffer

    @property
    def size(self) -> int:
        return self.position + int(self.content.size)

    def read(self, position: int, length: int) -> pa.Buffer:
        return self.content.slice(position - self.position, length)


def _copy(volume: Volume, name: str, source: Source, count: BlockCount) -> str:
    """Write the log into a new file beside it, durable on return; returns the suffix of its name."""
    suffix = f".{uuid.uuid4().hex}{COPY_SUFFIX}"
    target = name + suffix
    try:
        volume.create(target, _frames(source, count, 0)).close()
    except FrameError as error:
        volume.delete([target])
        raise UnavailableError(f"{name} changes while it is recovered ({error}): try again") from error
    except OSError:
        volume.delete([target])
        raise
    return suffix
