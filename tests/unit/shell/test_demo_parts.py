"""Parts of the demo: its input, its comparison, its totals."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
from msgspec.structs import replace

from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.replay.journal import JournalContent, RunBegan, Shipped
from bookkeeper.replay.ranges import TASK_FAILED_CODE
from shell.demo.comparison import compare
from shell.demo.demo_report import shipped_text
from shell.demo.shipped_totals import Totals, totals_of
from shell.demo.workload import CellKey, batches, expected_cells, load_airports, operations

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def _batch(cells: dict[CellKey, bytes], timestamp: int = 7) -> pa.RecordBatch:
    rows = [
        {
            "row": row,
            "family": family,
            "qualifier": qualifier,
            "visibility": b"",
            "timestamp": timestamp,
            "delete": False,
            "value": value,
        }
        for (row, family, qualifier), value in sorted(cells.items())
    ]
    return pa.RecordBatch.from_pylist(rows, schema=MUTATION_SCHEMA)


def _sample() -> dict[CellKey, bytes]:
    airports = load_airports()
    return expected_cells(operations({code: airports[code] for code in sorted(airports)[:200]}, seed=1))


def test_the_data_set_is_real_and_large_enough() -> None:
    airports = load_airports()
    assert len(airports) >= 25_000
    assert airports["LSZH"]["city"] == "Zurich"


def test_the_input_is_the_same_for_the_same_seed_and_holds_overwrites_and_deletes() -> None:
    airports = load_airports()
    writes = operations(airports, seed=3)
    assert writes == operations(airports, seed=3)
    assert writes != operations(airports, seed=4)
    assert len({write.row for write in writes}) == len(airports) < len(writes)
    changes = sum(len(write.changes) for write in writes)
    assert any(value is None for write in writes for _, _, value in write.changes)
    assert 200_000 < len(expected_cells(writes)) < changes
    assert [write for batch in batches(writes, 100) for write in batch] == writes


def test_equal_tables_have_equal_digests_in_any_batches() -> None:
    cells = _sample()
    complete = _batch(cells)
    one, two = compare(cells, [complete]), compare(cells, [complete.slice(0, 100), complete.slice(100)])
    assert one.equal
    assert (one.cells, one.examples) == (len(cells), [])
    assert one.digest == two.digest != compare(cells, [_batch(cells, timestamp=8)]).digest


def test_every_kind_of_difference_is_counted_and_shown() -> None:
    cells = _sample()
    lost, changed = sorted(cells)[:2]
    wrong = {**cells, changed: b"wrong", (b"more", b"f", b"q"): b"1"}
    del wrong[lost]
    result = compare(cells, [_batch(wrong), _batch(wrong).slice(0, 1)])
    assert not result.equal
    assert (result.missing, result.different, result.unexpected) == (1, 1, 2)
    assert len(result.examples) == 4
    assert not compare(cells, []).equal


def _shipped(run: str, first: int, acked: int, *, records: int | None = None, **different: object) -> Shipped:
    count = acked - first + 1 if records is None else records
    line = Shipped(
        time=NOW,
        run=run,
        file="a",
        cluster="east",
        remote_table_id="1",
        source_table_id="1",
        incarnation=1,
        first=first,
        last=acked,
        acked=acked,
        records=count,
        bytes=10 * count,
        sent_records=count,
        sent_bytes=10 * count,
        filtered=acked - first + 1 - count,
        resent=0,
        error_code=None,
        error=None,
        host="h",
        pid=1,
        seconds=0.1,
    )
    return replace(line, **different)


def _journal(*shipped: Shipped, unreadable: int = 0, full: bool = False) -> JournalContent:
    runs = Counter(line.run for line in shipped)
    began = [RunBegan(time=NOW, run=run, ranges=count) for run, count in runs.items()]
    return JournalContent(began, shipped, unreadable, full)


def test_records_count_once_and_bytes_in_every_message() -> None:
    lines = [
        _shipped("1", 1, 10),
        _shipped("2", 11, 20, sent_records=30, sent_bytes=300),
        _shipped("3", 16, 25),
        _shipped("4", 1, 5),
        _shipped("5", 26, 25, sent_records=7, sent_bytes=70, error_code="unavailable", error="away"),
        _shipped("5", 1, 4, file="b"),
        _shipped("6", 1, 25, incarnation=2),
    ]
    sent = 10 + 30 + 10 + 5 + 7 + 4 + 25
    different = 25 + 4 + 25
    assert totals_of(_journal(*lines)) == Totals(2, different, 10 * sent, sent - different, ())
    assert totals_of(_journal(*reversed(lines))) == totals_of(_journal(*lines))


def test_records_for_other_targets_do_not_count() -> None:
    lines = [_shipped("1", 1, 10, records=4), _shipped("2", 11, 20, records=0), _shipped("3", 1, 10, records=4)]
    assert totals_of(_journal(*lines)) == Totals(1, 4, 80, 4, ())


def test_an_empty_journal_has_zero_totals() -> None:
    assert totals_of(JournalContent([], [], 0, full=False)) == Totals(0, 0, 0, 0, ())


def test_each_reason_for_too_low_totals_is_reported() -> None:
    complete = _journal(_shipped("1", 1, 10))
    assert totals_of(complete).undercount_reasons == ()
    two_began = replace(complete, began=[*complete.began, RunBegan(time=NOW, run="2", ranges=1)])
    assert totals_of(two_began).undercount_reasons == ("1 runs ended without a report of their sent records",)
    one_of_two = replace(complete, began=[RunBegan(time=NOW, run="1", ranges=2)])
    assert totals_of(one_of_two).undercount_reasons == ("1 runs ended without a report of their sent records",)
    died = _journal(_shipped("1", 1, 0, error_code=TASK_FAILED_CODE, error="died"))
    assert totals_of(died).undercount_reasons == ("1 runs ended without a report of their sent records",)
    assert totals_of(replace(complete, unreadable=1)).undercount_reasons == ("1 lines of the journal were cut",)
    assert "oldest part" in totals_of(replace(complete, full=True)).undercount_reasons[0]
    assert "lacks lines of 1 streams" in totals_of(_journal(_shipped("1", 5, 10))).undercount_reasons[0]
    overlap = _journal(_shipped("1", 1, 10, records=5), _shipped("2", 6, 15, records=5))
    assert totals_of(overlap) == Totals(1, 5, 100, 5, ("5 records may belong to either of two overlapping ranges",))


def test_the_report_compares_shipped_with_written_records() -> None:
    text = shipped_text(Totals(6, 266_863, 15_100_000, 13_715, ()), 266_863)
    assert text == "shipped: 6 files, 266,863 of 266,863 records, 15.1 MB sent, 13,715 records sent again"
