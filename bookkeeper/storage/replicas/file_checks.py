"""Checksums of files, computed in windows: memory is flat, and no row is decoded."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import numpy as np

from bookkeeper.errors import CorruptionError
from bookkeeper.storage.replicas.manifest import HeldFile
from bookkeeper.storage.volume.volume_protocol import Volume

WINDOW_BYTES = 1 << 20


def extended(checksum: int, content: bytes | memoryview) -> int:
    """The CRC-32C of bytes with this checksum (0 = none) and the content behind them."""
    if not content:
        return checksum
    return int(google_crc32c.extend(checksum, np.frombuffer(content, np.uint8)))  # the library takes no memoryview


def checksum_of(path: Path, length: int) -> int | None:
    """The CRC-32C of a file's first ``length`` bytes; None when it has fewer. Raises OSError."""
    checksum, remaining = 0, length
    with path.open("rb") as file:
        while remaining and (window := file.read(min(WINDOW_BYTES, remaining))):
            checksum = extended(checksum, window)
            remaining -= len(window)
    return None if remaining else checksum


def copied_file(source: Volume, name: str, target: Volume, copy: str) -> None:
    """Copy a complete file to another Volume, durable on return; the bytes that are there then have the checksum of
    those that were read. Raises FileNotFoundError when there is no file of this name, FileExistsError, OSError,
    CorruptionError; a copy may be left.
    """
    size, checksum = source.size(name), 0

    def content() -> Iterator[bytes]:
        nonlocal checksum
        for position in range(0, size, WINDOW_BYTES):
            window = source.read_range(name, position, min(WINDOW_BYTES, size - position))
            checksum = extended(checksum, window)
            yield bytes(window)

    target.create(copy, content()).close()
    made = held_file(target, copy, b"")
    if (made.size_bytes, made.crc32c) != (size, checksum):
        raise CorruptionError(f"{copy} has other bytes than {name}, of which it is a copy: check the disk")


def is_sound(volume: Volume, file: HeldFile) -> bool:
    """Whether a file has its size and its checksum. One that is gone, or that its disk can't read, has not. Raises
    OSError for other failures.
    """
    try:
        found = held_file(volume, file.name, file.entry)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno == errno.EIO:
            return False
        raise
    return (found.size_bytes, found.crc32c) == (file.size_bytes, file.crc32c)


def held_file(volume: Volume, name: str, entry: bytes) -> HeldFile:
    """The facts about a complete file of a Volume. Raises FileNotFoundError, OSError."""
    size, checksum = volume.size(name), 0
    for position in range(0, size, WINDOW_BYTES):
        checksum = extended(checksum, volume.read_range(name, position, min(WINDOW_BYTES, size - position)))
    return HeldFile(name, size, checksum, entry)
