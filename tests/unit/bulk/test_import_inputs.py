"""The inputs of an import: Parquet and CSV files of the right columns, checked before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bookkeeper.bulk.import_inputs import read_inputs
from bookkeeper.errors import InvalidInputError, RefusedError
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.security.file_roots import ANYWHERE, FileRoots
from bookkeeper.storage.tablet.tablet_settings import BatchLimits

NOW_MS = 1_795_321_142_423
LIMITS = BatchLimits(row_bytes_max=10, column_bytes_max=10, value_bytes_max=20)
PLAIN: dict[str, Any] = {"row": ["b", "a"], "family": ["f", "f"], "qualifier": ["q", "q"], "value": ["1", "2"]}


def _parquet(path: Path, columns: dict[str, Any]) -> None:
    pq.write_table(pa.table(columns), path)


def _rows(directory: Path) -> list[tuple[Any, ...]]:
    batches = list(read_inputs(directory, NOW_MS, LIMITS, ANYWHERE))
    assert all(batch.schema.equals(MUTATION_SCHEMA) for batch in batches)
    return [tuple(record.values()) for batch in batches for record in batch.to_pylist()]


def test_parquet_of_text_without_the_columns_that_may_be_left_out(tmp_path: Path) -> None:
    _parquet(tmp_path / "a.parquet", PLAIN)
    (tmp_path / "_SUCCESS").touch()
    assert _rows(tmp_path) == [
        (b"b", b"f", b"q", b"", NOW_MS, False, b"1"),
        (b"a", b"f", b"q", b"", NOW_MS, False, b"2"),
    ]


@pytest.mark.parametrize(
    "times",
    [
        pa.array([7, None], pa.int32()),
        pa.array([datetime.fromtimestamp(0.007999, UTC), None], pa.timestamp("us", "UTC")),
    ],
    ids=["numbers", "timestamps"],
)
def test_bytes_labels_and_timestamps_of_parquet(tmp_path: Path, times: pa.Array) -> None:
    values = pa.array([b"\xff", b""], pa.large_binary())
    families = pa.array(["f", "g"]).dictionary_encode()
    label = pa.array([b"a&b", b""])
    _parquet(
        tmp_path / "a.parquet", PLAIN | {"value": values, "family": families, "visibility": label, "timestamp": times}
    )
    assert _rows(tmp_path) == [
        (b"b", b"f", b"q", b"a&b", 7, False, b"\xff"),
        (b"a", b"g", b"q", b"", NOW_MS, False, b""),
    ]


def test_times_that_lie_far_ahead_are_refused_with_the_file(tmp_path: Path) -> None:
    _parquet(tmp_path / "a.parquet", PLAIN | {"timestamp": [5, NOW_MS + 1]})
    assert len(list(read_inputs(tmp_path, NOW_MS, LIMITS, ANYWHERE, NOW_MS + 1))) == 1
    with pytest.raises(InvalidInputError, match=rf"a\.parquet can't be imported: timestamp {NOW_MS + 1} lies more"):
        list(read_inputs(tmp_path, NOW_MS, LIMITS, ANYWHERE, NOW_MS))


def test_csv_with_a_header_quotes_and_empty_cells(tmp_path: Path) -> None:
    text = 'value,timestamp,row,family,qualifier\n"two\nlines, ""x""",5,bern,geo,lat\n,,biel,geo,\n'
    (tmp_path / "a.csv").write_text(text)
    assert _rows(tmp_path) == [
        (b"bern", b"geo", b"lat", b"", 5, False, b'two\nlines, "x"'),
        (b"biel", b"geo", b"", b"", NOW_MS, False, b""),
    ]


def test_files_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("row,family,qualifier,value\n2,f,q,v\n")
    _parquet(tmp_path / "c.parquet", PLAIN | {"row": ["3", "4"]})
    (tmp_path / "a.csv").write_text("row,family,qualifier,value\n1,f,q,v\n")
    assert [record[0] for record in _rows(tmp_path)] == [b"1", b"2", b"3", b"4"]


def test_a_file_that_leads_out_of_the_roots_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "a.csv").write_text("row,family,qualifier,value\n1,f,q,v\n")
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "a.csv").symlink_to(tmp_path / "closed" / "a.csv")
    for directory in ("open", "closed"):
        with pytest.raises(RefusedError, match="not below a directory"):
            list(read_inputs(tmp_path / directory, NOW_MS, LIMITS, FileRoots((tmp_path / "open",))))
    assert len(list(read_inputs(tmp_path / "open", NOW_MS, LIMITS, FileRoots((tmp_path,))))) == 1


def _csv(text: str) -> Callable[[Path], object]:
    return lambda place: (place / "a.csv").write_text(text)


HEADER = "row,family,qualifier,value,timestamp,visibility\n"
BAD: list[tuple[Callable[[Path], object], str]] = [
    (lambda place: None, "nothing to import"),  # noqa: ARG005
    (lambda place: place.rmdir(), "is no directory"),
    (lambda place: (place / "a.txt").touch(), "a.txt is no .parquet and no .csv file"),
    (lambda place: (place / "a.csv").mkdir(), "a.csv is no .parquet"),
    (lambda place: (place / "a.parquet").write_bytes(b"PAR1 this is none"), "a.parquet can't be read"),
    (lambda place: (place / "a.parquet").touch(), "a.parquet can't be read"),
    (_csv(""), "a.csv can't be read"),
    (_csv("row,family,value\n"), "no column qualifier; the columns are row, family, qualifier, value"),
    (_csv("row,family,qualifier,value,Time\n"), "column 'Time' is unknown"),
    (_csv("row,row,family,qualifier,value\n"), "column row comes twice"),
    (_csv(HEADER + "r,f,q\n"), "a.csv can't be read"),
    (_csv(HEADER + "r,f,q,v,soon,\n"), "a.csv can't be read.*soon"),
    (_csv(HEADER + ",f,q,v,1,\n"), "a.csv can't be imported: a record has an empty row"),
    (_csv(HEADER + "r,f,q,v,1,a b\n"), "a.csv can't be imported: visibility"),
    (_csv(HEADER + f"r,f,q,{'v' * 21},1,\n"), "a value of 21 bytes"),
    (lambda place: _parquet(place / "a.parquet", PLAIN | {"row": ["a", None]}), "column 'row' of a batch holds nulls"),
    (lambda place: _parquet(place / "a.parquet", PLAIN | {"value": [1, 2]}), "column value .* is of type int64"),
    (
        lambda place: _parquet(place / "a.parquet", PLAIN | {"timestamp": ["1", "2"]}),
        "column timestamp .* of type string",
    ),
]


@pytest.mark.parametrize(("spoil", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_what_can_t_be_imported_is_said(tmp_path: Path, spoil: Callable[[Path], object], reason: str) -> None:
    place = tmp_path / "input"
    place.mkdir()
    spoil(place)
    with pytest.raises(InvalidInputError, match=reason):
        _rows(place)
