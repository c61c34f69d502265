"""The log beside a plain file: append, group commit and decode, each as a ratio to the same bytes moved plainly.

Blocks of 4,096 records with 16-byte rows and 100-byte values, as in the reference measurements. The plain file gets
the same payloads by the same ``writev`` calls, or gives them back by the same mapping, in the same run and directory.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from bookkeeper.clock import SystemClock
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.storage.wal import (
    Block,
    BlockHeader,
    DraftBlock,
    Durability,
    FileHeader,
    GroupCommitter,
    PlacedBlock,
    Seal,
    WalWriter,
    delete_log,
    encode_batch,
    read_blocks,
    uri_of,
)
from bookkeeper.storage.wal.files import FileOps, map_file, write_all
from tests.benchmarks.figure import Figure

RECORDS = 4096
BLOCKS = 256
ROUNDS = 5


def _fixed(width: int, seed: int) -> pa.Array:
    raw = np.random.default_rng(seed).integers(0, 256, RECORDS * width, dtype=np.uint8).tobytes()
    offsets = np.arange(0, (RECORDS + 1) * width, width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), RECORDS, [None, pa.py_buffer(offsets), pa.py_buffer(raw)])


def _batch(seed: int) -> pa.RecordBatch:
    same = [pa.array([part] * RECORDS, pa.binary()) for part in (b"f", b"q", b"")]
    stamp = pa.array(np.full(RECORDS, 1_700_000_000_000))
    deletes = pa.array(np.zeros(RECORDS, dtype=bool))
    return pa.RecordBatch.from_arrays(
        [_fixed(16, seed), *same, stamp, deletes, _fixed(100, seed + 1)], schema=MUTATION_SCHEMA
    )


def _header(first_offset: int) -> BlockHeader:
    return BlockHeader(
        first_offset=first_offset,
        record_count=RECORDS,
        table_id="t1",
        first_seq=first_offset,
        write_time_ms=1_700_000_000_000,
        min_row=bytes(16),
        max_row=b"\xff" * 16,
    )


class _Write:
    """A submission of one ready batch."""

    durability = Durability.FLUSH

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.approx_bytes = batch.nbytes

    def prepare(self, next_offset: int) -> list[DraftBlock]:
        return [DraftBlock(_header(next_offset), self._batch)]

    def applied(self, blocks: list[PlacedBlock]) -> object:
        return blocks[-1].last_offset

    def failed(self, error: Exception) -> None:
        raise error


class _NoBooks:
    def before_append(self, wal_uri: str, blocks: object) -> None:
        """Nothing to keep."""

    def synced(self, wal_uri: str, offset: int, position: int) -> None:
        """Nothing to keep."""

    def rolled(self, wal_uri: str, seal: Seal) -> None:
        """Nothing to keep."""


def _seconds(action: Callable[[], None]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _plain_write(path: Path, payloads: list[pa.Buffer], sync: bool) -> None:
    ops = FileOps()
    fd = ops.open(path, os.O_WRONLY | os.O_CREAT)
    for payload in payloads:
        write_all(fd, [payload], ops)
    if sync:
        ops.fdatasync(fd)
    ops.close(fd)


def _encode_and_append(path: Path, batches: list[pa.RecordBatch]) -> None:
    writer = WalWriter.create(path, FileHeader(instance_id="i", session_id="s"))
    for _ in range(BLOCKS // len(batches)):
        for batch in batches:
            writer.append([Block(_header(writer.offset + 1), encode_batch(batch))])
    writer.abandon()


def _commit(path: Path, batches: list[pa.RecordBatch]) -> None:
    committer = GroupCommitter(
        lambda: WalWriter.create(path, FileHeader(instance_id="i", session_id="s")),
        _NoBooks(),
        lambda: None,
        SystemClock(),
    )
    pending = [committer.submit(_Write(batches[0]))]
    for index in range(1, BLOCKS):
        if len(pending) >= 64:
            pending.pop(0).result()
        pending.append(committer.submit(_Write(batches[index % len(batches)])))
    pending[-1].result()
    committer.close()


def _plain_read(path: Path, size: int) -> None:
    source = map_file(path)
    for position in range(0, source.size, size):
        source.read(position, min(size, source.size - position)).to_pybytes()


def _decode(path: Path) -> None:
    records = sum(block.batch().num_rows for block in read_blocks(uri_of(path), 1, BLOCKS * RECORDS))
    if records != BLOCKS * RECORDS:
        raise ValueError(f"read {records} records")


def _skip(path: Path) -> None:
    last = BLOCKS * RECORDS
    list(read_blocks(uri_of(path), last, last))


def _figure(name: str, seconds: list[float], plain: list[float], reference: str, **more: float) -> Figure:
    value = BLOCKS * RECORDS / statistics.median(seconds)
    base = BLOCKS * RECORDS / statistics.median(plain)
    figure = Figure(
        name=name,
        value=value,
        unit="records/s",
        reference=base,
        reference_name=reference,
        reference_unit="records/s",
        ratio=value / base,
        size=BLOCKS * RECORDS,
    )
    if "ratio_target" in more:
        figure["target"] = more["ratio_target"]
        figure["target_of"] = "ratio"
    if "value_target" in more:
        figure["target"] = more["value_target"]
    return figure


def _round(directory: Path, batches: list[pa.RecordBatch], payloads: list[pa.Buffer]) -> dict[str, float]:
    """Each file is gone before the next is written, so that all get memory that the kernel has at hand."""
    path = directory / "1.wal"
    steps: list[tuple[str, Callable[[], None]]] = [
        ("plain write", lambda: _plain_write(path, payloads, sync=False)),
        ("plain read", lambda: _plain_read(path, payloads[0].size)),
        ("", path.unlink),
        ("append", lambda: _encode_and_append(path, batches)),
        ("decode", lambda: _decode(path)),
        ("skip", lambda: _skip(path)),
        ("", path.unlink),
        ("plain write and sync", lambda: _plain_write(path, payloads, sync=True)),
        ("", path.unlink),
        ("commit", lambda: _commit(path, batches)),
        ("", lambda: delete_log(uri_of(path))),
    ]
    return {name: _seconds(step) for name, step in steps}


def run() -> list[Figure]:
    """Append (encode, frame, write), group commit at ``flush``, decode with proof, and finding the last block."""
    batches = [_batch(seed) for seed in range(0, 16, 2)]
    payloads = [encode_batch(batch) for batch in batches] * (BLOCKS // len(batches))
    with tempfile.TemporaryDirectory() as name:
        rounds = [_round(Path(name), batches, payloads) for _ in range(ROUNDS + 1)][1:]
    times = {key: [measured[key] for measured in rounds] for key in rounds[0]}
    synced = "plain write and sync"
    return [
        _figure("wal append", times["append"], times["plain write"], "plain write", ratio_target=0.5),
        _figure("wal group commit, flush", times["commit"], times[synced], synced, ratio_target=0.5),
        _figure("wal decode", times["decode"], times["plain read"], "plain read", value_target=10e6),
        _figure("wal skip by headers", times["skip"], times["plain read"], "plain read"),
    ]
