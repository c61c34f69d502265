"""One contract for the metadata table, passed by every store: the SQLite file and the real HBase."""

from __future__ import annotations

import itertools
import multiprocessing
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from bookkeeper.errors import InvalidInputError, PermanentError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_limits import KEY_BYTES_MAX, VALUE_BYTES_MAX
from bookkeeper.metadata.metadata_table import (
    CLOSED_RANK,
    MAX_RANK,
    Cell,
    CellKey,
    Column,
    Compactor,
    MetadataTable,
    PartReader,
    Row,
    RowPut,
    SliceReader,
)
from tests.support.metadata_model import MetadataModel
from tests.support.metadata_processes import COLUMN, put_ranks, put_shuffled_ranks
from tests.support.metadata_stores import Store

REPL, DONE, LOG = Column("repl", b"f"), Column("done", b"f"), Column("log", b"f")
ROW = b"1<"
CELL = CellKey(ROW, REPL)


def _put(table: MetadataTable, rank: int, value: bytes | None = None, cell: CellKey = CELL) -> None:
    table.put([RowPut(cell.key, {cell.column: b"%d" % rank if value is None else value})], rank)


def _seen(table: MetadataTable, cell: CellKey = CELL) -> Cell | None:
    """The cell from ``get``; ``scan`` must return the same."""
    row = table.get(cell.key)
    scanned = list(table.scan(cell.key, cell.key + b"\x00"))
    assert scanned == ([] if row is None else [row])
    return None if row is None else row.cells.get(cell.column)


def _visible(table: MetadataTable) -> dict[CellKey, Cell]:
    return {CellKey(row.key, column): cell for row in table.scan() for column, cell in row.cells.items()}


# ---- ranks


def test_a_put_is_read_back_with_its_rank(table: MetadataTable) -> None:
    assert table.get(ROW) is None
    assert list(table.scan()) == []
    table.put([RowPut(ROW, {REPL: b"a", LOG: b""})], 7)
    assert table.get(ROW) == Row(ROW, {REPL: Cell(7, b"a"), LOG: Cell(7, b"")})
    assert list(table.scan()) == [Row(ROW, {LOG: Cell(7, b""), REPL: Cell(7, b"a")})]


@pytest.mark.parametrize("order", [(3, 9), (9, 3), (3, 9, 3), (9, 3, 9), (9, 9)])
def test_the_highest_rank_stays_in_any_order(table: MetadataTable, order: Sequence[int]) -> None:
    for rank in order:
        _put(table, rank)
    assert _seen(table) == Cell(9, b"9"), "a lower rank replaces a higher one"


def test_a_closed_status_stays_above_a_later_open_one(table: MetadataTable) -> None:
    _put(table, keys.closed_rank(300), b"closed")
    _put(table, keys.needed_rank(300), b"open")
    _put(table, keys.needed_rank(301), b"open, and wrong: nothing is added to a closed file")
    assert _seen(table) == Cell(keys.closed_rank(300), b"closed"), "a later open status hides a closed one"


def test_every_rank_from_one_to_the_highest_counts(table: MetadataTable) -> None:
    for rank in (1, 2, 2**31, 2**32, CLOSED_RANK - 1, CLOSED_RANK, MAX_RANK):
        _put(table, rank)
        assert _seen(table) == Cell(rank, b"%d" % rank)


def test_of_one_rank_written_with_two_values_the_later_write_stays(table: MetadataTable) -> None:
    """Rule R1 excludes the case; both stores still give the same result."""
    _put(table, 5, b"first")
    _put(table, 5, b"second")
    assert _seen(table) == Cell(5, b"second")


def test_a_writer_whose_clock_lags_or_leads_loses_nothing(table: MetadataTable) -> None:
    """Only ranks order values: ranks near the servers' clocks are like all other ranks."""
    now_ms = 1_763_000_000_000
    cells = [CellKey(b"row-%d" % n, REPL) for n in range(6)]
    for cell, middle in zip(
        cells, (1_000, now_ms - 3_600_000, now_ms, now_ms + 1, now_ms + 3_600_000, 2**60), strict=True
    ):
        _put(table, middle, cell=cell)
        _put(table, middle - 1, cell=cell)
        table.delete([cell], middle - 1)
        assert _seen(table, cell) == Cell(middle, b"%d" % middle)
        table.delete([cell], middle)
        assert _seen(table, cell) is None
        _put(table, middle + 1, cell=cell)
        assert _seen(table, cell) == Cell(middle + 1, b"%d" % (middle + 1))


# ---- tombstones


def test_a_delete_hides_values_up_to_its_rank_and_none_above(table: MetadataTable) -> None:
    _put(table, 4)
    table.delete([CELL], 5)
    assert _seen(table) is None
    _put(table, 4)
    _put(table, 5)
    assert _seen(table) is None, "a put at the rank of a delete shows"
    _put(table, 6)
    assert _seen(table) == Cell(6, b"6")
    table.delete([CELL], 5)
    assert _seen(table) == Cell(6, b"6")


