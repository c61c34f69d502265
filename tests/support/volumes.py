"""Volumes for tests: the machine's root as one, so that each absolute path has a name."""

from __future__ import annotations

from pathlib import Path

from bookkeeper.storage.volume.file_ops import FileOps, uri_of
from bookkeeper.storage.volume.local_volume import LocalVolume


def rooted(ops: FileOps | None = None) -> LocalVolume:
    """A Volume in the root directory."""
    return LocalVolume(Path("/"), ops)


MACHINE = rooted()


def name_at(path: Path) -> str:
    """The name of a path on :data:`MACHINE`."""
    return MACHINE.name_of(uri_of(path))
