"""File permissions of a cluster: only its owner can open its directories (mode 0700) and files (mode 0600).

Arrives: the settings of a cluster. Leaves: a file mode mask for this process and its children, and directories that
other users can't enter. A user who can open the files reads records, books and logs, and can hold a lock; so the whole
directory is closed to other users. Modes of secrets stay: other users may have read an open secret already, so the
process that reads it refuses it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from bookkeeper.config.sections import Settings
from bookkeeper.errors import RefusedError
from bookkeeper.security.secret_store import SECRETS_DIR

UMASK = 0o077
DIRECTORY_MODE = 0o700

_JOURNALS = ("", "-wal", "-shm")
"""Suffixes of SQLite's files: the database itself, its write-ahead log, its shared memory."""


def keep_private() -> None:
    """Set the mask so that only the owner can open the files that this process and its children make from now on."""
    os.umask(UMASK)


def shared_mode(directory: Path) -> int:
    """Mode of a file for other users in their directory: the directory's rights to read and write. Raises OSError."""
    return stat.S_IMODE(directory.stat().st_mode) & 0o666


def tighten(settings: Settings, database: Path | None) -> list[Path]:
    """Close the directory of a cluster, its entries and its stores to other users; returns the paths that were open.
    ``database``: file of the metadata table, if it is one. Raises RefusedError for a path of another owner.
    """
    return [path for path in dict.fromkeys(_paths(settings, database)) if _close(path)]


def _paths(settings: Settings, database: Path | None) -> Iterator[Path]:
    """The paths to check. A closed directory protects its entries; stores may lie outside of it."""
    home = settings.directory
    if home.is_dir() and is_open(home.stat().st_mode):
        yield home
        yield from sorted(path for path in home.iterdir() if path.name != SECRETS_DIR)
    stores = [] if settings.coordination_dir is None else [settings.coordination_dir]
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
    """Whether other users than the owner have a right. A symbolic link has the rights of its target, so not here."""
    return not stat.S_ISLNK(mode) and bool(stat.S_IMODE(mode) & UMASK)
