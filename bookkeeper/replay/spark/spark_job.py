"""The Spark job: one row per range in, one row per range out; a task ships complete streams.

The tasks read and send the bytes of WALs; only descriptors and results pass through the JVM. The job commits nothing:
the caller writes acknowledged offsets to the books, and the receiver drops the duplicates of a repeated job. For speed:
an Arrow table as input, several ranges a task, a task a core, no repartition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from bookkeeper.clock import SystemClock
from bookkeeper.config.sections import Settings
from bookkeeper.peers.registry import registry_of
from bookkeeper.replay.ranges import (
    RESULT_SCHEMA,
    Range,
    RangeResult,
    ranges_from_table,
    results_from_table,
    results_to_batch,
)
from bookkeeper.replay.spark.signs_of_life import TaskLife
from bookkeeper.replay.spark.spark_session import SCRATCH
from bookkeeper.replay.spark.tasks import task_table
from bookkeeper.replay.stream.range_logs import volume_of
from bookkeeper.replay.stream.range_shipping import Sessions, Shipper
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.security.access import process_credentials
from bookkeeper.storage.volume.opening import open_volume
from bookkeeper.storage.volume.volume_protocol import Volume

_BatchMap = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def run_job(spark: SparkSession, ranges: Sequence[Range], tasks: int, settings: Settings) -> list[RangeResult]:
    """Ship ``ranges`` in at most ``tasks`` tasks and wait; raises Spark's error when a task process died."""
    frame = spark.createDataFrame(task_table(ranges, tasks))
    shipped = frame.mapInArrow(ship(settings), from_arrow_schema(RESULT_SCHEMA))
    return results_from_table(shipped.toArrow())


def ship(settings: Settings) -> _BatchMap:
    """The function that runs in the tasks."""
    return partial(_ship_batches, settings)


def _ship_batches(settings: Settings, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    ranges = [r for batch in batches for r in ranges_from_table(batch)]
    with process_life(settings).task():
        results = list(ship_ranges(settings, open_volume(settings), ranges))
    yield results_to_batch(results)


def ship_ranges(settings: Settings, shared: Volume, ranges: Sequence[Range]) -> Iterator[RangeResult]:
    """Ship ranges in this task process; see :meth:`Shipper.ship`. ``shared``: the cluster's Volume."""

    def host(address: str) -> TServer:
        process_life(settings).wait(settings.rpc.timeout_ms)
        return process_pool(settings).tserver(address)

    volume = volume_of(ranges, shared, host, SystemClock())
    return Shipper(process_sessions(settings), volume, settings).ship(ranges, settings.replay.run_budget_ms)


@lru_cache(maxsize=1)
def process_life(settings: Settings) -> TaskLife:
    """The signs of life of this task process, also between its tasks."""
    return TaskLife(settings.directory / SCRATCH, SystemClock())


@lru_cache(maxsize=1)
def process_pool(settings: Settings) -> RpcPool:
    """Connections of this task process to hosts that have logs, kept from one run to the next."""
    own = settings.instance
    hello = Hello(PROTOCOL_VERSION, own.instance_id, own.name, "replay")
    return RpcPool(hello, settings.rpc, SystemClock(), process_credentials(settings))


@lru_cache(maxsize=1)
def process_sessions(settings: Settings) -> Sessions:
    """Connections and open streams of this task process, kept from one run to the next."""
    return Sessions(registry_of(settings), settings, steps=process_life(settings))
