"""Books for tests: made for an instance, and opened as its processes open them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bookkeeper.config.sections import Settings
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.metadata.opening import make_metadata, open_metadata
from bookkeeper.metadata.sqlite.sqlite_books import make_sqlite_file
from bookkeeper.metadata.sqlite.sqlite_store import SqliteMetadataTable

OWNER = "tests"
"""The instance of books that belong to no cluster."""


def books_of(settings: Settings) -> MetadataTable:
    """The books of a cluster."""
    return open_metadata(settings.metadata_url, settings.instance.instance_id)


def made_books(url: str, **options: Any) -> MetadataTable:
    """Books that are made where they are missing."""
    make_metadata(url, OWNER)
    return open_metadata(url, OWNER, **options)


def sqlite_books(path: Path, **options: Any) -> SqliteMetadataTable:
    """The same in a file."""
    make_sqlite_file(path, OWNER, 30_000)
    return SqliteMetadataTable(path, OWNER, **options)