def test_a_delete_before_its_put_hides_it_all_the_same(table: MetadataTable) -> None:
    table.delete([CELL], 5)
    _put(table, 5)
    assert _seen(table) is None, "a delete before its put hides nothing"
    assert list(table.scan()) == []


def test_a_late_delete_at_a_lower_rank_takes_nothing_back(table: MetadataTable) -> None:
    table.delete([CELL], 9)
    table.delete([CELL], 3)
    _put(table, 7)
    assert _seen(table) is None


def test_a_purge_hides_everything_for_good(table: MetadataTable) -> None:
    _put(table, 4)
    table.purge([CELL])
    assert _seen(table) is None
    _put(table, CLOSED_RANK + 1)
    _put(table, MAX_RANK)
    table.delete([CELL], 2)
    assert _seen(table) is None, "a put shows after a purge"


def test_deletes_and_purges_touch_the_cells_they_name_only(table: MetadataTable) -> None:
    table.put([RowPut(ROW, {REPL: b"r", DONE: b"d", LOG: b"l"}), RowPut(b"2<", {REPL: b"r"})], 5)
    table.delete([CELL], 5)
    table.purge([CellKey(ROW, DONE)])
    assert _visible(table) == {CellKey(ROW, LOG): Cell(5, b"l"), CellKey(b"2<", REPL): Cell(5, b"r")}


def test_one_call_deletes_several_cells_of_several_rows(table: MetadataTable) -> None:
    rows = [RowPut(b"%d<" % n, {REPL: b"r", LOG: b"l"}) for n in range(5)]
    table.put(rows, 5)
    table.delete([CellKey(row.key, column) for row in rows[:4] for column in row.values], 5)
    assert [row.key for row in table.scan()] == [b"4<"]


def test_compaction_changes_no_visible_cell(table: MetadataTable) -> None:
    for rank in (3, 8):
        table.put([RowPut(b"%d<" % n, {REPL: b"%d" % rank}) for n in range(50)], rank)
    table.delete([CellKey(b"%d<" % n, REPL) for n in range(0, 50, 2)], 8)
    table.purge([CellKey(b"1<", REPL)])
    before = _visible(table)
    for _ in range(2):
        if isinstance(table, Compactor):
            table.compact()
    assert _visible(table) == before
    assert len(before) == 24


# ---- retries, and writes of the same moment


def test_repeated_and_reordered_calls_end_the_same(table: MetadataTable) -> None:
    model = MetadataModel()
    calls: list[Callable[[MetadataTable | MetadataModel, CellKey], None]] = [
        lambda t, c: t.put([RowPut(c.key, {c.column: b"3"})], 3),
        lambda t, c: t.put([RowPut(c.key, {c.column: b"8"})], 8),
        lambda t, c: t.delete([c], 5),
    ]
    for number, order in enumerate(itertools.product(range(3), repeat=4)):
        cell = CellKey(b"row-%03d" % number, REPL)
        for call in order:
            calls[call](table, cell)
            calls[call](model, cell)
    assert _visible(table) == model.visible(), "what is left depends on the order of the calls"


def test_nothing_is_lost_within_one_millisecond(table: MetadataTable) -> None:
    cells = [CellKey(b"row-%03d" % n, REPL) for n in range(300)]
    for rank in range(1, 7, 3):
        table.put([RowPut(c.key, {c.column: b"old"}) for c in cells], rank)
        table.delete(cells, rank + 1)
        table.put([RowPut(c.key, {c.column: b"new"}) for c in cells], rank + 2)
        assert [row.cells for row in table.scan()] == [{REPL: Cell(rank + 2, b"new")}] * 300


def test_values_of_one_row_put_become_visible_together(store: Store, table: MetadataTable) -> None:
    stop, reader = threading.Event(), store.another()

    def read() -> list[Row]:
        torn: list[Row] = []
        while not stop.is_set():
            seen = [row for row in (reader.get(ROW), *reader.scan()) if row is not None]
            torn += [row for row in seen if len(row.cells) != 3 or len(set(row.cells.values())) != 1]
        return torn

    with ThreadPoolExecutor(1) as pool:
        torn = pool.submit(read)
        for rank in range(1, 60):
            table.put([RowPut(ROW, dict.fromkeys((REPL, DONE, LOG), b"%d" % rank))], rank)
        stop.set()
        assert torn.result() == []


# ---- many writers


def test_threads_that_write_ranks_in_any_order_leave_the_maximum(table: MetadataTable) -> None:
    ranks, rng = list(range(1, 121)), random.Random(7)
    rng.shuffle(ranks)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda share: put_ranks(table, 5, share), [ranks[n::8] for n in range(8)]))
    assert [row.cells for row in table.scan()] == [{COLUMN: Cell(120, b"120")}] * 5, (
        "a lower rank replaces a higher one"
    )


