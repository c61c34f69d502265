"""Reads of a part of a row: the result is the same for stores with slices and for stores without them."""

from __future__ import annotations

import pytest

from bookkeeper.errors import InvalidInputError
from bookkeeper.metadata.metadata_table import Cell, CellKey, Column, MetadataTable, Row, RowPut, SliceReader, get_slice
from tests.support.failing_metadata import FailingMetadata

ROW = b"1;row'with%odd\x00bytes"
NAMES = (b"a", b"b", b"b'quoted", b"b1", b"c", b"\xff")


def _filled(table: MetadataTable) -> MetadataTable:
    table.put([RowPut(ROW, {Column("repl", name): name for name in NAMES})], 5)
    table.put([RowPut(ROW, {Column("log", name): b"" for name in NAMES})], 5)
    table.put([RowPut(ROW + b"\x00", {Column("repl", b"b"): b"the next row's"})], 5)
    return table


@pytest.mark.parametrize("kind", ["own", "cut"])
@pytest.mark.parametrize(
    ("start", "stop", "names"),
    [
        (b"b", b"c", (b"b", b"b'quoted", b"b1")),
        (b"b'quoted", b"b'quoted\x00", (b"b'quoted",)),
        (b"", b"\xff\xff", NAMES),
        (b"d", b"e", ()),
        (b"c", b"b", ()),
    ],
)
def test_a_slice_holds_the_qualifiers_between_its_bounds(
    table: MetadataTable, kind: str, start: bytes, stop: bytes, names: tuple[bytes, ...]
) -> None:
    asked = _filled(table) if kind == "own" else FailingMetadata(_filled(table))
    assert isinstance(asked, SliceReader) == (kind == "own")
    expected = Row(ROW, {Column("repl", name): Cell(5, name) for name in names}) if names else None
    assert get_slice(asked, ROW, "repl", start, stop) == expected


def test_a_slice_shows_no_hidden_cell(table: MetadataTable) -> None:
    _filled(table).delete([CellKey(ROW, Column("repl", b"b"))], 5)
    table.purge([CellKey(ROW, Column("repl", b"b1"))])
    found = get_slice(table, ROW, "repl", b"b", b"c")
    assert found is not None
    assert [column.qualifier for column in found.cells] == [b"b'quoted"]


def test_a_slice_of_a_family_that_does_not_exist_is_refused(table: MetadataTable) -> None:
    with pytest.raises(InvalidInputError):
        get_slice(table, ROW, "nothing", b"a", b"b")
