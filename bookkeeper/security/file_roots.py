"""Below which directories a cluster reaches files for those who ask it to: imports, exports, directories as peers.

Arrives: the setting ``files.roots``, paths and URIs that clients name. Leaves: resolved paths and descriptors below a
root, or RefusedError. Whoever may use a cluster thus reads and writes with the rights of its processes only what the
operator has laid open. A path is judged in the process that opens it, when it opens it: symbolic links are followed
first, and what was opened is looked at once more, for a link may have changed in between. Nothing survives a crash.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.config import Settings
from bookkeeper.errors import InvalidInputError, RefusedError

_OPENED = "/proc/self/fd/{}"
"""Leads to what a descriptor has open, whatever has its name now."""

_FLAGS = os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""Nobody waits for the other end of a pipe."""


@dataclass(frozen=True, slots=True)
class FileRoots:
    """``directories`` are absolute; ``uris`` are of filesystems that are not mounted here (``s3://bucket/prefix``)."""

    directories: tuple[Path, ...] = ()
    uris: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> FileRoots:
        """What the settings name; a path that is not absolute is below the cluster's directory."""
        named = settings.files.roots
        paths = tuple(settings.directory / root for root in named if "://" not in root)
        return cls(paths, tuple(root for root in named if "://" in root))

    def resolve(self, path: Path) -> Path:
        """Where ``path`` leads, which need not exist yet. Raises RefusedError when that is below no root."""
        return self._checked(path, Path(os.path.realpath(path)))

    @contextmanager
    def opened(self, path: Path) -> Iterator[Path]:
        """A path to the file or directory that ``path`` is now, for as long as the block lasts; below a directory it
        may be used like any other. Raises RefusedError, OSError.
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
        """Raise RefusedError for a URI below no root, InvalidInputError for one that leads out of where it begins."""
        if any(part in (".", "..") for part in uri.replace("%2e", ".").replace("%2E", ".").split("/")):
            raise InvalidInputError(f"{uri} has a part that leads elsewhere: name the directory itself")
        if not any(is_below(uri, root.rstrip("/")) for root in self.uris):
            raise self._refused(uri)

    def _checked(self, path: Path, found: Path) -> Path:
        if not any(is_in(found, Path(os.path.realpath(root))) for root in self.directories):
            raise self._refused(str(path))
        return found

    def _refused(self, where: str) -> RefusedError:
        known = ", ".join([*map(str, self.directories), *self.uris]) or "there is none"
        return RefusedError(
            f"{where} is not below a directory that this cluster reaches files in ({known}): move it there, or name "
            "its directory in files.roots in the cluster's settings and start it again"
        )


ANYWHERE = FileRoots((Path("/"),))
"""For directories that no client has named."""


def is_in(found: Path, root: Path) -> bool:
    """Whether a resolved path is a resolved root, or below it."""
    return found == root or root in found.parents


def is_below(uri: str, root: str) -> bool:
    """The same for URIs."""
    return uri == root or uri.startswith(root + "/")


def private_roots(settings: Settings) -> list[Path]:
    """The roots below the cluster's own directory, which are made with it."""
    named = settings.files.roots
    return [settings.directory / root for root in named if "://" not in root and not Path(root).is_absolute()]
