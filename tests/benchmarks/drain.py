"""Draining a backlog through Spark to a peer process, beside the same bytes copied over loopback TCP and synced.

A quarter of a million, one and ten million records of 16-byte rows and 100-byte values in blocks of 4,096; the memory
of the Spark processes while they ship them. The peer checks each block, writes it and
syncs once a message, before it acknowledges. The reference sends the same bytes in chunks of a message's size to the
same process, which writes and syncs each before one byte comes back. Both take turns; the best round of each counts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from bookkeeper.config.file import new_settings, write_settings
from bookkeeper.config.sections import Settings
from bookkeeper.model import MUTATION_SCHEMA, BlockTarget
from bookkeeper.replay.ranges import Range
from bookkeeper.storage.volume.names import log_directory
from bookkeeper.storage.volume.opening import open_volume
from bookkeeper.storage.wal.blocks.block import Block, encode_batch
from bookkeeper.storage.wal.blocks.block_messages import block_target_to_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader, FileHeader, Group
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from tests.benchmarks.figure import Figure
from tests.benchmarks.memory import MemoryWatch
from tests.benchmarks.plain_copy import Peer, copy_plain, drain_peer
from tests.support.ranges import a_range
from tests.support.replay_process import ReplayProcess
from tests.support.volumes import path_of
from tests.support.wal_files import TO_EAST, WEST

BLOCK_RECORDS = 4096
BLOCKS = 244
MANY_BLOCKS = 2_442
ROUNDS = 3
TARGETS_PER_S = {BLOCKS: 600_000.0, MANY_BLOCKS: 1_000_000.0}
RATIO_TARGET = 0.5
"""At least half the speed of a plain copy: a job's fixed cost is a tenth of a second, a copy's is none."""
FLAT = 1.25
"""Memory is flat: ten times the records take at most so many times as much."""


def _fixed(width: int, seed: int) -> pa.Array:
    raw = np.random.default_rng(seed).integers(0, 256, BLOCK_RECORDS * width, dtype=np.uint8).tobytes()
    offsets = np.arange(0, (BLOCK_RECORDS + 1) * width, width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), BLOCK_RECORDS, [None, pa.py_buffer(offsets), pa.py_buffer(raw)])


def _batch(seed: int) -> pa.RecordBatch:
    families = pa.array([b"f", b"g"] * (BLOCK_RECORDS // 2), pa.binary())
    same = [pa.array([part] * BLOCK_RECORDS, pa.binary()) for part in (b"q", b"")]
    timestamps = pa.array(np.full(BLOCK_RECORDS, 1_700_000_000_000))
    deletes = pa.array(np.zeros(BLOCK_RECORDS, dtype=bool))
    return pa.RecordBatch.from_arrays(
        [_fixed(16, seed), families, *same, timestamps, deletes, _fixed(100, seed + 1)], schema=MUTATION_SCHEMA
    )


def _write_log(settings: Settings, name: str, blocks: int, block_target: BlockTarget) -> str:
    payloads = [encode_batch(_batch(seed)) for seed in range(16)]
    header = BlockHeader(
        record_count=BLOCK_RECORDS,
        table_id="t1",
        groups=[Group(name="one", families=[b"f"]), Group(name="two", families=[b"g"])],
        block_targets=[block_target_to_pb(block_target)],
        min_row=bytes(16),
        max_row=b"\xff" * 16,
    )
    made = FileHeader(instance_id=WEST, session_id="s", created_time_ms=1)
    writer = WalWriter.create(open_volume(settings), f"{log_directory('s')}/{name}.wal", made)
    for number in range(blocks):
        placed = BlockHeader()
        placed.CopyFrom(header)
        placed.first_offset = number * BLOCK_RECORDS + 1
        writer.append([Block(placed, payloads[number % len(payloads)])])
    writer.sync()
    writer.seal()
    return writer.name


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _drain(process: ReplayProcess, ranges: Sequence[Range]) -> int:
    """Ship to the end, in as many runs as the time budget makes of it; returns the records shipped."""
    left, shipped = {r.range_id: r for r in ranges}, 0
    while left:
        for range_id, result in process.run(list(left.values())).items():
            assert result.error is None, result
            shipped += result.records
            asked = left.pop(range_id)
            if result.acked_offset < asked.last:
                acked, position = result.acked_offset, result.acked_position
                left[range_id] = replace(asked, first=acked + 1, finished=acked, position_hint=position)
    return shipped


def _ranges(files: Sequence[str], blocks: int, quorum: str) -> list[Range]:
    """The files as a run of their own: the replay process sends nothing again that a stream has at the peer."""
    run_id = uuid4().hex
    whole = (a_range(file, 1, blocks * BLOCK_RECORDS, quorum=quorum, range_id=n) for n, file in enumerate(files))
    return [replace(r, run_id=run_id) for r in whole]


@dataclass(frozen=True, slots=True)
class _Bench:
    process: ReplayProcess
    settings: Settings
    peer: Peer
    directory: Path

    def drained(self, name: str, files: Sequence[str], blocks: int, *, rounds: int = ROUNDS, part: int = 1) -> Figure:
        """All files, of so many blocks each, of whose records one in ``part`` is for the peer."""
        records = blocks * len(files) * BLOCK_RECORDS
        plain = self.directory / "plain"
        plain.write_bytes(b"".join(path_of(file, self.settings.directory).read_bytes() for file in files))

        def copy() -> None:
            copy_plain(plain, self.peer.plain_port, self.settings.replay.message_bytes)

        def drain() -> None:
            assert _drain(self.process, _ranges(files, blocks, self.peer.quorum)) == records // part

        pairs = [(_seconds(copy), _seconds(drain)) for _ in range(rounds)]
        plain.unlink()
        plain_s, drain_s = (min(times) for times in zip(*pairs, strict=True))
        figure = Figure(
            name=name,
            value=records / drain_s,
            unit="records/s",
            reference=records / plain_s,
            reference_name="TCP copy + sync",
            reference_unit="records/s",
            ratio=plain_s / drain_s,
            size=records,
        )
        if len(files) == part == 1 and blocks in TARGETS_PER_S:
            figure["target"] = TARGETS_PER_S[blocks]
        elif blocks * len(files) >= BLOCKS:
            figure["target"], figure["target_of"] = RATIO_TARGET, "ratio"
        return figure


def _measure(bench: _Bench) -> list[Figure]:
    block_target = BlockTarget(TO_EAST, None)
    figures, memory = [], {}
    for name, blocks, rounds in (("0.25 M", BLOCKS // 4, ROUNDS), ("1 M", BLOCKS, ROUNDS), ("10 M", MANY_BLOCKS, 1)):
        log = _write_log(bench.settings, name.replace(" ", ""), blocks, block_target)
        with MemoryWatch(bench.process.family) as memory[blocks]:
            figures.append(bench.drained(f"drain one log of {name} records", [log], blocks, rounds=rounds))
        path_of(log, bench.settings.directory).unlink()
    most, reference = memory[MANY_BLOCKS].most, memory[BLOCKS].most
    figures.append(
        Figure(
            name="memory of Spark while it drains ten times the records",
            value=most,
            unit="MB",
            reference=reference,
            reference_name="while it drains 1 M",
            reference_unit="MB",
            ratio=most / reference,
            target=FLAT,
            target_of="ratio",
            lower_is_better=True,
        )
    )
    halves = [_write_log(bench.settings, f"half{n}", BLOCKS // 2, block_target) for n in range(2)]
    figures.append(bench.drained("drain two logs of 0.5 M records side by side", halves, BLOCKS // 2))
    mixed = _write_log(bench.settings, "mixed", BLOCKS, BlockTarget(TO_EAST, ("one",)))
    return [*figures, bench.drained("drain one log, half of each block filtered", [mixed], BLOCKS, part=2)]


def run() -> list[Figure]:
    """Start a replay process and a peer process, measure, and stop both."""
    with tempfile.TemporaryDirectory() as raw:
        directory = Path(raw)
        settings = new_settings(directory / "west", "west", instance_id=WEST)
        write_settings(settings)
        with drain_peer(directory) as peer, ReplayProcess(settings, directory / "replay.log") as process:
            figures = _measure(_Bench(process, settings, peer, directory))
    return figures
