"""Writes through one tserver process: checked, logged, synced, applied, and flushed meanwhile.

Each figure stands beside the same bytes appended to a plain file and synced batch by batch, in the same run, so that a
busy machine slows both. Two senders, each waiting for its acknowledgement at sync.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

from bookkeeper.model import MUTATION_SCHEMA, Extent
from bookkeeper.rpc.contract.messages import WriteBatch
from bookkeeper.storage.wal.blocks.block import encode_batch
from tests.benchmarks.figure import Figure
from tests.support.tservers import Ground, ProcessNode, ground

SENDERS = 2
BATCHES = 100
"""Of each sender."""
RECORDS = 5_000
"""Of a batch: 16-byte rows, 100-byte values."""
TARGET_PER_S = 700_000.0


def _payload(rng: np.random.Generator) -> bytes:
    rows = [b"%016d" % number for number in rng.integers(0, 10**15, RECORDS)]
    value = rng.bytes(100)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(rows, pa.binary()),
            pa.array([b"fam"] * RECORDS, pa.binary()),
            pa.array([b"qual"] * RECORDS, pa.binary()),
            pa.array([b""] * RECORDS, pa.binary()),
            pa.nulls(RECORDS, pa.int64()),
            pa.array([False] * RECORDS, pa.bool_()),
            pa.array([value] * RECORDS, pa.binary()),
        ],
        schema=MUTATION_SCHEMA,
    )
    return bytes(encode_batch(batch))


def _send_all(west: Ground, node: ProcessNode, extent: Extent, payloads: list[list[bytes]]) -> float:
    def send(mine: list[bytes]) -> None:
        tserver = west.tserver(node)
        for payload in mine:
            tserver.write([WriteBatch(extent, payload)], "sync", "", 0)

    threads = [threading.Thread(target=send, args=(mine,)) for mine in payloads]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started


def _append_all(path: Path, payloads: list[list[bytes]]) -> float:
    started = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for mine in payloads:
            for payload in mine:
                file.write(payload)
                os.fdatasync(file.fileno())
    return time.perf_counter() - started


def run() -> list[Figure]:
    """Measure a table without and with a target."""
    rng = np.random.default_rng(7)
    payloads = [[_payload(rng) for _ in range(BATCHES)] for _ in range(SENDERS)]
    total = SENDERS * BATCHES * RECORDS
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as directory, ground(Path(directory) / "west") as west:
        node = west.process()
        for table_id, replicated in (("1", False), ("2", True)):
            (extent,) = west.create_table(table_id)
            if replicated:
                west.enable(table_id)
            west.assign(node, extent)
            process = psutil.Process(node.process.pid)
            before = process.cpu_times()
            seconds = _send_all(west, node, extent, payloads)
            after = process.cpu_times()
            plain = _append_all(Path(directory) / "plain", payloads)
            cpu = after.user + after.system - before.user - before.system
            figures.append(
                {
                    "name": "ingest at sync" + (", replicated" if replicated else ""),
                    "value": total / seconds,
                    "unit": "records/s",
                    "reference": total / plain,
                    "reference_name": "plain file, synced",
                    "reference_unit": "records/s",
                    "ratio": plain / seconds,
                    "target": TARGET_PER_S,
                    "size": total,
                    "note": f"{total / cpu:,.0f} records a second of the tserver's CPU",
                }
            )
    return figures
