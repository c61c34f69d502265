"""``file:`` URIs, by which operators name files of this machine."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from bookkeeper.errors import InvalidInputError


def path_of(uri: str) -> Path:
    """The path of a ``file:`` URI on this machine; raises InvalidInputError for any other."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InvalidInputError(f"{uri!r} does not name a local file: want file:///absolute/path")
    return Path(unquote(parts.path))


def uri_of(path: Path) -> str:
    """The ``file:`` URI of a path; inverse of :func:`path_of`."""
    return path.absolute().as_uri()
