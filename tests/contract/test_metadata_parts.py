"""Scans that return long rows in parts: the parts have all cells of a row, from one snapshot (R9)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bookkeeper.metadata.hbase import hbase_store
from bookkeeper.metadata.hbase.hbase_store import HBaseMetadataTable
from bookkeeper.metadata.metadata_table import Cell, CellKey, Column, MetadataTable, Row, RowPut, scan_parts
from bookkeeper.metadata.sqlite import sqlite_cells
from tests.support.failing_metadata import FailingMetadata
from tests.support.faults import fault

FAMILIES = ("log", "repl")
LONG = b"1;m"
NAMES = tuple(b"%02d" % number for number in range(20))


@pytest.fixture(autouse=True)
def _parts_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    for store in (sqlite_cells, hbase_store):
        monkeypatch.setattr(store, "PART_CELLS", 7)
    monkeypatch.setattr(hbase_store, "PAGE_BYTES", 10)


def _filled(table: MetadataTable) -> MetadataTable:
    table.put([RowPut(key, {Column("repl", b"a"): key}) for key in (b"1;a", b"1;b", b"1<", b"2<")], 5)
    table.put([RowPut(LONG, {Column(family, name): name for family in FAMILIES for name in NAMES})], 5)
    table.delete([CellKey(LONG, Column("repl", NAMES[3]))], 5)
    return table


def _joined(parts: Iterator[Row]) -> list[Row]:
    rows: dict[bytes, dict[Column, Cell]] = {}
    for part in parts:
        known = rows.setdefault(part.key, {})
        assert not known or max(known) < min(part.cells)
        assert known is list(rows.values())[-1]
        known.update(part.cells)
    return [Row(key, cells) for key, cells in rows.items()]


def check_that_parts_say_what_rows_say(table: MetadataTable) -> None:
    for start, stop in ((b"", None), (b"1;b", b"2"), (LONG, b"1<"), (b"3", None), (b"2", b"1")):
        for families in (FAMILIES, ("repl",), ()):
            assert _joined(scan_parts(table, start, stop, families)) == list(table.scan(start, stop, families)), (
                "parts say something else than whole rows"
            )


@pytest.mark.parametrize("kind", ["own", "whole"])
def test_parts_have_the_cells_of_rows(table: MetadataTable, kind: str) -> None:
    check_that_parts_say_what_rows_say(_filled(table) if kind == "own" else FailingMetadata(_filled(table)))


def test_a_row_is_of_one_moment_though_its_parts_are_read_one_by_one(table: MetadataTable) -> None:
    parts = scan_parts(_filled(table), b"", None, ("repl",))
    keys = [next(parts).key for _ in range(3)]
    assert keys == [b"1;a", b"1;b", LONG]
    late = Column("repl", b"late")
    table.put([RowPut(LONG, {late: b"x"})], 6)
    table.delete([CellKey(LONG, Column("repl", NAMES[-1]))], 6)
    seen = [column for part in parts if part.key == LONG for column in part.cells]
    assert len(seen) == len(NAMES) - 1 - 7
    assert late not in seen


def test_a_reader_may_stop_within_a_row(table: MetadataTable) -> None:
    parts = scan_parts(_filled(table), LONG, None, ("repl",))
    assert next(parts).key == LONG
    del parts
    check_that_parts_say_what_rows_say(table)


def test_a_switch_breaks_the_law_of_parts(table: MetadataTable) -> None:
    of_hbase = "long-rows-of-hbase-end-with-their-first-part"
    name = of_hbase if isinstance(_filled(table), HBaseMetadataTable) else "long-rows-end-with-their-first-part"
    with fault(name), pytest.raises(AssertionError, match="parts say something else than whole rows"):
        check_that_parts_say_what_rows_say(table)
