"""One client and one tserver: mutations until they are durable, and small scans of a second client meanwhile.

Each figure stands beside the same bytes appended to a plain file and synced batch by batch in the same run. The cluster
is a real one, made by init and run by the supervisor; the scans come from a process of their own.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from bookkeeper.client import Client, Mutation
from bookkeeper.clock import SystemClock
from tests.benchmarks.figure import Figure
from tests.support.cluster import Cluster

RECORDS = 1_000_000
BATCH = 5_000
BATCHES = (1_000, BATCH, 20_000)
"""Records of one Arrow batch."""
VALUE_BYTES = 100
TARGET_MUTATIONS_PER_S = 400_000.0
TARGET_ARROW_PER_S = 700_000.0
TARGET_SCAN_P99_MS = 50.0
ALONE_MS = 2_000
"""How long scans are measured without a load."""
SCAN_ROWS = 10
"""That a small scan meets, on average."""


def _rows(rng: np.random.Generator) -> list[bytes]:
    return [b"%016d" % number for number in rng.integers(0, 10**15, RECORDS)]


def _write_mutations(client: Client, table: str, rows: list[bytes], value: bytes) -> float:
    started = time.perf_counter()
    with client.writer(table) as writer:
        writer.add_all(Mutation(row).put(b"fam", b"qual", value) for row in rows)
    return time.perf_counter() - started


def _write_arrow(client: Client, table: str, rows: list[bytes], value: bytes, of: int = BATCH) -> float:
    batches = [
        pa.RecordBatch.from_pydict(
            {
                "row": pa.array(part, pa.binary()),
                "family": pa.array([b"fam"] * len(part), pa.binary()),
                "qualifier": pa.array([b"qual"] * len(part), pa.binary()),
                "value": pa.array([value] * len(part), pa.binary()),
            }
        )
        for part in (rows[at : at + of] for at in range(0, len(rows), of))
    ]
    started = time.perf_counter()
    with client.writer(table) as writer:
        for batch in batches:
            writer.add_batch(batch)
    return time.perf_counter() - started


def _append_plain(path: Path, rows: list[bytes], value: bytes) -> float:
    payloads = [b"".join(row + value for row in rows[at : at + BATCH]) for at in range(0, len(rows), BATCH)]
    started = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for payload in payloads:
            file.write(payload)
            os.fdatasync(file.fileno())
    return time.perf_counter() - started


@contextmanager
def _scans_beside(directory: str, table: str) -> Iterator[Callable[[], list[float]]]:
    """Small scans in a process of their own until asked for: then their durations in ms."""
    command = [sys.executable, "-m", "tests.benchmarks.client", directory, table]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()

    def finish() -> list[float]:
        answer, _ = process.communicate("\n")
        found: list[float] = json.loads(answer)
        return found

    try:
        yield finish
    finally:
        process.kill()
        process.wait()


def _probe(directory: str, table: str) -> None:
    """The other process: scan small ranges one after the other until a line comes in."""
    durations = []
    os.set_blocking(sys.stdin.fileno(), False)
    with Client.connect(directory) as client:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        number = 0
        while not sys.stdin.readline():
            number = (number * 1_103_515_245 + 12_345) % 10**15
            stop = number + SCAN_ROWS * 10**15 // RECORDS
            started = time.perf_counter()
            sum(batch.num_rows for batch in client.scan(table, b"%016d" % number, b"%016d" % stop))
            durations.append((time.perf_counter() - started) * 1e3)
    sys.stdout.write(json.dumps(durations))


def run() -> list[Figure]:
    """Measure; takes about half a minute."""
    rng = np.random.default_rng(7)
    rows, value = _rows(rng), rng.bytes(VALUE_BYTES)
    figures: list[Figure] = []
    kinds: list[tuple[str, Callable[[Client, str, list[bytes], bytes], float], float, int]] = [
        ("from Mutation objects", _write_mutations, TARGET_MUTATIONS_PER_S, RECORDS)
    ]
    for of in BATCHES:
        name = f"from Arrow in batches of {of:,}"
        kinds.append((name, functools.partial(_write_arrow, of=of), TARGET_ARROW_PER_S, of))
    with tempfile.TemporaryDirectory() as directory, Cluster(Path(directory) / "own", "own", tservers=1) as cluster:
        for number, (name, write, target, size) in enumerate(kinds):
            table = f"t{number}"
            cluster.client.tables.create(table)
            seconds = write(cluster.client, table, rows, value)
            plain = _append_plain(Path(directory) / "plain", rows, value)
            figures.append(_rate(f"one client, durable, {name}", seconds, plain, target, size))
        with _scans_beside(str(cluster.directory), "t0") as finish:
            _write_arrow(cluster.client, "t1", rows, value)
            beside = finish()
        with _scans_beside(str(cluster.directory), "t0") as finish:
            SystemClock().wait(threading.Event(), ALONE_MS)
            alone = finish()
        figures.append(_latency(beside, alone))
    return figures


def _rate(name: str, seconds: float, plain: float, target: float, size: int) -> Figure:
    return Figure(
        name=name,
        value=RECORDS / seconds,
        unit="records/s",
        reference=RECORDS / plain,
        reference_name="plain file, synced",
        reference_unit="records/s",
        ratio=plain / seconds,
        target=target,
        size=size,
    )


def _latency(beside: list[float], alone: list[float]) -> Figure:
    value, reference = (statistics.quantiles(times, n=100, method="inclusive")[98] for times in (beside, alone))
    return Figure(
        name="small scan beside that load, p99",
        value=value,
        unit="ms",
        reference=reference,
        reference_name="the same without load",
        reference_unit="ms",
        ratio=value / reference,
        target=TARGET_SCAN_P99_MS,
        lower_is_better=True,
        size=len(beside),
    )


if __name__ == "__main__":
    _probe(*sys.argv[1:])
