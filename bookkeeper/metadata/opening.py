"""One place that turns a URL into a metadata table.

Arrives: ``sqlite:///FILE`` or ``hbase://HOST:PORT/PREFIX``. Leaves: an open table. The store's client library is
imported only when its URL asks for it.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from bookkeeper.errors import InvalidInputError
from bookkeeper.metadata.table import MetadataTable

HBASE_THRIFT_PORT = 9090


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite file, special characters percent-escaped; ``sqlite:////`` starts an absolute path."""
    return "sqlite:///" + quote(str(path))


def sqlite_path(url: str) -> Path | None:
    """The file of a metadata URL with an absolute path; None when the books are elsewhere."""
    return Path(unquote(urlsplit(url).path[1:])) if url.startswith("sqlite:") else None


def open_metadata(
    url: str, directory: Path = Path(), *, timeout_ms: int = 15_000, retry_for_ms: int = 30_000
) -> MetadataTable:
    """Open the metadata table at ``url``; it is created where it is missing.

    ``sqlite:///metadata.db`` is a file relative to ``directory``, ``sqlite:////dir/metadata.db`` an absolute one,
    percent-escaped. ``hbase://host:9090/west``: HBase's Thrift server and a prefix for the table's name, so that
    clusters can share one HBase. ``timeout_ms`` bounds one request to HBase, ``retry_for_ms`` the tries of one call.
    Raises InvalidInputError on any other URL, NotFoundError when the file's directory is missing, TransientError when
    the store does not answer, CorruptionError or IncompatibleError when what is there is no metadata table.
    """
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise InvalidInputError(f"metadata URL {url!r}: '?' and '#' have to be percent-escaped")
    if parts.scheme == "sqlite" and not parts.netloc and len(parts.path) > 1:
        from bookkeeper.metadata.sqlite import SqliteMetadataTable

        return SqliteMetadataTable(directory / unquote(parts.path[1:]), busy_timeout_ms=retry_for_ms)
    if parts.scheme == "hbase" and parts.hostname and parts.path.count("/") == 1:
        from bookkeeper.metadata.hbase import HBaseMetadataTable

        return HBaseMetadataTable(
            parts.hostname,
            _port(url),
            unquote(parts.path[1:]),
            timeout_ms=timeout_ms,
            retry_for_ms=retry_for_ms,
        )
    raise InvalidInputError(f"metadata URL {url!r} is neither sqlite:///FILE nor hbase://HOST:PORT/PREFIX")


def _port(url: str) -> int:
    try:
        return urlsplit(url).port or HBASE_THRIFT_PORT
    except ValueError as error:
        raise InvalidInputError(f"metadata URL {url!r}: {error}") from error
