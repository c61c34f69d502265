"""Another table replaces HBase's table of a running cluster: a check detects it before each write."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bookkeeper.errors import LostBooksError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Cell, Column, MetadataTable, RowPut
from bookkeeper.metadata.opening import make_metadata, open_metadata
from bookkeeper.standalone.hbase.hbase_process import HBaseProcess
from bookkeeper.standalone.hbase.java import why_not_runnable
from tests.support.books import OWNER, made_books
from tests.support.faults import fault
from tests.support.hbase import HBaseInstance
from tests.support.hbase_copies import TableCopy, tables
from tests.support.metadata_stores import hbase_url
from tests.support.must_raise import must_raise

pytestmark = [pytest.mark.hbase, pytest.mark.integration]

REPL = Column("repl", b"f")
Accident = Callable[[TableCopy], None]


def put(table: MetadataTable, rank: int) -> None:
    table.put([RowPut(b"1<", {REPL: b"v"})], rank)


def begin(table: MetadataTable, number: int) -> None:
    table.put([RowPut(keys.owner_row(), {keys.ROUND: b""})], number)


def truncated(copy: TableCopy) -> None:
    copy.truncate()


def replaced(copy: TableCopy) -> None:
    """Another instance's table of the same name replaces it."""
    copy.truncate()
    make_metadata(f"hbase://{copy.hbase.host}:{copy.hbase.thrift_port}/{copy.table.removesuffix('_metadata')}", "other")


def restored(copy: TableCopy) -> None:
    """A copy of the table from before the latest round replaces it."""
    copy.drop()
    copy.put_back()


ACCIDENTS: dict[Accident, str] = {
    truncated: "has no owner row",
    replaced: "holds the books of instance other",
    restored: "older copy: its round is 1, and the latest round is 2",
}


def check_noticed(hbase: HBaseInstance, accident: Accident) -> None:
    """The connection stays open, and the next write is refused."""
    url = hbase_url(hbase)
    with closing(made_books(url)) as leader:
        begin(leader, 1)
        copy = TableCopy.of(hbase, url.rpartition("/")[2] + "_metadata")
        begin(leader, 2)
    table = open_metadata(url, OWNER, least_round=2)
    accident(copy)
    before = TableCopy.of(hbase, copy.table).cells
    try:
        for use in (lambda: put(table, 5), lambda: list(table.scan()), lambda: table.get(b"1<")):
            with must_raise(LostBooksError, "a table that became another one is used", match=ACCIDENTS[accident]):
                use()
        assert TableCopy.of(hbase, copy.table).cells == before, "nothing was written"
    finally:
        table.close()


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_a_table_that_became_another_one_is_not_written(hbase: HBaseInstance, accident: Accident) -> None:
    check_noticed(hbase, accident)
    with fault("proofs-last-for-ever"), pytest.raises(AssertionError, match="a table that became another one is used"):
        check_noticed(hbase, accident)


def test_a_table_that_was_dropped_is_not_made_anew_and_goes_on_when_it_is_back(hbase: HBaseInstance) -> None:
    url = hbase_url(hbase)
    table = made_books(url)
    put(table, 5)
    copy = TableCopy.of(hbase, url.rpartition("/")[2] + "_metadata")
    copy.drop()
    for _ in range(2):
        with pytest.raises(LostBooksError, match="does not exist"):
            put(table, 6)
    assert copy.table not in tables(hbase)
    copy.put_back()
    put(table, 7)
    row = table.get(b"1<")
    assert row is not None
    assert row.cells[REPL] == Cell(7, b"v")
    table.close()


@pytest.mark.long
def test_another_hbase_at_the_address_is_not_written(tmp_path: Path) -> None:
    """A real HBase with the same ports and another data directory, without the table of this cluster."""
    if (reason := why_not_runnable()) is not None:
        pytest.skip(f"NO REAL HBASE (local): {reason}")
    with HBaseProcess(tmp_path / "mine") as mine:
        url = f"hbase://{mine.host}:{mine.thrift_port}/west"
        make_metadata(url, OWNER)
        table = open_metadata(url, OWNER, retry_for_ms=120_000)
        put(table, 5)
        mine.stop()
        (tmp_path / "other").mkdir()
        shutil.copy(tmp_path / "mine" / "ports.json", tmp_path / "other" / "ports.json")
        with HBaseProcess(tmp_path / "other") as other:
            with pytest.raises(LostBooksError, match="does not exist"):
                put(table, 6)
            assert tables(other) == set()
            make_metadata(url, "other")
            with pytest.raises(LostBooksError, match="holds the books of instance other"):
                put(table, 6)
            assert TableCopy.of(other, "west_metadata").cells.keys().isdisjoint({6})
        mine.start()
        put(table, 7)
        table.close()
