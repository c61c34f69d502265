"""The SQLite files of a cluster, as a cluster starts: what the page cache shows of them is on the disk.

Arrives: a file and its write-ahead file, which nobody uses. Leaves: the same content, in a new file where the disk
lacked some of it. Survives a crash: each file is replaced whole, and the next start looks again.

When ``fsync`` fails, Linux marks the pages clean, and ``storage/wal/reading/seal_proof.py`` says what follows. SQLite
tells its caller that the commit failed; but when all processes are gone, the next one finds that commit whole in the
write-ahead file, and what it commits behind it has a hole before it on the disk. A power failure then takes commits
that succeeded.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from bookkeeper.bulk.exported_table import copy_file
from bookkeeper.sqlite_file import JOURNAL_SUFFIX
from bookkeeper.storage.wal.wal_files import CALL_BYTES, DiskSource, FileOps, beside, sync_directory

NEW_SUFFIX = ".new"
"""Of a file that is being written anew; one that is left is written over."""


def settle_store(path: Path, ops: FileOps | None = None) -> list[Path]:
    """Write the database ``path`` and its write-ahead file anew where the disk lacks some of them; returns those.
    Raises OSError.
    """
    ops = ops or FileOps()
    files = [file for file in (path, beside(path, JOURNAL_SUFFIX)) if file.is_file()]
    lost = [file for file in files if not is_on_disk(file, ops)]
    for file in lost:
        _write_anew(file, ops)
    return lost


def is_on_disk(path: Path, ops: FileOps) -> bool:
    """Whether the disk has what the page cache shows; False, too, where nobody can tell. Raises OSError when the page
    cache can't be read.
    """
    with path.open("rb") as shown:
        ops.fsync(shown.fileno())
        try:
            fd = ops.open(path, os.O_RDONLY | os.O_DIRECT)
        except OSError:
            return False
        try:
            disk = DiskSource(fd, os.fstat(fd).st_size, ops)
            position = 0
            while part := shown.read(CALL_BYTES):
                if disk.read(position, len(part)).to_pybytes() != part:
                    return False
                position += len(part)
        except OSError:
            return False
        finally:
            ops.close(fd)
    return True


def _write_anew(path: Path, ops: FileOps) -> None:
    new = beside(path, NEW_SUFFIX)
    copy_file(path, new, ops)
    shutil.copymode(path, new)
    new.replace(path)
    sync_directory(path.parent, ops)
