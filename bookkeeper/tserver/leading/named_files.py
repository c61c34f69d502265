"""The files of a host under the names that the books have."""

from __future__ import annotations

from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.volume.names import check_name


class NamedFiles(LocalVolume):
    """A directory whose files have no URI but their name."""

    def name_of(self, uri: str) -> str:
        """See :class:`ReadableVolume`."""
        return check_name(uri)

    def uri_of(self, name: str) -> str:
        """See :class:`Volume`."""
        return check_name(name)
