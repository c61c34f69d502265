"""Directories that operators name by a path: exports are written into them, and imports read from them.

Reads and writes are of this host, as the operator gave the path. The caller has checked that the path is allowed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from bookkeeper.storage.volume.file_ops import FileOps, create_once, sync_directory, write_all

PART_BYTES = 4 << 20

OPS = FileOps()


def read_parts(path: Path) -> Iterator[bytes]:
    """The content of a file. Raises OSError."""
    with path.open("rb") as content:
        while part := content.read(PART_BYTES):
            yield part


def write_file(path: Path, parts: Iterable[bytes], ops: FileOps = OPS) -> None:
    """Write a file, durable on return but for its name; a link is not followed. Raises OSError, and the errors of
    ``parts``.
    """
    fd = ops.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
    try:
        for part in parts:
            write_all(fd, [part], ops)
        ops.fsync(fd)
    finally:
        ops.close(fd)


def write_once(path: Path, content: bytes) -> None:
    """Make a file that appears complete, and that is durable on return; one that exists stays. Raises OSError."""
    create_once(path, content, OPS)


def sync_names(directory: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    sync_directory(directory, OPS)
