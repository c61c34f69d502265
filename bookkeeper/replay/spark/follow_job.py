"""The Spark job of one task that follows the logs of a tserver; only its order and its end pass the JVM."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from bookkeeper.config.sections import Settings
from bookkeeper.replay.ranges import (
    RANGE_SCHEMA,
    RESULT_SCHEMA,
    decode_table,
    encode_table,
    ranges_from_table,
    ranges_to_table,
    results_from_table,
    results_to_batch,
)
from bookkeeper.replay.spark.spark_job import process_life, process_pool, ship_ranges
from bookkeeper.replay.stream.following import POLL_MS, Ended, follow
from bookkeeper.storage.volume.opening import open_volume

ORDER_SCHEMA = pa.schema([("tserver", pa.string()), ("cluster", pa.string()), ("run", pa.string())])
ENDED_SCHEMA = pa.schema([("error", pa.string()), ("ranges", pa.binary()), ("results", pa.binary())])


def run_follow_job(spark: SparkSession, tserver: str, cluster: str, run: str, settings: Settings) -> Ended:
    """Follow in one task, and wait for its end; raises Spark's error when its process died."""
    order = pa.Table.from_pylist([{"tserver": tserver, "cluster": cluster, "run": run}], schema=ORDER_SCHEMA)
    ended = spark.createDataFrame(order).mapInArrow(partial(_follow, settings), from_arrow_schema(ENDED_SCHEMA))
    (row,) = ended.toArrow().to_pylist()
    ranges = ranges_from_table(decode_table(row["ranges"], RANGE_SCHEMA))
    results = results_from_table(decode_table(row["results"], RESULT_SCHEMA))
    return Ended(row["error"], tuple(ranges), tuple(results))


def _follow(settings: Settings, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for order in (row for batch in batches for row in batch.to_pylist()):
        ship = partial(ship_ranges, settings, open_volume(settings))
        with process_life(settings).task():
            ended = follow(ship, partial(_poll, settings, order["tserver"], order["cluster"], order["run"]))
        row = {
            "error": ended.error,
            "ranges": encode_table(ranges_to_table(ended.ranges).to_batches(), RANGE_SCHEMA),
            "results": encode_table([results_to_batch(ended.results)], RESULT_SCHEMA),
        }
        yield pa.RecordBatch.from_pylist([row], schema=ENDED_SCHEMA)


def _poll(settings: Settings, tserver: str, cluster: str, run: str, results: bytes) -> bytes:
    timeout_ms = POLL_MS + settings.rpc.timeout_ms
    process_life(settings).wait(timeout_ms)
    return process_pool(settings).tserver(tserver, timeout_ms).follow(cluster, run, results, POLL_MS)
