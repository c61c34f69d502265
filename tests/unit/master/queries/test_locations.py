"""Where tablets are, as the master answers it while the books are away."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from bookkeeper.errors import NotFoundError, UnavailableError
from bookkeeper.master.queries.queries import Queries
from bookkeeper.metadata.metadata_table import Row
from bookkeeper.metadata.sqlite.sqlite_store import SqliteMetadataTable
from tests.support.master_logs import LAST
from tests.support.master_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World.at(tmp_path / "west")
    made.create_table("1")
    made.create_table("2")
    yield made
    made.close()


class AwayBooks(SqliteMetadataTable):
    """Books whose store answers no scan while ``away`` is set."""

    away = False

    def scan(
        self, start: bytes = b"", stop: bytes | None = None, families: Collection[str] | None = None
    ) -> Iterator[Row]:
        if self.away:
            raise UnavailableError("no answer")
        return super().scan(start, stop, families)


def test_while_the_books_are_away_the_last_answer_about_a_table_holds(world: World) -> None:
    books = AwayBooks(world.settings.directory / "metadata.db", world.settings.instance.instance_id)
    session = world.tserver("here:1")
    world.locate(LAST, session, rank=5)
    queries = Queries(books, world.tservers(), world.config, world.clock, are_books_away=lambda: books.away)
    before = queries.locate("1")
    assert [found.address for found in before] == ["here:1"]
    books.away = True
    assert queries.locate("1") == before
    assert queries.locate_tablet("1", b"a") == before[0]
    with pytest.raises(UnavailableError):
        queries.locate("2")
    world.kill(session)
    assert [found.address for found in queries.locate("1")] == [None]
    with pytest.raises(NotFoundError):
        queries.locate("3")
    books.away = False
    other = world.tserver("there:1")
    world.locate(LAST, other, rank=6)
    assert [found.address for found in queries.locate("1")] == ["there:1"]
    books.close()
