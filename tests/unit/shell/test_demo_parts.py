"""The demo's own parts: what it expects, how it compares, what it counts."""

from __future__ import annotations

import pyarrow as pa

from bookkeeper.model import MUTATION_SCHEMA, TargetKey
from bookkeeper.rpc.messages import TargetStatus
from shell.demo.tally import Tally, Totals
from shell.demo.verdict import compare
from shell.demo.workload import CellKey, batches, expected_cells, load_airports, operations


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


def test_equal_tables_are_equal_and_have_equal_digests_however_they_are_cut() -> None:
    cells = _sample()
    whole = _batch(cells)
    one, two = compare(cells, [whole]), compare(cells, [whole.slice(0, 100), whole.slice(100)])
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


def _status(file: str, needed: int, finished: int, sent: int, resends: int) -> TargetStatus:
    return TargetStatus(
        file=file,
        target=TargetKey("east", "1", "1", 1),
        state="OPEN",
        needed=needed,
        finished=finished,
        lag_records=needed - finished,
        lag_bytes=0,
        lag_seconds=0.0,
        phase="shipping",
        last_error=None,
        next_try_in_ms=None,
        worker=None,
        records_shipped=finished,
        bytes_shipped=sent,
        resends=resends,
        table="airports",
        groups=(),
    )


def test_counts_survive_new_masters_and_files_that_are_done() -> None:
    tally = Tally()
    tally.sample([_status("a", 100, 40, 1_000, 3), _status("b", 10, 10, 100, 0)])
    assert tally.behind == 60
    tally.sample([_status("a", 120, 60, 500, 0)])
    assert tally.totals() == Totals(files=2, records=70, bytes_shipped=1_600, resends=3)
    tally.sample([])
    assert tally.totals() == Totals(files=2, records=130, bytes_shipped=1_600, resends=3)
    assert tally.behind == 0
