"""Tablets with replicas that nobody writes: their leader reads all their rows at once, and misses no change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import cast

import pytest

from bookkeeper.config.table_properties import DEFAULT_PROPERTIES
from bookkeeper.errors import CorruptionError, UnavailableError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import MetadataTable, Row
from bookkeeper.model import Extent
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.tserver.books.tablet_books import TabletBooks
from bookkeeper.tserver.leading.namer import REFRESH_MS, Namer
from tests.support.jumping_clock import TestClock
from tests.support.led_hosts import Hosts, hosts
from tests.support.tservers import records

pytestmark = pytest.mark.integration

TABLES = ("1", "2", "3")


class WatchedReads:
    """A metadata table that notes reads of one row and of many, and fails when it is told to."""

    def __init__(self, table: MetadataTable) -> None:
        self._table = table
        self.reads: list[str] = []
        self.error: Exception | None = None

    def get(self, key: bytes, families: Sequence[str]) -> Row | None:
        self.reads.append(f"row {key!r}")
        return self._table.get(key, families)

    def scan(self, start: bytes, stop: bytes, families: Sequence[str]) -> Iterator[Row]:
        self.reads.append("rows")
        if self.error is not None:
            raise self.error
        return self._table.scan(start, stop, families)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Hosts]:
    with hosts(tmp_path, "host1", "host2", "host3") as made:
        yield made


@pytest.fixture
def extents(world: Hosts) -> list[Extent]:
    """Tablets that host1 leads, with a named state each; the test names from here on."""
    found = [world.table("host1", "host2", table_id=table_id) for table_id in TABLES]
    for extent in found:
        world.lead(extent, "host1")
        node = world.node("host1")
        world.ground.write(node, extent, records([(b"a", b"v")]))
        world.ground.tserver(node).flush_tablet(extent)
        world.wait_named(extent, "host1")
        world.wait_same(extent, "host1", "host2")
    world.node("host1").process.parts.tablets.leading.namer.close()
    return found


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def books(world: Hosts) -> WatchedReads:
    return WatchedReads(world.ground.metadata)


@pytest.fixture
def namer(world: Hosts, extents: list[Extent], books: WatchedReads, clock: TestClock) -> Namer:
    """Has read each row once."""
    process = world.node("host1").process
    rows = TabletBooks(cast(MetadataTable, books), SessionRetries(process.session, clock, Random(1)))
    made = Namer(process.parts.tablets.leading.led, rows, lambda _: DEFAULT_PROPERTIES, clock, pytest.fail)
    clock.jump(REFRESH_MS)
    made.run_once()
    assert len(books.reads) == 1 + len(extents)
    books.reads.clear()
    return made


def test_quiet_tablets_cost_one_read_of_the_books_now_and_then(
    namer: Namer, books: WatchedReads, clock: TestClock
) -> None:
    namer.run_once()
    assert books.reads == []
    clock.jump(REFRESH_MS)
    namer.run_once()
    assert books.reads == ["rows"], "rows of quiet tablets are read one by one"


def test_a_joining_host_is_found_with_all_rows(
    world: Hosts, extents: list[Extent], namer: Namer, books: WatchedReads, clock: TestClock
) -> None:
    world.place(extents[1], "host3", "joining")
    namer.run_once()
    assert books.reads == []
    clock.jump(REFRESH_MS)
    namer.run_once()
    row = keys.tablet_row(extents[1].table_id, extents[1].end_row)
    assert books.reads == ["rows", f"row {row!r}"]
    world.wait_same(extents[1], "host1", "host3")


def test_books_that_are_away_are_read_again_at_once(
    world: Hosts, extents: list[Extent], namer: Namer, books: WatchedReads, clock: TestClock
) -> None:
    world.place(extents[1], "host3", "joining")
    clock.jump(REFRESH_MS)
    books.error = UnavailableError("the books are away")
    namer.run_once()
    books.error = None
    namer.run_once()
    world.wait_same(extents[1], "host1", "host3")


def test_one_damaged_row_hides_no_other_one(
    world: Hosts, extents: list[Extent], namer: Namer, books: WatchedReads, clock: TestClock
) -> None:
    world.place(extents[1], "host3", "joining")
    clock.jump(REFRESH_MS)
    books.error = CorruptionError("a page of the books is damaged")
    namer.run_once()
    assert len(books.reads) == 1 + len(extents), "the rows are not read one by one"
    world.wait_same(extents[1], "host1", "host3")
