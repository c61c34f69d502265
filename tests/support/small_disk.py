"""A small real disk: a tmpfs that a test fills and empties. Needs the right to mount; without it its tests are skipped.

Arrives: a directory and a size. Leaves: :class:`SmallDisk`. It is unmounted at the end, whatever became of the test.
Survives kill -9 of the test: the mount, whose source says which process made it; when that is gone, the next disk that
is made, or ``python -m tests.support.small_disk`` (``make clean``), takes the mount away.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.coordination.embedded import process_started

BALLAST = ".ballast"
SOURCE = "small-disk"
MOUNTS = Path("/proc/self/mounts")


class NoMountError(Exception):
    """This user may not mount a filesystem."""


@dataclass(slots=True)
class SmallDisk:
    """``directory`` is the root of the disk."""

    directory: Path

    def free_bytes(self) -> int:
        """The free space."""
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
    remove_orphans()
    directory.mkdir(parents=True, exist_ok=True)
    source = f"{SOURCE}-{os.getpid()}-{process_started(os.getpid())}"
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", source, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoMountError(f"no small disk, full disks are not tested: {done.stderr.strip()}")
    try:
        yield SmallDisk(directory)
    finally:
        _unmount(directory).check_returncode()


def orphans(mounts: str, started: Callable[[int], str]) -> list[Path]:
    """The small disks among ``mounts`` (as in /proc/self/mounts) whose maker is gone; ``started``: when the process of
    an id began, "" when there is none.
    """
    found = []
    for line in mounts.splitlines():
        source, directory, kind = line.split()[:3]
        name, _, maker = source.rpartition("-")[0].rpartition("-")
        if kind == "tmpfs" and name == SOURCE and started(int(maker)) != source.rpartition("-")[2]:
            found.append(Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), directory)))
    return found


def remove_orphans() -> list[Path]:
    """Take away the disks of tests that were killed; returns where they were. Raises NoMountError when one stays."""
    found = orphans(MOUNTS.read_text(), process_started)
    for directory in found:
        done = _unmount(directory)
        if directory in orphans(MOUNTS.read_text(), process_started):  # else others may have been faster
            raise NoMountError(f"{directory} can't be unmounted: {done.stderr.strip()}")
    return found


def _unmount(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["umount", "--lazy", str(directory)], capture_output=True, text=True, check=False)


if __name__ == "__main__":
    for removed in remove_orphans():
        print(f"unmounted {removed}, the disk of a test that was killed")
