"""Opens or creates the metadata table of a URL: ``sqlite:///FILE`` or ``hbase://HOST:PORT/PREFIX``.

It imports a store's client library only when the URL names that store.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from bookkeeper.errors import InvalidInputError
from bookkeeper.metadata.metadata_table import MetadataTable

if TYPE_CHECKING:
    from bookkeeper.metadata.hbase.hbase_calls import HBaseAddress

HBASE_THRIFT_PORT = 9090


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite file, special characters percent-escaped; ``sqlite:////`` starts an absolute path."""
    return "sqlite:///" + quote(str(path))


def sqlite_path(url: str) -> Path | None:
    """The file of a metadata URL with an absolute path; None for other stores."""
    return Path(unquote(urlsplit(url).path[1:])) if url.startswith("sqlite:") else None


def open_metadata(
    url: str,
    instance_id: str,
    directory: Path = Path(),
    *,
    least_round: int = 0,
    timeout_ms: int = 15_000,
    retry_for_ms: int = 30_000,
) -> MetadataTable:
    """Open the books of ``instance_id`` at ``url``; never creates them.

    ``sqlite:///metadata.db`` is a file relative to ``directory``, ``sqlite:////dir/metadata.db`` an absolute one,
    percent-escaped. ``hbase://host:9090/west``: HBase's Thrift server and a prefix for the table's name, so that
    clusters can share one HBase. ``least_round`` is the round of the books in the coordination store (``owner``).
    ``timeout_ms`` bounds one request to HBase, ``retry_for_ms`` the tries of one call.

    Raises InvalidInputError on any other URL, NotFoundError when there is no table or it has no owner, RefusedError
    when it has another owner or is an older copy, IncompatibleError on another format, CorruptionError, and
    TransientError when the store does not answer.
    """
    path = _path_of(url, directory)
    if path is not None:
        from bookkeeper.metadata.sqlite.sqlite_store import SqliteMetadataTable

        return SqliteMetadataTable(path, instance_id, least_round, busy_timeout_ms=retry_for_ms)
    from bookkeeper.metadata.hbase.hbase_calls import CallLimits
    from bookkeeper.metadata.hbase.hbase_store import HBaseMetadataTable

    limits = CallLimits(timeout_ms=timeout_ms, retry_for_ms=retry_for_ms)
    return HBaseMetadataTable(hbase_address(url), instance_id, least_round, limits)


def make_metadata(
    url: str, instance_id: str, directory: Path = Path(), *, timeout_ms: int = 15_000, retry_for_ms: int = 30_000
) -> None:
    """Create the books of a new cluster at ``url``, with their owner row. Only ``bookkeeper init`` calls this.

    Raises ExistsError when there are books of another owner, otherwise as :func:`open_metadata`. Repeating the call is
    harmless.
    """
    path = _path_of(url, directory)
    if path is not None:
        from bookkeeper.metadata.sqlite.sqlite_books import make_sqlite_file

        make_sqlite_file(path, instance_id, retry_for_ms)
        return
    from bookkeeper.metadata.hbase.hbase_calls import CallLimits
    from bookkeeper.metadata.hbase.hbase_table import make_hbase_table

    limits = CallLimits(timeout_ms=timeout_ms, retry_for_ms=retry_for_ms)
    make_hbase_table(hbase_address(url), instance_id, limits)


def _path_of(url: str, directory: Path) -> Path | None:
    """The file of a URL, None for an HBase URL. Raises InvalidInputError."""
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise InvalidInputError(f"metadata URL {url!r} has '?' or '#'; percent-escape them")
    if parts.scheme == "sqlite" and not parts.netloc and len(parts.path) > 1:
        return directory / unquote(parts.path[1:])
    if parts.scheme == "hbase" and parts.hostname and parts.path.count("/") == 1:
        return None
    raise InvalidInputError(f"metadata URL {url!r} is neither sqlite:///FILE nor hbase://HOST:PORT/PREFIX")


def hbase_address(url: str) -> HBaseAddress:
    """The Thrift server and the table of an ``hbase://`` URL. Raises InvalidInputError."""
    from bookkeeper.metadata.hbase.hbase_calls import HBaseAddress

    parts = urlsplit(url)
    return HBaseAddress(parts.hostname or "", _port(url), unquote(parts.path[1:]))


def _port(url: str) -> int:
    try:
        return urlsplit(url).port or HBASE_THRIFT_PORT
    except ValueError as error:
        raise InvalidInputError(f"metadata URL {url!r}: {error}") from error
