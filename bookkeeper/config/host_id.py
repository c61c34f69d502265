"""The id of a host that shares no directory with others: random, in the file ``host.id`` of its directory.

A path is no identity: two machines may have the same one, and an address moves. The id stays with the directory, and
goes with it: a wiped directory is another host, and so is an empty one under the same path.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from bookkeeper.config.sections import Settings
from bookkeeper.durable_files import sync_directory
from bookkeeper.errors import CorruptionError, NotFoundError

HOST_ID_FILE = "host.id"
ID_BYTES = 16

_ID = re.compile(rf"[0-9a-f]{{{2 * ID_BYTES}}}\n")


def host_id_of(settings: Settings) -> str:
    """The id of this host; "" where hosts share a directory, which identifies them. Raises NotFoundError,
    CorruptionError.
    """
    if settings.storage.volume != "none":
        return ""
    found = read_host_id(settings.directory)
    if found is None:
        raise NotFoundError(
            f"{settings.directory} has no {HOST_ID_FILE}, so it is no host any more: restore the file from a backup, "
            "or make a host in an empty directory (bookkeeper init DIR --join)"
        )
    return found


def read_host_id(directory: Path) -> str | None:
    """The id in a directory; None without one. Raises CorruptionError."""
    path = directory / HOST_ID_FILE
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    if _ID.fullmatch(text) is None:
        raise CorruptionError(f"{path} is damaged: restore it from a backup")
    return text.rstrip("\n")


def make_host_id(directory: Path) -> str:
    """The id in a directory, or a new one, durably. Raises OSError, CorruptionError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = read_host_id(directory)
    if found is not None:
        return found
    made = secrets.token_hex(ID_BYTES)
    unfinished = directory / f".{HOST_ID_FILE}"
    with unfinished.open("w", encoding="utf-8") as out:
        out.write(f"{made}\n")
        out.flush()
        os.fsync(out.fileno())
    unfinished.replace(directory / HOST_ID_FILE)
    sync_directory(directory)
    return made
