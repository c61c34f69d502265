"""Makes the SQLite files of a cluster durable at its start: the disk gets all bytes that the page cache shows.

After a failed ``fsync`` Linux marks the pages clean although the disk lacks them (``storage/wal/reading/seal_proof.py``
has the consequences). SQLite reports the failed commit. But when all processes end, the next process finds that commit
complete in the page cache and appends its own commits. On the disk these follow a hole, and a power failure takes them.
So a start compares each file with the disk and replaces a differing file, atomically, by a copy. No process may use the
files meanwhile.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from bookkeeper.sqlite_file import JOURNAL_SUFFIX
from bookkeeper.storage.volume.file_ops import CALL_BYTES, FileOps, beside, sync_directory
from bookkeeper.storage.volume.given_directory import read_parts, write_file
from bookkeeper.storage.volume.sources import DiskSource

NEW_SUFFIX = ".new"
"""Suffix of an unfinished copy; the next copy overwrites one that a crash left."""


def make_durable(path: Path, ops: FileOps | None = None) -> list[Path]:
    """Replace the database ``path`` and its write-ahead file by copies if the disk lacks a part of them; returns the
    replaced files. Raises OSError.
    """
    ops = ops or FileOps()
    files = [file for file in (path, beside(path, JOURNAL_SUFFIX)) if file.is_file()]
    incomplete = [file for file in files if not is_on_disk(file, ops)]
    for file in incomplete:
        _replace_by_copy(file, ops)
    return incomplete


def is_on_disk(path: Path, ops: FileOps) -> bool:
    """Whether the disk has the bytes that the page cache shows; False also when the disk does not support direct reads.
    Raises OSError when the page cache can't be read.
    """
    with path.open("rb") as cached:
        ops.fsync(cached.fileno())
        try:
            fd = ops.open(path, os.O_RDONLY | os.O_DIRECT)
        except OSError:
            return False
        try:
            disk = DiskSource(fd, os.fstat(fd).st_size, ops)
            position = 0
            while part := cached.read(CALL_BYTES):
                if disk.read(position, len(part)).to_pybytes() != part:
                    return False
                position += len(part)
        except OSError:
            return False
        finally:
            ops.close(fd)
    return True


def _replace_by_copy(path: Path, ops: FileOps) -> None:
    new = beside(path, NEW_SUFFIX)
    write_file(new, read_parts(path), ops)
    shutil.copymode(path, new)
    new.replace(path)
    sync_directory(path.parent, ops)
