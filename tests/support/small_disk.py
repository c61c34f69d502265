"""A small real disk: a tmpfs that a test fills and empties. Needs the right to mount; without it its tests are skipped.

Arrives: a directory and a size. Leaves: :class:`SmallDisk`. It is unmounted at the end, whatever became of the test.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BALLAST = ".ballast"


class NoMountError(Exception):
    """This user may not mount a filesystem."""


@dataclass(slots=True)
class SmallDisk:
    """``directory`` is the root of the disk."""

    directory: Path

    def free_bytes(self) -> int:
        """What is left."""
        disk = os.statvfs(self.directory)
        return disk.f_bavail * disk.f_frsize

    def fill(self, leave_bytes: int = 0) -> None:
        """Take all but ``leave_bytes`` of what is left now."""
        with (self.directory / BALLAST).open("ab") as ballast:
            while (length := self.free_bytes() - leave_bytes) > 0:
                try:
                    os.posix_fallocate(ballast.fileno(), os.fstat(ballast.fileno()).st_size, length)
                except OSError as error:  # others take from it at the same time
                    if error.errno != errno.ENOSPC:
                        raise

    def release(self) -> None:
        """Give back what :meth:`fill` took."""
        (self.directory / BALLAST).unlink(missing_ok=True)


@contextmanager
def small_disk(directory: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """Mounted at ``directory`` inside the block. Raises NoMountError."""
    directory.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoMountError(f"no small disk, full disks are not tested: {done.stderr.strip()}")
    try:
        yield SmallDisk(directory)
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
