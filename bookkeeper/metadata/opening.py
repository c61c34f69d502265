"""One place that turns a URL into a metadata table.

Arrives: ``sqlite:///absolute/path``. Leaves: an open table. The store's client
library is imported only when its URL asks for it.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from bookkeeper.errors import InvalidInputError
from bookkeeper.metadata.table import MetadataTable


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite file; the path is made absolute, and special characters are percent-escaped."""
    return "sqlite://" + quote(str(path.absolute()))


def open_metadata(url: str, *, retry_for_ms: int = 30_000) -> MetadataTable:
    """Open (and create, where it is missing) the metadata table at ``url``.

    ``sqlite:///dir/metadata.db``: one absolute path, percent-escaped. ``retry_for_ms`` bounds the tries of one call.
    Raises InvalidInputError on any other URL, TransientError when the store does not answer.
    """
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise InvalidInputError(f"metadata URL {url!r}: '?' and '#' have to be percent-escaped")
    if parts.scheme == "sqlite" and not parts.netloc and parts.path.startswith("/"):
        from bookkeeper.metadata.sqlite import SqliteMetadataTable

        return SqliteMetadataTable(Path(unquote(parts.path)), busy_timeout_ms=retry_for_ms)
    raise InvalidInputError(f"metadata URL {url!r} is not sqlite:///path")
