"""HBase's answers as rows of the books, and a long row in parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.metadata.hbase.hbase_calls import thrift
from bookkeeper.metadata.hbase.hbase_cells import column_name, parts_of, rows_of
from bookkeeper.metadata.metadata_table import FAMILIES, Column

COLUMNS = st.builds(Column, st.sampled_from(FAMILIES), st.binary(max_size=3))


def answer(columns: list[Column]) -> list[object]:
    """A row as HBase's Thrift server answers it."""
    cells = {column_name(column): thrift.TCell(value=b"%d" % at, timestamp=at) for at, column in enumerate(columns)}
    return [thrift.TRowResult(row=b"row", columns=cells)]


@given(st.lists(COLUMNS, unique=True), st.integers(1, 4))
def test_the_parts_of_a_row_are_its_cells_in_the_order_of_columns(columns: list[Column], cells: int) -> None:
    (whole,) = rows_of(answer(columns))
    parts = parts_of(answer(columns), cells)
    assert {part.key for part in parts} <= {b"row"}
    assert all(len(part.cells) == cells for part in parts[:-1])
    assert [cell for part in parts for cell in part.cells.items()] == sorted(whole.cells.items())


def test_a_row_that_is_gone_has_no_parts() -> None:
    assert parts_of([], 3) == []
