"""Watches the disks of a cluster, and says when one of them is full and when it has room again.

Arrives: the directories of a cluster. Leaves: one line for each change, for the operator: the processes' own logs may
lie on the disk that is full. Survives a crash: nothing; disks are looked at anew.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk that holds a directory."""

    device: int
    directory: Path
    free_bytes: int
    total_bytes: int


def look(directories: Iterable[Path]) -> list[Disk]:
    """The disks below directories, each once; a directory that is gone, or can't be looked at now, has none."""
    found: dict[int, Disk] = {}
    for directory in directories:
        try:
            device, disk = directory.stat().st_dev, os.statvfs(directory)
        except OSError as error:
            LOG.debug("%s is not looked at: %s", directory, error)
            continue
        free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        found.setdefault(device, Disk(device, directory, free, total))
    return list(found.values())


def changes(seen: Iterable[Disk], full: Mapping[int, Disk], reserve_bytes: int) -> tuple[list[str], dict[int, Disk]]:
    """What to say, and which disks are full now: those with less than ``reserve_bytes`` left."""
    lines, now_full = [], {}
    for disk in seen:
        if disk.free_bytes < reserve_bytes:
            now_full[disk.device] = disk
            if disk.device not in full:
                lines.append(
                    f"the disk of {disk.directory} is full: {disk.free_bytes} of {disk.total_bytes} bytes are free, "
                    f"{reserve_bytes} are kept; writes are refused until there is room, then they go on by themselves: "
                    "make the disk larger, or take away what is not below that directory"
                )
        elif disk.device in full:
            lines.append(f"the disk of {disk.directory} has room again: {disk.free_bytes} bytes are free")
    return lines, now_full


@dataclass(slots=True)
class SpaceWatch:
    """One look after another; used by one thread."""

    directories: tuple[Path, ...]
    reserve_bytes: int
    report: Callable[[str], None]
    _full: dict[int, Disk] = field(default_factory=dict)

    def run_once(self) -> None:
        """Look, and say what changed."""
        lines, self._full = changes(look(self.directories), self._full, self.reserve_bytes)
        for line in lines:
            self.report(line)
