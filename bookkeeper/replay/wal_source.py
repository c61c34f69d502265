"""The Spark data source ``wal``: write-ahead logs as a DataFrame.

Arrives: ``spark.read.format("wal").option(...).load(path)``. Leaves: one row a record, as Arrow batches made in the
tasks. Planning and reading are :mod:`bookkeeper.replay.wal_scan`; here is only what Spark wants to hear. It needs no
cluster and changes nothing; this package must be installed where the tasks run. Survives a crash: nothing.
Source: design section 7, "The same WAL is also a Spark data source for users".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from bookkeeper.errors import InvalidInputError
from bookkeeper.replay.wal_scan import SCAN_SCHEMA, LogPart, Wanted, plan, read_part

NAME = "wal"
"""What ``format`` is called with."""

PART_BYTES = 64 << 20
"""Default of the option ``partitionBytes``: about a second's work of one core, with what Spark does to the records."""

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark's switch, off by default: what a query asks of ``table_id``, ``file``, ``offset`` and ``row`` spares blocks."""

OPTIONS = ("path", "paths", "firstoffset", "lastoffset", "partitionbytes")


@dataclass(frozen=True, slots=True)
class WalPartition(InputPartition):
    """What one task reads."""

    part: LogPart


class WalSource(DataSource):
    """Options: ``path`` (what ``load`` is called with), ``firstOffset``, ``lastOffset``, ``partitionBytes``."""

    @classmethod
    def name(cls) -> str:
        """See pyspark."""
        return NAME

    def schema(self) -> StructType:
        """See :data:`bookkeeper.replay.wal_scan.SCAN_SCHEMA`."""
        return from_arrow_schema(SCAN_SCHEMA)

    def reader(self, schema: StructType) -> WalReader:
        """Raises InvalidInputError for an option that can't be."""
        if schema != self.schema():
            raise InvalidInputError("the columns of a log are fixed: leave out .schema(...) and select what you need")
        return WalReader(self.options)


class WalReader(DataSourceReader):
    """Plans and reads; see the methods of pyspark's class."""

    def __init__(self, options: Mapping[str, str]) -> None:
        unknown = sorted(key for key in options if key.lower() not in OPTIONS)
        if unknown:
            raise InvalidInputError(f"unknown options of a log: {', '.join(unknown)}; known are {', '.join(OPTIONS)}")
        self.places = places_of(options)
        self.part_bytes = number_of(options, "partitionBytes", PART_BYTES)
        last = number_of(options, "lastOffset", 0)
        self.wanted = Wanted(number_of(options, "firstOffset", 1), last or None)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - pyspark's name
        """Take what headers can decide; what is given back is looked at again by Spark."""
        left: list[Filter] = []
        for condition in filters:
            self.wanted, exact = take_filter(self.wanted, condition)
            if not exact:
                left.append(condition)
        return left

    def partitions(self) -> Sequence[WalPartition]:
        """One part of one log each."""
        return [WalPartition(part) for part in plan(self.places, self.wanted, self.part_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a part. Damage is an error that names file and position."""
        assert isinstance(partition, WalPartition)
        return read_part(partition.part)


def places_of(options: Mapping[str, str]) -> list[str]:
    """What is to be read; raises InvalidInputError when nothing is named."""
    places = [options["path"]] if options.get("path") else json.loads(options.get("paths", "[]"))
    if not places:
        raise InvalidInputError('name a log or a directory of logs: spark.read.format("wal").load(PATH)')
    return [str(place) for place in places]


def number_of(options: Mapping[str, str], name: str, default: int) -> int:
    """A positive number; raises InvalidInputError. Spark's keys come in any case."""
    text = next((value for key, value in options.items() if key.lower() == name.lower()), None)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise InvalidInputError(f"option {name} of a log is {text!r}: give a number from 1 on")
    return int(text)


def take_filter(wanted: Wanted, condition: Filter) -> tuple[Wanted, bool]:
    """``wanted`` narrowed by a condition, and whether nothing of the condition is left to be looked at."""
    if isinstance(condition, IsNotNull) and condition.attribute[0] in ("table_id", "file", "offset"):
        return wanted, True
    if isinstance(condition, EqualTo | In) and condition.attribute in (("table_id",), ("file",)):
        return take_names(wanted, condition), True
    if condition_on(condition, "offset", int):
        return take_offset(wanted, condition), True
    if condition_on(condition, "row", bytes):
        return take_row(wanted, condition), False
    return wanted, False


def condition_on(condition: Filter, column: str, kind: type) -> bool:
    """Whether it compares the column with a literal of a type that can be taken."""
    comparisons = EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
    return isinstance(condition, comparisons) and condition.attribute == (column,) and isinstance(condition.value, kind)


def take_names(wanted: Wanted, condition: EqualTo | In) -> Wanted:
    """``table_id`` or ``file`` is one of some names."""
    values = condition.value if isinstance(condition, In) else (condition.value,)
    names = frozenset(str(value) for value in values if value is not None)
    return wanted.narrowed(tables=names) if condition.attribute == ("table_id",) else wanted.narrowed(files=names)


def take_offset(wanted: Wanted, condition: Filter) -> Wanted:
    """Bounds on the offset, exactly."""
    match condition:
        case EqualTo(_, value):
            return wanted.narrowed(first=value, last=value)
        case GreaterThan(_, value):
            return wanted.narrowed(first=value + 1)
        case GreaterThanOrEqual(_, value):
            return wanted.narrowed(first=value)
        case LessThan(_, value):
            return wanted.narrowed(last=value - 1)
        case LessThanOrEqual(_, value):
            return wanted.narrowed(last=value)
    return wanted


def take_row(wanted: Wanted, condition: Filter) -> Wanted:
    """Bounds on the row, inclusive: blocks that hold no such row are not read."""
    match condition:
        case EqualTo(_, value):
            return wanted.narrowed(min_row=value, max_row=value)
        case GreaterThan(_, value) | GreaterThanOrEqual(_, value):
            return wanted.narrowed(min_row=value)
        case LessThan(_, value) | LessThanOrEqual(_, value):
            return wanted.narrowed(max_row=value)
    return wanted


def register_wal_source(spark: SparkSession) -> None:
    """Make ``spark.read.format("wal")`` known to a session, and let it hand conditions down to the logs."""
    spark.dataSource.register(WalSource)
    spark.conf.set(PUSHDOWN, "true")