def test_processes_that_write_ranks_in_any_order_leave_the_maximum(store: Store, table: MetadataTable) -> None:
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=put_shuffled_ranks, args=(store.url, 5, list(range(1, 61)), n)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=120)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert [row.cells for row in table.scan()] == [{COLUMN: Cell(60, b"60")}] * 5


def test_puts_and_deletes_of_many_threads_end_as_their_ranks_say(table: MetadataTable) -> None:
    model, rng = MetadataModel(), random.Random(11)
    cells = [CellKey(b"row-%d" % n, REPL) for n in range(8)]
    work = [(rng.choice(cells), rng.random() < 0.4, rank) for rank in rng.sample(range(1, 400), 160)]

    def do(target: MetadataTable | MetadataModel, cell: CellKey, hide: bool, rank: int) -> None:
        if hide:
            target.delete([cell], rank)
        else:
            target.put([RowPut(cell.key, {cell.column: b"%d" % rank})], rank)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda step: do(table, *step), work))
    for step in work:
        do(model, *step)
    assert _visible(table) == model.visible()


# ---- misuse


@pytest.mark.parametrize(
    "misuse",
    [
        lambda t: t.put([RowPut(b"", {REPL: b"v"})], 5),
        lambda t: t.put([RowPut(b"k" * (KEY_BYTES_MAX + 1), {REPL: b"v"})], 5),
        lambda t: t.put([RowPut(ROW, {REPL: b"v"}), RowPut(ROW, {Column("nope", b"q"): b"v"})], 5),
        lambda t: t.put([RowPut(ROW, {Column("repl", b"q" * (KEY_BYTES_MAX + 1)): b"v"})], 5),
        lambda t: t.put([RowPut(ROW, {REPL: b"v" * VALUE_BYTES_MAX, LOG: b"v"})], 5),
        lambda t: t.put([RowPut(ROW, {REPL: b"v"})], 0),
        lambda t: t.put([RowPut(ROW, {REPL: b"v"})], MAX_RANK + 1),
        lambda t: t.delete([CELL], 0),
        lambda t: t.delete([CELL], MAX_RANK + 1),
        lambda t: t.delete([CellKey(ROW, Column("nope", b"q"))], 5),
        lambda t: t.purge([CellKey(b"", REPL)]),
        lambda t: t.get(b""),
        lambda t: t.get(ROW, ["nope"]),
        lambda t: t.scan(families=["nope"]),
    ],
)
def test_misuse_is_refused_before_anything_is_written(
    misuse: Callable[[MetadataTable], object], table: MetadataTable
) -> None:
    with pytest.raises(InvalidInputError):
        misuse(table)
    assert list(table.scan()) == []


@pytest.mark.parametrize("byte", [b"k", b"\xff"])
def test_a_scan_has_any_bounds_also_longer_ones_than_any_key(table: MetadataTable, byte: bytes) -> None:
    """A user's row may be longer than a row key of this table, and a tablet is looked up by it."""
    longest, beyond = byte * KEY_BYTES_MAX, byte * (KEY_BYTES_MAX + 1)
    for key in (b"a", longest):
        _put(table, 1, cell=CellKey(key, REPL))
    readers = (table.scan, *((table.scan_parts,) if isinstance(table, PartReader) else ()))
    for scan in readers:
        found = [row.key for row in scan(b"", beyond, ("repl",))]
        assert found == [b"a", longest]
        assert [row.key for row in scan(longest, None, ("repl",))] == [longest]
        assert [row.key for row in scan(beyond, None, ("repl",))] == []
        assert [row.key for row in scan(beyond, beyond + b"x", ("repl",))] == []
        assert [row.key for row in scan(b"a" * (KEY_BYTES_MAX + 1), beyond, ("repl",))] == [longest]
    if isinstance(table, SliceReader):
        assert table.get_slice(longest, "repl", b"", b"z") == table.get(longest)


def test_empty_calls_do_nothing(table: MetadataTable) -> None:
    table.put([], 5)
    table.put([RowPut(ROW, {})], 5)
    table.delete([], 5)
    table.purge([])
    assert list(table.scan()) == []


def test_a_closed_table_refuses_and_another_one_goes_on(store: Store, table: MetadataTable) -> None:
    _put(table, 5)
    other = store.another()
    table.close()
    table.close()
    for use in (lambda: _put(table, 6), lambda: table.get(ROW), lambda: list(table.scan())):
        with pytest.raises(PermanentError, match="closed"):
            use()
    assert _seen(other) == Cell(5, b"5")


def test_one_process_reads_the_writes_of_another(store: Store, table: MetadataTable) -> None:
    _put(table, 5)
    assert _seen(store.another()) == Cell(5, b"5")


def test_tables_opened_for_the_first_time_at_once_are_one_table(store: Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(lambda _: store.another(), range(4)))
    for number, table in enumerate(tables):
        _put(table, number + 1)
    assert {_seen(table) for table in tables} == {Cell(4, b"4")}
