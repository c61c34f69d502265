"""Directories below which clients may make a cluster read and write files: imports, exports, directories as peers.

Arrives: the setting ``files.roots``, paths and URIs that clients name. Leaves: resolved paths and descriptors below a
root, or RefusedError. A client thus reaches, with the rights of the cluster's processes, only the directories that the
operator has named. The process that opens a path checks it when it opens it: it follows symbolic links first, and
checks the opened file again, because a link may have changed in between.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from bookkeeper.config.sections import Settings
from bookkeeper.errors import InvalidInputError, RefusedError

_OPENED = "/proc/self/fd/{}"
"""Path to the open file of a descriptor; it stays right when the file is renamed or replaced."""

_FLAGS = os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""O_NONBLOCK: opening a pipe does not wait for its other end."""


class FileRoots(Struct, frozen=True):
    """``directories`` are absolute; ``uris`` are of filesystems that are not mounted here (``s3://bucket/prefix``)."""

    directories: tuple[Path, ...] = ()
    uris: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> FileRoots:
        """The roots that the settings name; a relative path is below the cluster's directory."""
        named = settings.files.roots
        paths = tuple(settings.cluster_directory / root for root in named if "://" not in root)
        return cls(paths, tuple(root for root in named if "://" in root))

    def resolve(self, path: Path) -> Path:
        """``path`` without symbolic links; it need not exist yet. Raises RefusedError when it is below no root."""
        return self._checked(path, Path(os.path.realpath(path)))

    @contextmanager
    def opened(self, path: Path) -> Iterator[Path]:
        """Open ``path`` and return a path that leads to this file or directory until the block ends; paths below it
        work as usual. Raises RefusedError, OSError.
        """
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
        try:
            same = Path(_OPENED.format(descriptor))
            self._checked(path, same.readlink())
            mode = os.fstat(descriptor).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise RefusedError(f"{path} is neither a file nor a directory")
            yield same
        finally:
            os.close(descriptor)

    def check_uri(self, uri: str) -> None:
        """Raise RefusedError for a URI below no root, InvalidInputError for one with a part ``.`` or ``..``."""
        if any(part in (".", "..") for part in uri.replace("%2e", ".").replace("%2E", ".").split("/")):
            raise InvalidInputError(f"{uri} has a part . or ..: name the directory itself")
        if not any(is_below(uri, root.rstrip("/")) for root in self.uris):
            raise self._refused(uri)

    def _checked(self, path: Path, found: Path) -> Path:
        if not any(is_in(found, Path(os.path.realpath(root))) for root in self.directories):
            raise self._refused(str(path))
        return found

    def _refused(self, where: str) -> RefusedError:
        roots = ", ".join([*map(str, self.directories), *self.uris]) or "there is none"
        return RefusedError(
            f"{where} is not below a directory that this cluster reaches files in ({roots}): move it there, or name "
            "its directory in files.roots in the cluster's settings and start it again"
        )


ANYWHERE = FileRoots((Path("/"),))
"""Roots for paths that come from the operator, not from a client."""


def is_in(found: Path, root: Path) -> bool:
    """Whether a resolved path is a resolved root, or below it."""
    return found == root or root in found.parents


def is_below(uri: str, root: str) -> bool:
    """Whether a URI is a root's URI, or below it."""
    return uri == root or uri.startswith(root + "/")


def private_roots(settings: Settings) -> list[Path]:
    """The roots below the cluster's own directory, which are made with it."""
    named = settings.files.roots
    return [settings.cluster_directory / root for root in named if "://" not in root and not Path(root).is_absolute()]
