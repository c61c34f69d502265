"""The stores that have to keep the metadata table's contract, each empty, for ``tests/contract/conftest.py``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.metadata.opening import sqlite_url
from tests.support.books import made_books
from tests.support.hbase import HBaseInstance

_prefixes = itertools.count()


@dataclass
class Store:
    """One table of its own, and as many ways into it as a test wants."""

    url: str
    opened: list[MetadataTable] = field(default_factory=list)

    def another(self) -> MetadataTable:
        """The table as another process would open it; closed with the test."""
        self.opened.append(made_books(self.url))
        return self.opened[-1]


def hbase_url(hbase: HBaseInstance) -> str:
    """The URL of a table that no other test uses."""
    return f"hbase://{hbase.host}:{hbase.thrift_port}/contract{next(_prefixes)}"


@pytest.fixture(params=["sqlite", pytest.param("hbase", marks=[pytest.mark.hbase, pytest.mark.integration])])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Each store in turn, nothing opened and nothing created yet."""
    if request.param == "sqlite":
        made = Store(sqlite_url(tmp_path / "metadata.db"))
    else:
        made = Store(hbase_url(request.getfixturevalue("hbase")))
    yield made
    for table in made.opened:
        table.close()


@pytest.fixture
def table(store: Store) -> MetadataTable:
    """The table of ``store``, opened."""
    return store.another()
