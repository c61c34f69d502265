"""The options of the data source; no session is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from bookkeeper.errors import InvalidInputError
from bookkeeper.replay.spark.wal_scan import SCAN_SCHEMA, RecordFilter
from bookkeeper.replay.spark.wal_source import PART_BYTES, WalReader, WalSource
from tests.support.wal_files import Spec, write_wal

ANY = RecordFilter()


def test_options_are_read_in_any_case_and_have_defaults(tmp_path: Path) -> None:
    plain = WalReader({"path": "/p"})
    assert (plain.locations, plain.part_bytes, plain.record_filter) == (["/p"], PART_BYTES, ANY)
    told = WalReader({"paths": '["/a", "/b"]', "FIRSToffset": "2", "lastOffset": "5", "partitionbytes": "99"})
    assert (told.locations, told.part_bytes, told.record_filter) == (["/a", "/b"], 99, RecordFilter(2, 5))
    assert WalReader({"path": "/p", "tableid": "1, 2"}).record_filter == RecordFilter(tables=frozenset("12"))
    assert WalReader({"path": str(tmp_path)}).partitions() == []


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"path": ""},
        {"path": "/p", "firstOffset": "0"},
        {"path": "/p", "lastOffset": "-1"},
        {"path": "/p", "partitionBytes": "64m"},
        {"path": "/p", "offset": "3"},
    ],
)
def test_options_that_can_not_be_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        WalReader(options)


def test_the_columns_are_those_of_the_scan_and_no_others(tmp_path: Path) -> None:
    source = WalSource({"path": str(tmp_path)})
    assert source.name() == "wal"
    assert source.schema().fieldNames() == SCAN_SCHEMA.names
    with pytest.raises(InvalidInputError, match="columns"):
        source.reader(StructType([StructField("offset", LongType())]))


def test_a_partition_gives_record_batches(tmp_path: Path) -> None:
    write_wal(tmp_path / "1.wal", [Spec([b"a", b"b"])], seal=True)
    reader = WalReader({"path": str(tmp_path)})
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert [batch.schema for batch in batches] == [SCAN_SCHEMA]
    assert batches[0].column("offset").to_pylist() == [1, 2]
