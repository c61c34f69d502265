"""Each host notes how far the coordination store on other machines was, so that an older copy of it is refused.

Two numbers of the store only rise: the generation of the configuration tree, and the number of sessions. A file of
the host has the highest ones that it has seen. A store with a lower one was restored from a backup, while this host
was not: its logs and replicas are newer than the store. Rule: R6.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct

from bookkeeper.errors import RefusedError, unavailable


class StoreAge(Struct, frozen=True):
    """How far a store is: each number only rises, in the store with this id."""

    store_id: str
    generation: int
    sessions: int


def read_seen(path: Path) -> StoreAge | None:
    """What was noted last; None before the first time, and when the file is damaged: then nothing is refused by it.
    Raises UnavailableError.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=StoreAge)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    except OSError as error:
        raise unavailable(f"{path} can't be read", error) from error


def refuse_older(seen: StoreAge | None, found: StoreAge, store: str) -> None:
    """Raise RefusedError when the store is older than what this host has seen of it. ``store`` names it."""
    if seen is None or seen.store_id != found.store_id:
        return
    if found.generation < seen.generation or found.sessions < seen.sessions:
        raise RefusedError(
            f"{store} is an older copy: its generation is {found.generation} after {found.sessions} sessions, and this "
            f"host has seen generation {seen.generation} after {seen.sessions}: put the newest copy back, or restore "
            "the store, the books and the directories of all hosts as they were at one moment"
        )


def note_seen(path: Path, seen: StoreAge | None, found: StoreAge) -> None:
    """Note what was found; a file that is cut by a crash is the old or the new one. Raises UnavailableError."""
    if found == seen:
        return
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(found))
            file.flush()
            os.fsync(file.fileno())
        scratch.rename(path)
    except OSError as error:
        raise unavailable(f"{path} can't be written", error) from error
