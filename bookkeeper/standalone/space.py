"""Watches the disks of a cluster, and reports when one of them becomes full and when it has space again.

The lines go to the operator, because the logs of the processes may be on the full disk.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec import Struct, field

LOG = logging.getLogger(__name__)


class Disk(Struct, frozen=True):
    """The disk that holds a directory."""

    device: int
    directory: Path
    free_bytes: int
    total_bytes: int


def read_disks(directories: Iterable[Path]) -> list[Disk]:
    """The disks of directories, each once; without those of missing and unreadable directories."""
    disks: dict[int, Disk] = {}
    for directory in directories:
        try:
            device, disk = directory.stat().st_dev, os.statvfs(directory)
        except OSError as error:
            LOG.debug("can't read the free space of %s: %s", directory, error)
            continue
        free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        disks.setdefault(device, Disk(device, directory, free, total))
    return list(disks.values())


def changes(disks: Iterable[Disk], full: Mapping[int, Disk], reserve_bytes: int) -> tuple[list[str], dict[int, Disk]]:
    """The lines to report, and the disks that are full now, with less than ``reserve_bytes`` free. ``full``: the disks
    that were full before.
    """
    lines, now_full = [], {}
    for disk in disks:
        if disk.free_bytes < reserve_bytes:
            now_full[disk.device] = disk
            if disk.device not in full:
                lines.append(
                    f"the disk of {disk.directory} is full: {disk.free_bytes} of {disk.total_bytes} bytes are free, "
                    f"and {reserve_bytes} are reserved; tservers refuse writes until there is more space: enlarge the "
                    "disk, or delete files outside of that directory"
                )
        elif disk.device in full:
            lines.append(f"the disk of {disk.directory} has space again: {disk.free_bytes} bytes are free")
    return lines, now_full


class SpaceWatch(Struct):
    """Repeated checks of the disks, by one thread."""

    directories: tuple[Path, ...]
    reserve_bytes: int
    report: Callable[[str], None]
    _full: dict[int, Disk] = field(default_factory=dict)

    def run_once(self) -> None:
        """Check the disks, and report changes."""
        lines, self._full = changes(read_disks(self.directories), self._full, self.reserve_bytes)
        for line in lines:
            self.report(line)
