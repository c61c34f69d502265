"""One-row lag: from a mutation's acknowledgement at west to the moment a reader at east sees it.

The figures are p50 and p99 over a minute with default settings, so a flush and a change of the tasks that follow are
among the samples: row after row, a row every two seconds, and beside a load of 100,000 records a second into the same
table, which a process of its own writes. Each stands beside the same question asked of west itself (written and read
back on one cluster), measured in the same run. The costs of a row and of a quiet pair stand beside those of a second
pair, whose streams no task follows.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pyarrow as pa
from msgspec import Struct

from bookkeeper.client import Client
from bookkeeper.clock import SystemClock
from tests.benchmarks.figure import Figure
from tests.benchmarks.host_processes import cpu_seconds
from tests.benchmarks.pair import FAMILY, QUALIFIER, TABLE, Pair, replicated_pair, write_row

SECONDS = 60.0
LARGE_SECONDS = 300.0
QUIET_S = 10.0
LOCAL_SAMPLES = 60
COST_ROWS, WRITE_ROWS = 100, 40
POLL_MS = 2.0
SPARSE_PAUSE_MS, WRITE_PAUSE_MS = 2_000.0, 250.0

ALONE = {50: 10.0, 99: 30.0}
LOADED = {50: 15.0, 99: 60.0, 100: 200.0}
"""Targets in ms, by percent; 100 = the maximum."""
CPU_RATIO, CYCLES_RATIO, WRITE_RATIO = 0.25, 0.1, 1.1
IDLE_CORE_PERCENT = 1.0

LOAD_PER_S = 100_000
LOAD_BATCH = 5_000
LOAD_VALUE_BYTES = 100


class Costs(Struct, frozen=True):
    """Of :data:`COST_ROWS` rows, one after the other: CPU and quick cycles of the master; the median time of a write
    when nothing else is under way; of a quiet pair the part of a core, in percent.
    """

    cpu_s: float
    cycles: int
    write_ms: float
    idle_percent: float


def run(large: bool = False) -> list[Figure]:
    """Measure; takes four minutes, or a quarter of an hour."""
    seconds = LARGE_SECONDS if large else SECONDS
    with replicated_pair() as pair:
        costs = _costs(pair)
        alone = _lags_ms(pair, b"a", seconds)
        sparse, sparse_local = _sparse_ms(pair, seconds)
        local = _locals_ms(pair, b"a")
        with _load(pair.west_directory) as rate:
            loaded = _lags_ms(pair, b"b", seconds)
            beside_load = _locals_ms(pair, b"b")
    with replicated_pair(overrides={"replay.followers_max": 0}) as pair:
        runs = _costs(pair)
    note = f"{rate():,.0f} records a second were written"
    return [
        *_figures("one-row lag", alone, local, ALONE),
        *_figures("one-row lag, a row every two seconds", sparse, sparse_local, ALONE),
        *_figures("one-row lag beside 100 k records/s", loaded, beside_load, LOADED, note),
        _cost(f"CPU of {COST_ROWS} rows", costs.cpu_s, runs.cpu_s, "s", CPU_RATIO),
        _cost(f"quick cycles of {COST_ROWS} rows", costs.cycles, runs.cycles, "cycles", CYCLES_RATIO),
        _cost("write of a row p50", costs.write_ms, runs.write_ms, "ms", WRITE_RATIO),
        _idle(costs.idle_percent, runs.idle_percent),
    ]


# ---- samples


def _lags_ms(pair: Pair, prefix: bytes, seconds: float) -> list[float]:
    end_ns = pair.clock.boot_ns() + int(seconds * 1e9)
    found: list[float] = []
    while pair.clock.boot_ns() < end_ns:
        found.append(_lag_ms(pair, b"lag%s%06d" % (prefix, len(found))))
    return found


def _sparse_ms(pair: Pair, seconds: float) -> tuple[list[float], list[float]]:
    """Lags of rows that are seldom written, and what they take on one cluster, by turns."""
    never, end_ns = threading.Event(), pair.clock.boot_ns() + int(seconds * 1e9)
    lags, local = list[float](), list[float]()
    while pair.clock.boot_ns() < end_ns:
        lags.append(_lag_ms(pair, b"lags%06d" % len(lags)))
        pair.clock.wait(never, SPARSE_PAUSE_MS)
        local.append(_local_ms(pair, b"locs%06d" % len(local)))
        pair.clock.wait(never, SPARSE_PAUSE_MS)
    return lags, local


def _locals_ms(pair: Pair, prefix: bytes) -> list[float]:
    return [_local_ms(pair, b"loc%s%06d" % (prefix, number)) for number in range(LOCAL_SAMPLES)]


def _costs(pair: Pair) -> Costs:
    before_s, before_cycles = _cpu_s(), _quick_cycles(pair.west)
    for number in range(COST_ROWS):
        row = b"cost%06d" % number
        write_row(pair.west, row)
        pair.wait_for_row(row, POLL_MS)
    used_s, cycles = _cpu_s() - before_s, _quick_cycles(pair.west) - before_cycles
    write_ms = statistics.median(_writes_ms(pair))
    before_s = _cpu_s()
    time.sleep(QUIET_S)  # the quiet time that is measured: nothing is waited for
    idle_s = _cpu_s() - before_s
    return Costs(used_s, cycles, write_ms, 100 * idle_s / QUIET_S)


def _writes_ms(pair: Pair) -> Iterator[float]:
    never = threading.Event()
    for number in range(WRITE_ROWS):
        began_ns = pair.clock.boot_ns()
        write_row(pair.west, b"write%06d" % number)
        yield (pair.clock.boot_ns() - began_ns) / 1e6
        pair.clock.wait(never, WRITE_PAUSE_MS)


def _cpu_s() -> float:
    """The CPU time of all processes of both clusters until now."""
    return cpu_seconds(*psutil.Process().children(recursive=True))


def _quick_cycles(client: Client) -> int:
    return int(client._master.call("status")["quick_cycles"])


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


# ---- figures


def _figures(
    name: str, lags: list[float], local: list[float], targets: dict[int, float], note: str = ""
) -> list[Figure]:
    found = []
    for percent, target in targets.items():
        part = "max" if percent == 100 else f"p{percent}"
        value, reference = _percentile(lags, percent), _percentile(local, percent)
        figure = Figure(
            name=f"{name} {part}",
            value=value,
            unit="ms",
            reference=reference,
            reference_name=f"write and read back on one cluster, {part}",
            reference_unit="ms",
            ratio=value / reference,
            target=target,
            lower_is_better=True,
            size=len(lags),
        )
        if note:
            figure["note"] = note
        found.append(figure)
    return found


def _cost(name: str, value: float, reference: float, unit: str, target: float) -> Figure:
    return Figure(
        name=name,
        value=value,
        unit=unit,
        reference=reference,
        reference_name="no task follows",
        reference_unit=unit,
        ratio=value / reference,
        target=target,
        target_of="ratio",
        lower_is_better=True,
        size=COST_ROWS,
    )


def _idle(value: float, reference: float) -> Figure:
    return Figure(
        name="a quiet pair, part of a core",
        value=value,
        unit="%",
        reference=reference,
        reference_name="no task follows",
        reference_unit="%",
        ratio=value / reference,
        target=reference + IDLE_CORE_PERCENT,
        lower_is_better=True,
    )


def _percentile(values: list[float], percent: int) -> float:
    return max(values) if percent == 100 else statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


if __name__ == "__main__":
    _write_load(*sys.argv[1:])
