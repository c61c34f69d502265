"""What a cluster keeps is its owner's alone: directories of mode 0700, files of mode 0600.

Arrives: the settings of a cluster. Leaves: a file mode mask for this process and all that it starts, and places that
nobody else can enter. Survives a crash: the modes. Records, books and logs are readable to whoever can read their
files, and a lock can be held by whoever can open its file, so other users of the machine are kept out of the directory
as a whole. Secrets are left alone: one that lies open may have been read, and is refused where it is used.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from bookkeeper.config import Settings
from bookkeeper.errors import RefusedError
from bookkeeper.security.secret_store import SECRETS_DIR

UMASK = 0o077
DIRECTORY_MODE = 0o700

_JOURNALS = ("", "-wal", "-shm")
"""What SQLite adds to the name of a database."""


def keep_private() -> None:
    """Let whatever this process and those it starts make from here on be their owner's alone."""
    os.umask(UMASK)


def shared_mode(directory: Path) -> int:
    """The mode of a file for others in a directory of theirs: who may read there may read it. Raises OSError."""
    return stat.S_IMODE(directory.stat().st_mode) & 0o666


def tighten(settings: Settings, database: Path | None) -> list[Path]:
    """Close the directory of a cluster, what lies in it and its stores to others; returns what was open to them.
    ``database``: of the metadata table, where it is a file. Raises RefusedError for what belongs to somebody else.
    """
    return [path for path in dict.fromkeys(_places(settings, database)) if _close(path)]


def _places(settings: Settings, database: Path | None) -> Iterator[Path]:
    """Where nobody can enter the directory, what is in it is out of reach; stores may be elsewhere."""
    home = settings.directory
    if home.is_dir() and is_open(home.stat().st_mode):
        yield home
        yield from sorted(path for path in home.iterdir() if path.name != SECRETS_DIR)
    stores = [settings.coordination_dir]
    if database is not None:
        stores += [database.with_name(database.name + journal) for journal in _JOURNALS]
    yield from (path for path in stores if home not in path.parents)


def _close(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not is_open(mode):
        return False
    try:
        path.chmod(stat.S_IMODE(mode) & ~UMASK)
    except PermissionError as error:
        raise RefusedError(
            f"others can reach {path} (mode {stat.S_IMODE(mode):04o}), and it belongs to another user: run as its "
            f"owner, or let its owner chmod go= {path}"
        ) from error
    return True


def is_open(mode: int) -> bool:
    """Whether others than the owner have a right. The rights of a symbolic link are those of where it leads."""
    return not stat.S_ISLNK(mode) and bool(stat.S_IMODE(mode) & UMASK)
