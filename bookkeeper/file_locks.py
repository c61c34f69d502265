"""Which processes hold the locks of a file, as the kernel lists them.

A look takes no lock and opens no file: one that took a lock could refuse it to the process that needs it, and closing a
file would drop this process's own POSIX locks of it. Where the kernel shows no list, no lock is known.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

LISTED = Path("/proc/locks")

SUPERVISOR_LOCK = Path("run/standalone.lock")
"""The file in a directory of processes that their supervisor keeps locked."""

_WAITS = "->"


class FileLock(Struct, frozen=True):
    """An exclusive lock of a process: ``FLOCK`` of the whole file, ``POSIX`` of the bytes from ``first`` on."""

    kind: str
    pid: int
    first: int
    last: int | None
    """None: the end of the file, wherever it is."""

    def has(self, offset: int) -> bool:
        """Whether a byte is locked."""
        return self.first <= offset and (self.last is None or offset <= self.last)


def exclusive_locks(path: Path, listed: Path = LISTED) -> list[FileLock]:
    """The exclusive locks of a file that processes hold now."""
    try:
        status = path.stat()
        lines = listed.read_text().splitlines()
    except OSError:
        return []
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    found = (line.split() for line in lines if f" {device} " in line)
    return [lock_of(words) for words in found if _WAITS not in words and "WRITE" in words]


def lock_of(words: list[str]) -> FileLock:
    """A lock from the words of its line: number, kind, ADVISORY, WRITE, process, file, first byte, last byte."""
    _, kind, _, _, pid, _, first, last = words
    return FileLock(kind, int(pid), int(first), None if last == "EOF" else int(last))


def is_supervised(directory: Path) -> bool:
    """Whether a supervisor keeps the processes of a directory running."""
    return any(lock.kind == "FLOCK" for lock in exclusive_locks(directory / SUPERVISOR_LOCK))


def process_text(pid: int) -> str:
    """A process in words: its number and its name."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        name = ""
    return f"process {pid} ({name})" if name else f"process {pid}"
