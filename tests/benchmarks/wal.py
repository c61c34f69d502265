"""The log beside a plain file: append, group commit and decode, each as a ratio to the same bytes moved plainly.

Blocks of 4,096 records with 16-byte rows and 100-byte values, as in the reference measurements. The plain file gets
the same payloads by the same ``writev`` calls, or gives them back by the same mapping, in the same run and directory.
The best of some rounds counts: the load of other processes is not the log's.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pyarrow as pa

from bookkeeper.clock import SystemClock
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.storage.volume.file_ops import FileOps, write_all
from bookkeeper.storage.volume.sources import map_file
from bookkeeper.storage.wal.blocks.block import Block, DraftBlock, PlacedBlock, encode_batch
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader, FileHeader
from bookkeeper.storage.wal.reading.block_reader import read_blocks
from bookkeeper.storage.wal.reading.wal_recovery import delete_log
from bookkeeper.storage.wal.writing.seal import Seal
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from bookkeeper.tserver.commit.commit_limits import CommitLimits
from bookkeeper.tserver.commit.group_committer import GroupCommitter
from bookkeeper.tserver.commit.submission import AppendPoint, Durability
from tests.benchmarks.figure import Figure
from tests.support.volumes import MACHINE, name_at

RECORDS = 4096
BLOCKS = 256
GROUP = 14
"""Blocks in a full group of the committer."""
SYNCS = 200
SYNC_INTERVAL_MS = 100
ROUNDS = 7
SYNCED_SIZES = (64, 512, RECORDS)
"""Records of a block."""
SYNCED_BLOCKS = 128
SYNCED_ROUNDS = 5
APPEND_RATIO = 0.5


def _fixed(width: int, seed: int) -> pa.Array:
    raw = np.random.default_rng(seed).integers(0, 256, RECORDS * width, dtype=np.uint8).tobytes()
    offsets = np.arange(0, (RECORDS + 1) * width, width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), RECORDS, [None, pa.py_buffer(offsets), pa.py_buffer(raw)])


def _batch(seed: int) -> pa.RecordBatch:
    same = [pa.array([part] * RECORDS, pa.binary()) for part in (b"f", b"q", b"")]
    block_target = pa.array(np.full(RECORDS, 1_700_000_000_000))
    deletes = pa.array(np.zeros(RECORDS, dtype=bool))
    return pa.RecordBatch.from_arrays(
        [_fixed(16, seed), *same, block_target, deletes, _fixed(100, seed + 1)], schema=MUTATION_SCHEMA
    )


def _header(first_offset: int, records: int = RECORDS) -> BlockHeader:
    return BlockHeader(
        first_offset=first_offset,
        record_count=records,
        table_id="t1",
        first_seq=first_offset,
        write_time_ms=1_700_000_000_000,
        min_row=bytes(16),
        max_row=b"\xff" * 16,
    )


class _Write:
    """A submission of one ready batch."""

    def __init__(self, batch: pa.RecordBatch, durability: Durability) -> None:
        self._batch = batch
        self.durability = durability
        self.approx_bytes = batch.get_total_buffer_size()

    def prepare(self, point: AppendPoint) -> list[DraftBlock]:
        return [DraftBlock(_header(point.next_offset), self._batch)]

    def applied(self, blocks: list[PlacedBlock]) -> object:
        return blocks[-1].last_offset

    def failed(self, error: Exception) -> None:
        raise error


class _NoBooks:
    def before_append(self, wal_name: str, blocks: object) -> None:
        """Nothing to keep."""

    def synced(self, wal_name: str, offset: int, position: int) -> None:
        """Nothing to keep."""

    def answered(self) -> None:
        """See the protocol."""

    def may_begin_log(self) -> bool:
        """Nothing to keep."""
        return True

    def rolled(self, wal_name: str, seal: Seal) -> None:
        """Nothing to keep."""


def _seconds(action: Callable[[], None]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _plain_write(path: Path, payloads: Sequence[pa.Buffer], at_once: int, sync_interval_s: float | None) -> None:
    """``sync_interval_s``: how often a sync is due, and once at the end; None = never."""
    ops = FileOps()
    fd = ops.open(path, os.O_WRONLY | os.O_CREAT)
    due = time.perf_counter() + (sync_interval_s or 0)
    for first in range(0, len(payloads), at_once):
        write_all(fd, payloads[first : first + at_once], ops)
        if sync_interval_s is not None and time.perf_counter() >= due:
            ops.fdatasync(fd)
            due = time.perf_counter() + sync_interval_s
    if sync_interval_s is not None:
        ops.fdatasync(fd)
    ops.close(fd)


def _encode_and_append(path: Path, batches: list[pa.RecordBatch]) -> None:
    writer = WalWriter.create(MACHINE, name_at(path), FileHeader(instance_id="i", session_id="s"))
    for _ in range(BLOCKS // len(batches)):
        for batch in batches:
            writer.append([Block(_header(writer.offset + 1), encode_batch(batch))])
    writer.abandon()


def _append_synced(path: Path, batches: Sequence[pa.RecordBatch], records: int) -> None:
    writer = WalWriter.create(MACHINE, name_at(path), FileHeader(instance_id="i", session_id="s"))
    for number in range(SYNCED_BLOCKS):
        part = batches[number % len(batches)].slice(0, records)
        writer.append([Block(_header(writer.offset + 1, records), encode_batch(part))])
        writer.sync()
    writer.abandon()


def _synced_round(directory: Path, batches: list[pa.RecordBatch], records: int) -> tuple[float, float]:
    """Seconds of the same blocks to a log and, message by message, to a plain file; each block is synced."""
    path = directory / "1.wal"
    payloads = [encode_batch(batch.slice(0, records)) for batch in batches] * (SYNCED_BLOCKS // len(batches))
    own = _seconds(lambda: _append_synced(path, batches, records))
    path.unlink()
    plain = _seconds(lambda: _plain_write(path, payloads, 1, 0.0))
    path.unlink()
    return own, plain


def _synced_figure(directory: Path, batches: list[pa.RecordBatch], records: int) -> Figure:
    rounds = [_synced_round(directory, batches, records) for _ in range(SYNCED_ROUNDS)]
    own, plain = (min(times) for times in zip(*rounds, strict=True))
    total = SYNCED_BLOCKS * records
    figure = Figure(
        name=f"wal append, a sync for each block of {records:,} records",
        value=total / own,
        unit="records/s",
        reference=total / plain,
        reference_name="plain write, synced in the same way",
        reference_unit="records/s",
        ratio=plain / own,
        size=records,
    )
    if records == RECORDS:
        figure["target"], figure["target_of"] = APPEND_RATIO, "ratio"
    return figure


def _commit(path: Path, batches: Sequence[pa.RecordBatch], durability: Durability, at_once: int, count: int) -> None:
    """``count`` submissions, at most ``at_once`` of them unanswered; the log is closed and sealed."""
    committer = GroupCommitter(
        lambda: WalWriter.create(MACHINE, name_at(path), FileHeader(instance_id="i", session_id="s")),
        _NoBooks(),
        lambda: None,
        SystemClock(),
        CommitLimits(wal_sync_interval_ms=SYNC_INTERVAL_MS),
    )
    pending: deque[Future[object]] = deque()
    for index in range(count):
        if len(pending) >= at_once:
            pending.popleft().result()
        pending.append(committer.submit(_Write(batches[index % len(batches)], durability)))
    pending[-1].result()
    committer.close()


def _plain_read(path: Path, size: int) -> None:
    source = map_file(path)
    for position in range(0, source.size, size):
        source.read(position, min(size, source.size - position)).to_pybytes()


def _decode(path: Path) -> None:
    records = sum(block.batch().num_rows for block in read_blocks(MACHINE, name_at(path), 1, BLOCKS * RECORDS))
    if records != BLOCKS * RECORDS:
        raise ValueError(f"read {records} records")


def _skip(path: Path) -> None:
    last = BLOCKS * RECORDS
    list(read_blocks(MACHINE, name_at(path), last, last))


def _figure(name: str, rates: dict[str, float], key: str, reference: str, **targets: float) -> Figure:
    figure = Figure(
        name=name,
        value=rates[key],
        unit="records/s",
        reference=rates[reference],
        reference_name=reference,
        reference_unit="records/s",
        ratio=rates[key] / rates[reference],
        size=SYNCS if "syncs" in key else BLOCKS * RECORDS,
    )
    for kind, target in targets.items():
        figure["target"] = target
        figure["target_of"] = kind.removesuffix("_target")
    return figure


def _round(directory: Path, batches: list[pa.RecordBatch], payloads: list[pa.Buffer]) -> dict[str, float]:
    """Each file is gone before the next is written, so that all get memory that the kernel has at hand."""
    path = directory / "1.wal"
    single = [batches[0].slice(0, 1)]
    message = [encode_batch(single[0])]
    steps: list[tuple[str, Callable[[], None]]] = [
        ("plain write", lambda: _plain_write(path, payloads, 1, None)),
        ("plain read", lambda: _plain_read(path, payloads[0].size)),
        ("", path.unlink),
        ("append", lambda: _encode_and_append(path, batches)),
        ("decode", lambda: _decode(path)),
        ("skip", lambda: _skip(path)),
        ("", path.unlink),
        ("plain groups", lambda: _plain_write(path, payloads, GROUP, SYNC_INTERVAL_MS / 1000)),
        ("", path.unlink),
        ("commit", lambda: _commit(path, batches, Durability.FLUSH, 4 * GROUP, BLOCKS)),
        ("", lambda: delete_log(MACHINE, name_at(path))),
        ("plain syncs", lambda: _plain_write(path, message * SYNCS, 1, 0.0)),
        ("", path.unlink),
        ("syncs", lambda: _commit(path, single, Durability.SYNC, 1, SYNCS)),
        ("", lambda: delete_log(MACHINE, name_at(path))),
    ]
    return {name: _seconds(step) for name, step in steps}


def run() -> list[Figure]:
    """Append (encode, frame, write), group commit, decode with proof, and finding the last block."""
    batches = [_batch(seed) for seed in range(0, 16, 2)]
    payloads = [encode_batch(batch) for batch in batches] * (BLOCKS // len(batches))
    with tempfile.TemporaryDirectory() as name:
        rounds = [_round(Path(name), batches, payloads) for _ in range(ROUNDS + 1)][1:]
        synced = [_synced_figure(Path(name), batches, records) for records in SYNCED_SIZES]
    rates = {
        key: (SYNCS if "syncs" in key else BLOCKS * RECORDS) / min(times[key] for times in rounds) for key in rounds[0]
    }
    return [
        *synced,
        _figure("wal append, nothing synced", rates, "append", "plain write"),
        _figure("wal group commit, flush", rates, "commit", "plain groups", ratio_target=APPEND_RATIO),
        _figure("wal commit, sync, one record at a time", rates, "syncs", "plain syncs"),
        _figure("wal decode", rates, "decode", "plain read", value_target=10e6),
        _figure("wal skip by headers", rates, "skip", "plain read"),
    ]
