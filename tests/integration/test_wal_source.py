"""Logs as DataFrames in a real Spark session."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from bookkeeper.replay.spark.wal_scan import SCAN_SCHEMA
from bookkeeper.replay.spark.wal_source import register_wal_source
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from bookkeeper.storage.wal.reading.block_reader import read_headers
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from tests.support.volumes import MACHINE, name_at, path_of, uri_at
from tests.support.wal_files import Spec, append, write_wal

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]

SPECS = [Spec([b"%04d" % (n * 50 + k) for k in range(50)], table_id=f"t{n % 2}") for n in range(10)]


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    register_wal_source(spark)
    register_wal_source(spark)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("logs")
    for number, seal in ((1, True), (2, False)):
        write_wal(directory / "s" / f"{number}.wal", SPECS, seal=seal)
    return directory


def load(spark: SparkSession, place: Path | str, **options: int | str) -> DataFrame:
    return spark.read.format("wal").options(**options).load(str(place))


def test_a_directory_of_logs_is_a_dataframe_of_all_their_records(spark: SparkSession, logs: Path) -> None:
    frame = load(spark, logs)
    assert frame.columns == SCAN_SCHEMA.names
    assert frame.rdd.getNumPartitions() == 2
    found = sorted((row.file, row.offset, bytes(row.row), row.table_id) for row in frame.collect())
    expected = [
        ((logs / "s" / f"{number}.wal").as_uri(), offset, b"%04d" % (offset - 1), f"t{(offset - 1) // 50 % 2}")
        for number in (1, 2)
        for offset in range(1, 501)
    ]
    assert found == expected
    (first,) = frame.take(1)
    assert (bytes(first.value), bytes(first.family), first.timestamp, first.delete) == (
        bytes(first.row),
        b"f",
        1,
        False,
    )


@pytest.mark.long
def test_a_query_leaves_no_trace_in_the_next_one_of_the_same_frame(spark: SparkSession, logs: Path) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, logs, partitionBytes=12_000)
        assert frame.where("table_id = 't1' AND offset BETWEEN 60 AND 110").count() == 82
        assert frame.where("table_id = 'none'").count() == 0
        assert frame.count() == 1000
        assert frame.where("row = CAST('0123' AS BINARY) OR offset = 1").count() == 4
        assert frame.rdd.getNumPartitions() > 4
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_options_choose_tables_and_offsets(spark: SparkSession, logs: Path) -> None:
    one = logs / "s" / "1.wal"
    frame = load(spark, one, firstOffset=49, lastOffset=52)
    assert [row.offset for row in frame.orderBy("offset").collect()] == [49, 50, 51, 52]
    assert load(spark, logs, tableId="t1", firstOffset=60, lastOffset=110).count() == 82
    assert load(spark, logs, tableId="none").count() == 0
    both = spark.read.format("wal").load([str(one), (logs / "s" / "2.wal").as_uri()])
    assert both.count() == 1000


def test_a_log_that_is_written_is_read_up_to_its_last_whole_block(spark: SparkSession, tmp_path: Path) -> None:
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "1.wal"), FileHeader())
    append(writer, SPECS[:1])
    frame = load(spark, tmp_path)
    assert frame.count() == 50
    append(writer, SPECS[1:3])
    writer.abandon()
    assert frame.count() == 50, "a frame is planned once"
    path = path_of(writer.name)
    path.write_bytes(path.read_bytes()[:-10])
    assert load(spark, path).count() == 100


def test_damage_fails_the_query_and_names_file_and_byte(spark: SparkSession, tmp_path: Path) -> None:
    name = write_wal(tmp_path / "1.wal", SPECS, seal=True)
    uri, raw = uri_at(name), bytearray(path_of(name).read_bytes())
    second = list(read_headers(MACHINE, name))[1]
    raw[second.end_position - 12] ^= 1
    path_of(name).write_bytes(raw)
    with pytest.raises(PySparkException, match=rf"{uri} is damaged at byte {second.position}"):
        load(spark, uri).count()
    assert load(spark, uri, lastOffset=50).count() == 50


def test_what_can_not_be_read_is_said_before_a_task_runs(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="there is no file"):
        load(spark, tmp_path / "9.wal").count()
    with pytest.raises(PySparkException, match="unknown options of a log: offset"):
        load(spark, tmp_path, offset=3).count()


@pytest.mark.long
def test_sql_sees_logs_as_a_table(spark: SparkSession, logs: Path) -> None:
    load(spark, logs).createOrReplaceTempView("log")
    rows = spark.sql("SELECT table_id, count(*) n, min(offset) low, max(offset) high FROM log GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in rows.collect()] == [("t0", 500, 1, 450), ("t1", 500, 51, 500)]
