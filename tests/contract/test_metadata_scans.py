"""Every metadata table reads any bytes, in order, within bounds. Ranks are in ``test_metadata_table``."""

from __future__ import annotations

import itertools
import random
import tracemalloc

from bookkeeper.metadata.metadata_limits import VALUE_BYTES_MAX
from bookkeeper.metadata.metadata_table import FAMILIES, Cell, CellKey, Column, MetadataTable, RowPut, prefix_stop

REPL, LOG = Column("repl", b"f"), Column("log", b"f")

ODD_KEYS = [
    b"\x00",
    b"\x00\x00",
    b"\x00\xff",
    b"\x01",
    b"a",
    b"a\x00",
    b"a\x00b",
    b"a:b",
    b"a\xff",
    b"b",
    b"\xff",
    b"\xff\x00",
    b"\xff\xff",
]


def test_keys_and_qualifiers_may_hold_any_bytes_and_sort_by_them(table: MetadataTable) -> None:
    columns = [Column("repl", qualifier) for qualifier in (b"", *ODD_KEYS)]
    rows = [RowPut(key, {column: key + b"\x00" + column.qualifier for column in columns}) for key in ODD_KEYS]
    table.put(random.Random(3).sample(rows, len(rows)), 5)
    found = list(table.scan())
    assert [row.key for row in found] == ODD_KEYS
    for row, put in zip(found, rows, strict=True):
        assert row.cells == {column: Cell(5, value) for column, value in put.values.items()}
        assert list(row.family("repl")) == [b"", *ODD_KEYS]
        assert table.get(row.key) == row


def test_a_scan_starts_at_its_start_and_ends_before_its_stop(table: MetadataTable) -> None:
    table.put([RowPut(key, {REPL: b"v"}) for key in ODD_KEYS], 5)
    for start, stop in itertools.product([b"", *ODD_KEYS], [None, *ODD_KEYS]):
        expected = [key for key in ODD_KEYS if start <= key and (stop is None or key < stop)]
        assert [row.key for row in table.scan(start, stop)] == expected
    for prefix in (b"a", b"\x00", b"\xff", b"\xff\xff", b"c", b""):
        expected = [key for key in ODD_KEYS if key.startswith(prefix)]
        assert [row.key for row in table.scan(prefix, prefix_stop(prefix))] == expected


def test_only_the_families_asked_for_are_read(table: MetadataTable) -> None:
    table.put([RowPut(b"%d<" % n, {Column(name, b"q"): b"v"}) for n, name in enumerate(FAMILIES)], 5)
    table.put([RowPut(b"x<", {Column(name, b"q"): b"v" for name in FAMILIES})], 5)
    for name in FAMILIES:
        assert [list(row.cells) for row in table.scan(families=[name])] == [[Column(name, b"q")]] * 2
    row = table.get(b"x<", {"repl", "done"})
    assert row is not None
    assert set(row.cells) == {Column("repl", b"q"), Column("done", b"q")}
    assert table.get(b"0<", ["repl"]) is None
    assert table.get(b"x<", []) is None
    assert list(table.scan(families=())) == []


def test_a_long_scan_is_complete_and_in_order_while_rows_come_and_go(table: MetadataTable) -> None:
    keys = [b"row-%05d" % n for n in range(6_000)]
    table.put([RowPut(key, {REPL: b"v", LOG: b"v"}) for key in keys], 5)
    seen: list[bytes] = []
    for row in table.scan(b"row-", b"row-\xff", ["repl"]):
        if len(seen) % 1_500 == 0:
            table.delete([CellKey(row.key, REPL), CellKey(keys[0], REPL)], 9)
            table.put([RowPut(b"row-%05d-new" % len(seen), {LOG: b"v"}), RowPut(b"a", {REPL: b"v"})], 6)
        seen.append(row.key)
    assert seen == keys


def test_the_memory_of_a_scan_is_bounded(table: MetadataTable) -> None:
    value, rows, total = b"v" * 10_000, 2_400, 24_000_000
    table.put([RowPut(b"row-%05d" % n, {REPL: value}) for n in range(rows)], 5)
    tracemalloc.start()
    assert sum(len(cell.value) for row in table.scan() for cell in row.cells.values()) == total
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < total / 2


def test_many_columns_of_one_row_are_read_as_one_row(table: MetadataTable) -> None:
    columns = {Column("segment", b"s/%05d" % n): b"%d" % n for n in range(6_000)}
    table.put([RowPut(b"a<", {REPL: b"v"}), RowPut(b"b<", columns), RowPut(b"c<", {REPL: b"v"})], 5)
    assert [(row.key, len(row.cells)) for row in table.scan()] == [(b"a<", 1), (b"b<", 6_000), (b"c<", 1)]
    row = table.get(b"b<")
    assert row is not None
    assert {column: cell.value for column, cell in row.cells.items()} == columns


def test_large_values_come_back(table: MetadataTable) -> None:
    value = random.Random(5).randbytes(VALUE_BYTES_MAX)
    table.put([RowPut(b"1<", {REPL: value})], 5)
    row = table.get(b"1<")
    assert row is not None
    assert row.cells[REPL].value == value
