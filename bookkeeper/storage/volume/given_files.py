"""Files that operators name by a path or a URI, on any filesystem that Arrow knows: read, and never changed."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs

from bookkeeper.errors import InvalidInputError, NotFoundError, UnavailableError, unavailable
from bookkeeper.storage.volume.file_uris import path_of, uri_of
from bookkeeper.storage.volume.names import FENCE_SUFFIX
from bookkeeper.storage.volume.sources import open_source
from bookkeeper.storage.volume.volume_protocol import Source


class GivenFiles:
    """See :class:`ReadableVolume`: the name of a file is its URI."""

    def open(self, name: str) -> Source:
        """See :class:`ReadableVolume`. Raises InvalidInputError for a URI of no known filesystem."""
        return open_source(name)

    def read(self, name: str, length_max: int) -> bytes | None:
        """See :class:`ReadableVolume`."""
        try:
            if urlsplit(name).scheme == "file":
                with path_of(name).open("rb") as file:
                    return file.read(length_max)
            source = open_source(name)
        except (FileNotFoundError, NotFoundError):
            return None
        except OSError as error:
            raise unavailable(f"{name} can't be read", error) from error
        return bytes(source.read(0, min(source.size, length_max)))

    def is_fenced(self, name: str) -> bool:
        """See :class:`ReadableVolume`."""
        return self.read(name + FENCE_SUFFIX, 1) is not None


def uri_of_location(location: str) -> str:
    """The URI of a path or URI."""
    return location if "://" in location or location.startswith("file:") else uri_of(Path(location))


def list_files(location: str, suffix: str) -> list[str]:
    """URIs of the files at a path or URI: a file is one, of a directory every file below it whose name ends with
    ``suffix``, in order of name. Raises NotFoundError, InvalidInputError, UnavailableError.
    """
    uri = uri_of_location(location)
    try:
        if urlsplit(uri).scheme == "file":
            path = path_of(_plain_file_uri(uri))
            if not path.is_dir():
                return [uri_of(path)]
            return [uri_of(file) for file in sorted(path.rglob(f"*{suffix}")) if file.is_file()]
        return _remote_files(uri, suffix)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"{uri!r} names no known filesystem: {error}") from error
    except OSError as error:
        raise UnavailableError(f"{uri} can't be listed: {error}") from error


def _plain_file_uri(uri: str) -> str:
    """``file:/a`` is how Java writes ``file:///a``."""
    return uri if uri.startswith("file://") else "file://" + uri.removeprefix("file:")


def _remote_files(uri: str, suffix: str) -> list[str]:
    filesystem, path = pyarrow.fs.FileSystem.from_uri(uri)
    info = filesystem.get_file_info(path)
    if info.type == pyarrow.fs.FileType.NotFound:
        raise NotFoundError(f"there is nothing at {uri}")
    if info.type == pyarrow.fs.FileType.File:
        return [uri]
    infos = filesystem.get_file_info(pyarrow.fs.FileSelector(path, recursive=True))
    base = uri.rstrip("/")
    below = sorted(info.path.removeprefix(path.rstrip("/")) for info in infos if info.is_file)
    return [base + name for name in below if name.endswith(suffix)]
