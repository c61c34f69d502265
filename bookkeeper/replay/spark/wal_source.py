"""The Spark data source ``wal``: write-ahead logs as a DataFrame.

Arrives: ``spark.read.format("wal").option(...).load(path)``. Leaves: one row a record, as Arrow batches made in the
tasks. Planning and reading are :mod:`bookkeeper.replay.spark.wal_scan`; here is only what Spark wants to hear. It needs
no cluster and changes nothing; this package must be installed where the tasks run. Survives a crash: nothing.

What spares reading is said in options. Spark's own handing down of conditions (``pushFilters``) is left alone: as of
Spark 4.3 a DataFrame keeps the narrowed plan of a filtered query for its next unfiltered one, and answers wrongly.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from bookkeeper.errors import InvalidInputError
from bookkeeper.replay.spark.wal_scan import SCAN_SCHEMA, LogPart, Wanted, plan, read_part

NAME = "wal"
"""What ``format`` is called with."""

PART_BYTES = 64 << 20
"""Default of the option ``partitionBytes``: about a second's work of one core, with what Spark does to the records."""

OPTIONS = ("path", "paths", "tableId", "firstOffset", "lastOffset", "partitionBytes")


@dataclass(frozen=True, slots=True)
class WalPartition(InputPartition):
    """What one task reads."""

    part: LogPart


class WalSource(DataSource):
    """Options: ``path`` (what ``load`` is called with), ``tableId`` (or several, separated by commas), ``firstOffset``,
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
        """Raises InvalidInputError for an option that can't be."""
        if schema != self.schema():
            raise InvalidInputError("the columns of a log are fixed: leave out .schema(...) and select what you need")
        return WalReader(self.options)


class WalReader(DataSourceReader):
    """Plans and reads; see the methods of pyspark's class."""

    def __init__(self, options: Mapping[str, str]) -> None:
        known = {name.lower() for name in OPTIONS}
        unknown = sorted(key for key in options if key.lower() not in known)
        if unknown:
            raise InvalidInputError(f"unknown options of a log: {', '.join(unknown)}; known are {', '.join(OPTIONS)}")
        self.places = places_of(options)
        self.part_bytes = number_of(options, "partitionBytes", PART_BYTES)
        last = number_of(options, "lastOffset", 0)
        self.wanted = Wanted(number_of(options, "firstOffset", 1), last or None, tables_of(options))

    def partitions(self) -> Sequence[WalPartition]:
        """One part of one log each."""
        return [WalPartition(part) for part in plan(self.places, self.wanted, self.part_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a part. Damage is an error that names file and position.

        Where there are no partitions Spark makes one that is not ours: nothing is wanted then.
        """
        return read_part(partition.part) if isinstance(partition, WalPartition) else iter(())


def places_of(options: Mapping[str, str]) -> list[str]:
    """What is to be read; raises InvalidInputError when nothing is named."""
    places = [options["path"]] if options.get("path") else json.loads(options.get("paths", "[]"))
    if not places:
        raise InvalidInputError('name a log or a directory of logs: spark.read.format("wal").load(PATH)')
    return [str(place) for place in places]


def number_of(options: Mapping[str, str], name: str, default: int) -> int:
    """A positive number; raises InvalidInputError."""
    text = option(options, name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise InvalidInputError(f"option {name} of a log is {text!r}: give a number from 1 on")
    return int(text)


def tables_of(options: Mapping[str, str]) -> frozenset[str] | None:
    """Ids of tables, separated by commas; None when the option is not given."""
    text = option(options, "tableId")
    return None if text is None else frozenset(part.strip() for part in text.split(","))


def option(options: Mapping[str, str], name: str) -> str | None:
    """An option; Spark's keys come in any case."""
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)


def register_wal_source(spark: SparkSession) -> None:
    """Make ``spark.read.format("wal")`` known to a session."""
    spark.dataSource.register(WalSource)
