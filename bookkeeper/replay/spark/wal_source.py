"""The Spark data source ``wal``: write-ahead logs as a DataFrame.

``spark.read.format("wal").option(...).load(path)`` returns one row a record, as Arrow batches that the tasks read.
:mod:`bookkeeper.replay.spark.wal_scan` plans and reads; this module implements Spark's interface. It needs no cluster
and changes nothing; the tasks need this package installed.

Options limit the records to read. The source does not implement ``pushFilters``: as of Spark 4.3 a DataFrame reuses the
filtered plan of a query for its next unfiltered one and answers wrongly.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from bookkeeper.errors import InvalidInputError
from bookkeeper.replay.spark.wal_scan import SCAN_SCHEMA, LogPart, RecordFilter, plan, read_part

NAME = "wal"
"""The name for ``format``."""

PART_BYTES = 64 << 20
"""Default of the option ``partitionBytes``: about a second's work of one core, with what Spark does to the records."""

OPTIONS = ("path", "paths", "tableId", "firstOffset", "lastOffset", "partitionBytes")


class WalPartition(InputPartition):
    """The input of one task."""

    def __init__(self, part: LogPart) -> None:
        self.part = part


class WalSource(DataSource):
    """Options: ``path`` (the argument of ``load``), ``tableId`` (or several, separated by commas), ``firstOffset``,
    ``lastOffset`` (inclusive), ``partitionBytes``.
    """

    @classmethod
    def name(cls) -> str:
        """See pyspark."""
        return NAME

    def schema(self) -> StructType:
        """See :data:`bookkeeper.replay.spark.wal_scan.SCAN_SCHEMA`."""
        return from_arrow_schema(SCAN_SCHEMA)

    def reader(self, schema: StructType) -> WalReader:
        """The reader of these options; raises InvalidInputError for a wrong one."""
        if schema != self.schema():
            raise InvalidInputError("the columns of a log are fixed: leave out .schema(...) and select what you need")
        return WalReader(self.options)


class WalReader(DataSourceReader):
    """Plans and reads; see the methods of pyspark's class."""

    def __init__(self, options: Mapping[str, str]) -> None:
        names = {name.lower() for name in OPTIONS}
        unknown = sorted(key for key in options if key.lower() not in names)
        if unknown:
            raise InvalidInputError(
                f"unknown options of a log: {', '.join(unknown)}; the options are {', '.join(OPTIONS)}"
            )
        self.locations = locations_of(options)
        self.part_bytes = number_of(options, "partitionBytes", PART_BYTES)
        last = number_of(options, "lastOffset", 0)
        self.record_filter = RecordFilter(number_of(options, "firstOffset", 1), last or None, tables_of(options))

    def partitions(self) -> Sequence[WalPartition]:
        """One part of one log each."""
        return [WalPartition(part) for part in plan(self.locations, self.record_filter, self.part_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a part. Damage is an error that names file and position.

        Without partitions Spark creates one of its own class, which has no records.
        """
        return read_part(partition.part) if isinstance(partition, WalPartition) else iter(())


def locations_of(options: Mapping[str, str]) -> list[str]:
    """The paths or URIs to read; raises InvalidInputError when there is none."""
    locations = [options["path"]] if options.get("path") else json.loads(options.get("paths", "[]"))
    if not locations:
        raise InvalidInputError('name a log or a directory of logs: spark.read.format("wal").load(PATH)')
    return [str(location) for location in locations]


def number_of(options: Mapping[str, str], name: str, default: int) -> int:
    """A positive number; raises InvalidInputError."""
    text = option(options, name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise InvalidInputError(f"option {name} of a log is {text!r}: give a number from 1 on")
    return int(text)


def tables_of(options: Mapping[str, str]) -> frozenset[str] | None:
    """Ids of tables, separated by commas; None without the option."""
    text = option(options, "tableId")
    return None if text is None else frozenset(part.strip() for part in text.split(","))


def option(options: Mapping[str, str], name: str) -> str | None:
    """The value of an option; its key may be upper or lower case."""
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)


def register_wal_source(spark: SparkSession) -> None:
    """Register ``spark.read.format("wal")`` in a session."""
    spark.dataSource.register(WalSource)
