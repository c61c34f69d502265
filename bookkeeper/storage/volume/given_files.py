"""Files that operators name by a URI, on any filesystem that Arrow knows: read, and never changed."""

from __future__ import annotations

from urllib.parse import urlsplit

from bookkeeper.errors import NotFoundError
from bookkeeper.storage.volume.file_ops import path_of
from bookkeeper.storage.volume.names import FENCE_SUFFIX
from bookkeeper.storage.volume.sources import open_source
from bookkeeper.storage.volume.volume_protocol import Source


class GivenFiles:
    """See :class:`ReadableVolume`: the name of a file is its URI."""

    def name_of(self, uri: str) -> str:
        """See :class:`ReadableVolume`."""
        return uri

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
        return bytes(source.read(0, min(source.size, length_max)))

    def is_fenced(self, name: str) -> bool:
        """See :class:`ReadableVolume`."""
        return self.read(name + FENCE_SUFFIX, 1) is not None
