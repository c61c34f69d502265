"""One-row lag: from a mutation's acknowledgement at west to the moment a reader at east sees it.

The figures are p50 and p99 over 200 samples with default settings, alone and beside a load of 100,000 records
a second into the same table, each beside the same question asked of west itself (written and read back on one cluster),
measured in the same run. The load comes from a process of its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from bookkeeper.client import Client
from bookkeeper.clock import SystemClock
from tests.benchmarks.figure import Figure
from tests.benchmarks.pair import FAMILY, QUALIFIER, TABLE, Pair, replicated_pair, write_row

SAMPLES = 60
LARGE_SAMPLES = 200
POLL_MS = 2.0
TARGET_P50_MS = 500.0
TARGET_P99_MS = 1_000.0


LOAD_PER_S = 100_000
LOAD_BATCH = 5_000
LOAD_VALUE_BYTES = 100


def run(large: bool = False) -> list[Figure]:
    """Measure; takes a minute, or two to three."""
    samples = LARGE_SAMPLES if large else SAMPLES
    with replicated_pair() as pair:
        alone = _figures(pair, "one-row lag", b"a", samples)
        with _load(pair.west_directory) as rate:
            loaded = _figures(pair, "one-row lag beside 100 k records/s", b"b", samples)
        for figure in loaded:
            figure["note"] = f"{rate():,.0f} records a second were written"
    return alone + loaded


def _figures(pair: Pair, name: str, prefix: bytes, samples: int) -> list[Figure]:
    lags = [_lag_ms(pair, b"lag%s%06d" % (prefix, number)) for number in range(samples)]
    local = [_local_ms(pair, b"loc%s%06d" % (prefix, number)) for number in range(samples)]
    return [
        _figure(f"{name} p50", lags, local, 50, TARGET_P50_MS),
        _figure(f"{name} p99", lags, local, 99, TARGET_P99_MS),
    ]


@contextmanager
def _load(directory: str) -> Iterator[Callable[[], float]]:
    """Writes of another process until the block ends; afterwards the function tells how many records a second."""
    command = [sys.executable, "-m", "tests.benchmarks.lag", directory]
    said: list[float] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            yield lambda: said[0]
            answer, _ = process.communicate("\n")
            said.append(float(answer))
        finally:
            process.kill()


def _write_load(directory: str) -> None:
    """The other process: batches at a steady pace until a line comes in."""
    value, clock, never = b"v" * LOAD_VALUE_BYTES, SystemClock(), threading.Event()
    columns = {"family": FAMILY, "qualifier": QUALIFIER, "value": value}
    same = {name: pa.array([content] * LOAD_BATCH, pa.binary()) for name, content in columns.items()}
    os.set_blocking(sys.stdin.fileno(), False)
    with Client.connect(directory) as client, client.writer(TABLE) as writer:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        began_ns, written = clock.boot_ns(), 0
        while not sys.stdin.readline():
            rows = pa.array([b"load%012d" % number for number in range(written, written + LOAD_BATCH)], pa.binary())
            writer.add_batch(pa.RecordBatch.from_pydict({"row": rows, **same}))
            written += LOAD_BATCH
            clock.wait(never, max(0.0, written / LOAD_PER_S * 1e3 - (clock.boot_ns() - began_ns) / 1e6))
        writer.flush()
        seconds = (clock.boot_ns() - began_ns) / 1e9
    sys.stdout.write(str(written / seconds))


def _lag_ms(pair: Pair, row: bytes) -> float:
    write_row(pair.west, row)
    acknowledged_ns = pair.clock.boot_ns()
    pair.wait_for_row(row, POLL_MS)
    return (pair.clock.boot_ns() - acknowledged_ns) / 1e6


def _local_ms(pair: Pair, row: bytes) -> float:
    started_ns = pair.clock.boot_ns()
    write_row(pair.west, row)
    found = sum(batch.num_rows for batch in pair.west.scan(TABLE, row, row + b"\x00"))
    if found != 1:
        raise AssertionError(f"{found} cells of an acknowledged row {row!r}")
    return (pair.clock.boot_ns() - started_ns) / 1e6


def _figure(name: str, lags: list[float], local: list[float], percent: int, target: float) -> Figure:
    value, reference = _percentile(lags, percent), _percentile(local, percent)
    return Figure(
        name=name,
        value=value,
        unit="ms",
        reference=reference,
        reference_name=f"write and read back on one cluster, p{percent}",
        reference_unit="ms",
        ratio=value / reference,
        target=target,
        lower_is_better=True,
        size=SAMPLES,
    )


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


if __name__ == "__main__":
    _write_load(*sys.argv[1:])
