"""Draining a backlog to a whole ``bookkeeper`` cluster: Spark, books, dedupe, both write-ahead logs synced.

The figures are the rate at which one and ten million records of 16-byte rows and 100-byte values reach a peer that was
away while they were written, beside as many bytes copied over loopback TCP and synced in the same run; and the memory
of all processes of both clusters meanwhile. The clock runs from the first record that can be read at the peer to the
last, so it leaves out the pause between two tries and the peer's own start. Every record is counted at the peer
afterwards. The primary's own flushes and merges are over before the drain starts.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import psutil
import pyarrow as pa

from tests.benchmarks.figure import Figure
from tests.benchmarks.memory import MemoryWatch
from tests.benchmarks.pair import FAMILY, QUALIFIER, TABLE, Pair, replicated_pair
from tests.benchmarks.plain_copy import copy_plain, drain_peer

SIZES = (1_000_000, 3_000_000)
LARGE_SIZES = (1_000_000, 10_000_000)
TARGETS_PER_S = {1_000_000: 600_000.0, 10_000_000: 1_000_000.0}
BATCH = 20_000
ROW_BYTES = 16
VALUE_BYTES = 100
POLL_MS = 20.0
POLL_MS_A_RECORD = 1e-5
"""Each poll of the peer is a scan there. About a hundred of them do not slow the drain."""
FLAT = 1.25
"""Memory is flat: ten times the records take at most so many times as much."""


def run(large: bool = False) -> list[Figure]:
    """Measure; half a minute, or two minutes. ``BENCH_RECORDS`` sets another number of records, and one size only."""
    sizes_of_run = LARGE_SIZES if large else SIZES
    sizes = [int(os.environ["BENCH_RECORDS"])] if "BENCH_RECORDS" in os.environ else sizes_of_run
    with TemporaryDirectory() as raw, drain_peer(Path(raw)) as peer:
        rounds = [_drained(records, Path(raw) / "plain", peer.plain_port) for records in sizes]
    figures = [figure for figure, _ in rounds]
    if len(rounds) > 1:
        times = sizes[-1] // sizes[0]
        figures.append(_memory_figure(times, rounds[-1][1], rounds[0][1]))
    return figures


def _drained(records: int, plain: Path, port: int) -> tuple[Figure, float]:
    with replicated_pair() as pair:
        pair.east_side.crash()
        written_bytes = _write_backlog(pair, records)
        pair.west.tables.compact(TABLE)
        plain.write_bytes(np.random.default_rng(1).bytes(written_bytes))
        began = time.perf_counter()
        copy_plain(plain, port, pair.west_side.settings.replay.message_bytes)
        plain_s = time.perf_counter() - began
        plain.unlink()
        pair.east_side.start()
        pair.wait_for_row(_row(0), POLL_MS)
        began = time.perf_counter()
        with MemoryWatch(lambda: _family(os.getpid())) as memory:
            pair.wait_for_row(_row(records - 1), max(POLL_MS, records * POLL_MS_A_RECORD))
        drain_s = time.perf_counter() - began
        found = sum(batch.num_rows for batch in pair.east.scan(TABLE, _row(0), None))
        if found != records:
            raise AssertionError(f"{found:,} of {records:,} records arrived")
    figure = Figure(
        name=f"drain {records / 1e6:g} M records to a whole cluster",
        value=records / drain_s,
        unit="records/s",
        reference=records / plain_s,
        reference_name="TCP copy + sync",
        reference_unit="records/s",
        ratio=plain_s / drain_s,
        size=records,
    )
    if records in TARGETS_PER_S:
        figure["target"] = TARGETS_PER_S[records]
    return figure, memory.most


def _row(number: int) -> bytes:
    """After the rows that warm up."""
    return b"x%015d" % number


def _write_backlog(pair: Pair, records: int) -> int:
    """Acknowledged at ``sync``; returns the bytes of rows and values."""
    random = np.random.default_rng(7)
    same = {"family": pa.array([FAMILY] * BATCH, pa.binary()), "qualifier": pa.array([QUALIFIER] * BATCH, pa.binary())}
    values = pa.array([random.bytes(VALUE_BYTES) for _ in range(BATCH)], pa.binary())
    with pair.west.writer(TABLE) as writer:
        for first in range(0, records, BATCH):
            rows = pa.array([_row(number) for number in range(first, first + BATCH)], pa.binary())
            writer.add_batch(pa.RecordBatch.from_pydict({"row": rows, **same, "value": values}))
    return records * (ROW_BYTES + VALUE_BYTES)


def _family(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def _memory_figure(times: int, most: float, reference: float) -> Figure:
    return Figure(
        name=f"memory of both clusters while {times} times the records drain",
        value=most,
        unit="MB",
        reference=reference,
        reference_name=f"while {SIZES[0] / 1e6:g} M do",
        reference_unit="MB",
        ratio=most / reference,
        target=FLAT,
        target_of="ratio",
        lower_is_better=True,
    )
