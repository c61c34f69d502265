"""Volumes for tests: the machine's root as one, so that each absolute path has a name."""

from __future__ import annotations

from pathlib import Path

from bookkeeper.log_homes.log_volume import LogVolume
from bookkeeper.storage.volume.file_ops import FileOps
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.volume.volume_protocol import ReadableVolume

ROOT = Path("/")


def rooted(ops: FileOps | None = None) -> LocalVolume:
    """A Volume in the root directory."""
    return LocalVolume(ROOT, ops)


MACHINE = rooted()


def name_at(path: Path, root: Path = ROOT) -> str:
    """The name of a path on the Volume in ``root``; on :data:`MACHINE` without one."""
    return path.absolute().relative_to(root.absolute()).as_posix()


def path_of(name: str, root: Path = ROOT) -> Path:
    """Inverse of :func:`name_at`."""
    return root.absolute() / name


def uri_at(name: str) -> str:
    """The URI by which an operator names a file of :data:`MACHINE`."""
    return path_of(name).as_uri()


def root_of(volume: ReadableVolume) -> Path:
    """The directory of a local Volume; that of the cluster for the Volume with all its logs."""
    if isinstance(volume, LogVolume):
        return root_of(volume._shared)
    assert isinstance(volume, LocalVolume)
    return volume._root
