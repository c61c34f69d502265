"""Gives up the records behind the damage of a dead tserver's log, when an operator decides so.

Arrives: the settings of a cluster or of one of its hosts, the name of a log on their disk. Leaves: the log's seal, a
copy of the whole file. The master finds the seal at its next try of this log; then the tablets with records in it are
served again, and peers get the records before the damage. Rules: R10 and R15.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from bookkeeper.config.sections import Settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import BookkeeperError, ExistsError, InvalidInputError, NotFoundError, RefusedError
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.volume.names import numbered_log, session_of_numbered
from bookkeeper.storage.wal.reading.wal_recovery import recover
from bookkeeper.storage.wal.writing.seal import Seal, read_seal


def seal_damaged(settings: Settings, name: str, copy: Path) -> Seal:
    """Seal a log behind its last intact block, after a copy of the file to ``copy``; a log that has a seal keeps it,
    and is not copied.

    Raises RefusedError while its tserver lives; CorruptionError when a later block proves that the damaged bytes were
    durable, or the file has no intact header; NotFoundError, InvalidInputError, ExistsError, OSError, TransientError.
    """
    session = session_of_numbered(name)
    if session is None or numbered_log(name) != name:
        raise InvalidInputError(f"{name} is no log of a tablet server: replication status and status have their names")
    with closing(open_coordination(settings)) as coordination:
        if any(info.alive and info.session_id == session for info in coordination.sessions("tserver")):
            raise RefusedError(f"the tablet server of {name} lives and writes it: nothing was changed")
    root = root_of(settings, name)
    volume = LocalVolume(root)
    found = read_seal(volume, name)
    if found is not None:
        return found
    copy_whole(root / name, copy)
    try:
        return recover(volume, name, give_up_unproven=True)
    except BookkeeperError:
        copy.unlink()
        raise


def root_of(settings: Settings, name: str) -> Path:
    """The directory below which a log lies: that of the cluster, or that of this host's replicas."""
    for root in (settings.cluster_directory, settings.replicas_dir):
        if (root / name).is_file():
            return root
    raise NotFoundError(
        f"there is no log {name} in {settings.directory}; for a log on a host's own disk, name the directory of that "
        "host"
    )


def copy_whole(path: Path, copy: Path) -> None:
    """A durable copy of a file that is only for its owner."""
    try:
        with path.open("rb") as source, open(copy, "xb", opener=private) as target:
            while part := source.read(1 << 20):
                target.write(part)
            target.flush()
            os.fsync(target.fileno())
    except FileExistsError:
        raise ExistsError(f"{copy} exists: move it away, it may be the copy of another log") from None


def private(path: str, flags: int) -> int:
    """Make a file that nobody else can read."""
    return os.open(path, flags, 0o600)
