"""Notices that the directory of a cluster or a host is a copy, or was restored from one.

A copy of a running cluster has the same instance id as the original, and its stores are those of the moment of the
copy: peers may have more than it, and if both run, they are one instance twice. Each start notes the inode and the path
of its directory in ``run/directory``: a directory that was moved keeps its inode, and a copy has another one. So a
copy can't be told from a moved directory on another disk; the line says both.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from bookkeeper.security.private_files import DIRECTORY_MODE

NOTE = Path("run") / "directory"


def noted_copy(directory: Path) -> str:
    """Note this directory; a line for the operator when another one was noted before, else empty. Raises OSError."""
    note = directory / NOTE
    inode = directory.stat().st_ino
    before = _read(note)
    note.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    with os.fdopen(os.open(note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps({"inode": inode, "path": str(directory)}) + "\n")
    if before is None or before["inode"] == inode:
        return ""
    return (
        f"{directory} is a copy of {before['path']}, or was restored or moved to another disk: if a cluster runs "
        "there, stop one of the two, because both are the same instance; if it is older than the original, peers may "
        "have records that it lacks, and the records that it sends may be known there under the same names"
    )


def _read(note: Path) -> dict[str, object] | None:
    """The note; None without one, and for one that was cut by a crash: it is no store."""
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) and {"inode", "path"} <= found.keys() else None
