"""Replicas on hosts: how often a row crosses, what a transfer costs, when a segment counts, how fast a host takes over.

Crossings, transfers and failover are measured on processes; commits on the receiver itself, whose clock stops between
the sync of the last byte and the answer. A transfer stands beside a plain copy of the same bytes in the same run.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bookkeeper.client import Client, Mutation
from bookkeeper.clock import SystemClock
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import TransientError
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, TRANSIT_BYTES_MAX, HeldReplicaInfo, Hello
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.security.access import process_credentials
from bookkeeper.storage import tablet as tablet_package
from bookkeeper.storage.volume.file_ops import FileOps, sync_directory, write_all
from tests.benchmarks.figure import Figure
from tests.benchmarks.host_processes import HostProcesses, cpu_seconds, host_processes, peak_mb
from tests.benchmarks.plain_receiver import copy_plain
from tests.support.cluster import Cluster
from tests.support.replica_disks import WatchedOps
from tests.support.replica_world import ReplicaWorld, replica_world

FOLLOWERS = ("host2", "host3")
FLUSHES = 3
ROWS_OF_FLUSH = 2_000
SMALL_BYTES, LARGE_BYTES, LARGEST_BYTES = 64 << 20, 256 << 20, 1 << 30
COMMIT_ROWS = (1_000, 100_000, 1_000_000)
LARGE_COMMIT_ROWS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
COMMIT_ROUNDS = 7
ROW_GROUP = 1_000_000
FAILOVERS = 3
TABLE = "bench"


def run(large: bool = False) -> list[Figure]:
    """Measure; takes a minute and a half, or three to five."""
    rows, most = (LARGE_COMMIT_ROWS, LARGEST_BYTES) if large else (COMMIT_ROWS, LARGE_BYTES)
    return [*crossings(), *commits(rows), *transfers(large_bytes=most), *failovers()]


# ---- crossings


def crossings(rows_of_flush: int = ROWS_OF_FLUSH) -> list[Figure]:
    """Rows that followers received for each row written, without a compaction and with one."""
    with host_processes() as hosts:
        for name in FOLLOWERS:
            hosts.start(name)
            hosts.place(name)
        for number in range(FLUSHES):
            hosts.write(number * rows_of_flush, rows_of_flush)
            hosts.flush()
        written = FLUSHES * rows_of_flush
        hosts.wait_same(*FOLLOWERS)
        plain = _received_rows(hosts) / written
        before = set(hosts.files(hosts.leader))
        hosts.compact()
        merged = set(hosts.files(hosts.leader)) - before
        rewrites = sum(pq.read_metadata(hosts.path(hosts.leader, file)).num_rows for file in merged) / written
        hosts.wait_same(*FOLLOWERS)
        compacted = _received_rows(hosts) / written
        logged = sum(block.header.record_count for log in _logs(hosts) for block in hosts.ground.blocks_of(log))
    return [
        exactly("rows received for each row written, 3 hosts, no compaction", plain, len(FOLLOWERS), "N - 1"),
        exactly(
            f"rows received for each row written, 3 hosts, {rewrites:g} rewrites",
            compacted,
            len(FOLLOWERS) * (1 + rewrites),
            "(N - 1)(1 + rewrites)",
        ),
        exactly("rows that were merged into logs, without faults", logged - written, 0, "none"),
    ]


def _received_rows(hosts: HostProcesses) -> int:
    """Rows of the files that followers have acknowledged completely."""
    return hosts.fact(hosts.leader, "segment_rows_sent")


def _logs(hosts: HostProcesses) -> list[str]:
    return [name for name in hosts.ground.volume.list_names("wal/") if name.endswith(".wal")]


def exactly(name: str, value: float, reference: float, reference_name: str) -> Figure:
    """A figure that is met by its reference only: by more it is missed, by less the measurement is wrong."""
    if value < reference:
        raise AssertionError(f"{name}: {value} is less than {reference}, so a count is wrong")
    ratio = value / reference if reference else 1.0 + value
    return Figure(
        name=name,
        value=value,
        unit="",
        reference=reference,
        reference_name=reference_name,
        reference_unit="",
        ratio=ratio,
        target=reference,
        lower_is_better=True,
    )


# ---- commits


class SyncedOps(WatchedOps):
    """Remembers when the last sync of a file was over."""

    def __init__(self) -> None:
        super().__init__()
        self._clock = SystemClock()
        self.file_syncs: list[int] = []

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        if self.calls[-1] == "sync":
            self.file_syncs.append(self._clock.boot_ns())


@dataclass(slots=True)
class DecodeCount:
    """Counts the functions of tablets' segments that Python calls while the block runs: each decode of rows is one."""

    calls: int = 0
    _room: str = field(default=str(Path(tablet_package.__file__).parent))

    def __enter__(self) -> DecodeCount:
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _seen(self, frame: FrameType, event: str, _: object) -> None:
        self.calls += event == "call" and frame.f_code.co_filename.startswith(self._room)


def commits(sizes: tuple[int, ...] = COMMIT_ROWS, rounds: int = COMMIT_ROUNDS) -> list[Figure]:
    """The time from the sync of a segment's last byte to its answer."""
    with tempfile.TemporaryDirectory(prefix="bookkeeper-bench-") as name:
        world = replica_world(Path(name), "host1")
        try:
            return _commits(world, Path(name), sizes, rounds)
        finally:
            world.close()


def _commits(world: ReplicaWorld, directory: Path, sizes: tuple[int, ...], rounds: int) -> list[Figure]:
    ops = SyncedOps()
    world.add(directory, "host2", ops=ops)
    world.put_row("host1", "host2", term=2)
    world.lead("host1", "host2", term=2)
    world.replicate("host1", "host2")
    contents = {size: parquet_of(size) for size in sizes}
    took: dict[int, list[float]] = {size: [] for size in sizes}
    plain: dict[int, list[float]] = {size: [] for size in sizes}
    for number in range(rounds):  # each size in turn: a manifest has more segments with each round
        for size, content in contents.items():
            world.flush("host1", f"{size}-{number}.parquet", content)
            took[size].append(_commit_ms(world, ops))
            plain[size].append(_plain_ms(directory, content))
    decoded = 0
    for size, content in contents.items():
        world.flush("host1", f"{size}-counted.parquet", content)
        with DecodeCount() as count:
            _commit_ms(world, ops)
        decoded += count.calls
    medians = {size: statistics.median(took[size]) for size in sizes}
    syncs = {size: statistics.median(plain[size]) for size in sizes}
    smallest = medians[sizes[0]]
    figures = [
        Figure(
            name=f"a segment of {size:,} rows counts after its last durable byte, median",
            value=medians[size],
            unit="ms",
            reference=syncs[size],
            reference_name="renames and syncs alone, after the same bytes",
            reference_unit="ms",
            ratio=medians[size] / syncs[size],
            target=10.0,
            lower_is_better=True,
            size=size,
        )
        for size in sizes
    ]
    figures.append(
        Figure(
            name=f"the same, {sizes[-1]:,} rows against {sizes[0]:,}",
            value=medians[sizes[-1]],
            unit="ms",
            reference=smallest,
            reference_name=f"{sizes[0]:,} rows",
            reference_unit="ms",
            ratio=medians[sizes[-1]] / smallest,
            target=1.5,
            target_of="ratio",
            lower_is_better=True,
        )
    )
    return [*figures, exactly("calls of the code that decodes rows, in all of these", decoded, 0, "none")]


def _commit_ms(world: ReplicaWorld, ops: SyncedOps) -> float:
    """Send the leader's newest segment; the last sync of its content is the first one of the last message."""
    offer = world.next_offer("host1", "host2")
    assert offer is not None
    receiver = world.host("host2").receiver
    *parts, last = world.transits(offer, receiver.offer(offer), TRANSIT_BYTES_MAX)
    for part in parts:
        receiver.transit(part)
    syncs, clock = len(ops.file_syncs), SystemClock()
    ack = receiver.transit(last)
    ended_ns = clock.boot_ns()
    assert ack.answer is not None
    assert ack.answer.state == "acked"
    world.answered("host1", offer, ack.answer)
    return (ended_ns - ops.file_syncs[syncs]) / 1e6


def _plain_ms(directory: Path, content: bytes) -> float:
    """The time of the disk, after the sync of the same content, for two files that get their names durably, of which
    one is written then.
    """
    clock, scratch, segment, ops = SystemClock(), directory / "scratch", directory / "segment", FileOps()
    segment.unlink(missing_ok=True)
    _write_synced(scratch, content, ops)
    began_ns = clock.boot_ns()
    ops.rename(scratch, segment)
    sync_directory(directory, ops)
    _write_synced(scratch, b"a manifest", ops)
    ops.rename(scratch, directory / "manifest")
    sync_directory(directory, ops)
    return (clock.boot_ns() - began_ns) / 1e6


def _write_synced(path: Path, content: bytes, ops: FileOps) -> None:
    fd = ops.open(path, os.O_WRONLY | os.O_CREAT)
    write_all(fd, [content], ops)
    ops.fsync(fd)
    ops.close(fd)


def parquet_of(rows: int) -> bytes:
    """A Parquet file of this many rows."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([("row", pa.int64()), ("value", pa.int64())])
    with pq.ParquetWriter(sink, schema, compression="zstd", use_dictionary=False) as writer:
        for first in range(0, rows, ROW_GROUP):
            numbers = pa.array(np.arange(first, min(rows, first + ROW_GROUP)))
            writer.write_table(pa.table([numbers, numbers], schema=schema))
    return bytes(sink.getvalue())


# ---- transfers


@dataclass(frozen=True, slots=True)
class Transferred:
    """A joiner got all files of the leader. CPU of both processes, and of plain copies of the same files."""

    size_bytes: int
    cpu_seconds: float
    plain_seconds: float
    peak_mb: float


def transferred(size_bytes: int) -> Transferred:
    """Let a second host get about this many bytes, which the leader has before."""
    with host_processes() as hosts, tempfile.TemporaryDirectory(prefix="bookkeeper-bench-") as scratch:
        hosts.write_bytes(size_bytes)
        hosts.start("host2")
        processes = [hosts.process(name) for name in (hosts.leader, "host2")]
        began = cpu_seconds(*processes)
        hosts.place("host2", "joining")
        hosts.wait_same("host2")
        used = cpu_seconds(*processes) - began
        files = hosts.files(hosts.leader)
        paths = [hosts.path(hosts.leader, file) for file in files]
        copies = [copy_plain(path, Path(scratch) / path.name) for path in paths]  # new files, as those of the receiver
        plain = sum(copy.cpu_seconds for copy in copies)
        return Transferred(sum(files.values()), used, plain, peak_mb(processes[1]))


def transfers(small_bytes: int = SMALL_BYTES, large_bytes: int = LARGE_BYTES) -> list[Figure]:
    """The cost of a transfer on both hosts, and whether the receiver's memory grows with it."""
    small, large = transferred(small_bytes), transferred(large_bytes)
    gigabytes = large.size_bytes / 1e9
    return [
        Figure(
            name="CPU of both hosts for a GB of segments",
            value=large.cpu_seconds / gigabytes,
            unit="s",
            reference=large.plain_seconds / gigabytes,
            reference_name="receive, write and sync alone",
            reference_unit="s",
            ratio=large.cpu_seconds / large.plain_seconds,
            target=1.5,
            target_of="ratio",
            lower_is_better=True,
            note=f"{large.size_bytes:,} bytes",
        ),
        Figure(
            name=f"most memory of the receiver, {large.size_bytes / 1e6:,.0f} MB",
            value=large.peak_mb,
            unit="MB",
            reference=small.peak_mb,
            reference_name=f"{small.size_bytes / 1e6:,.0f} MB",
            reference_unit="MB",
            ratio=large.peak_mb / small.peak_mb,
            target=1.1,
            target_of="ratio",
            lower_is_better=True,
        ),
    ]


# ---- failover


def failovers(rounds: int = FAILOVERS) -> list[Figure]:
    """The leader is killed, or stopped; the time until the next write is acknowledged, and the bytes that hosts sent
    meanwhile.
    """
    with ExitStack() as cleanup:
        base = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="bookkeeper-bench-")))
        cluster = Cluster(base / "own", "own", tservers=1, overrides={"standalone.hosts": 3})
        cleanup.enter_context(cluster)
        client = cluster.client
        client.tables.create(TABLE, properties={"table.replicas": "3", "table.compaction.ratio": "1000"})
        took = [failover(cluster, client, number, signal.SIGKILL) for number in range(rounds)]
        stopped_ms, moved = failover(cluster, client, rounds, signal.SIGSTOP)
    slowest_s = max(milliseconds for milliseconds, _ in took) / 1e3
    lease_s = cluster.settings.coordination.session_lease_ms / 1e3
    return [
        outage(f"kill -9 of a leader to the next acknowledged write, slowest of {rounds}", slowest_s, lease_s, 3.0),
        outage("SIGSTOP of a leader to the next acknowledged write", stopped_ms / 1e3, lease_s, lease_s + 3.0),
        exactly("payload bytes that moved in these", moved + sum(sent for _, sent in took), 0, "none"),
    ]


def outage(name: str, felt_s: float, lease_s: float, target_s: float) -> Figure:
    """For how long writers felt a failure, beside the lease of a session."""
    return Figure(
        name=name,
        value=felt_s,
        unit="s",
        reference=lease_s,
        reference_name="lease of a session",
        reference_unit="s",
        ratio=felt_s / lease_s,
        target=target_s,
        lower_is_better=True,
    )


def failover(cluster: Cluster, client: Client, number: int, fault: signal.Signals) -> tuple[float, int]:
    """ms from a signal to the leader until a write is acknowledged, and the bytes that other hosts sent meanwhile."""
    hosts, clock = ClusterHosts(cluster), SystemClock()
    write_row(client, b"before%d" % number)
    client.tables.flush(TABLE)
    cluster.wait_until(hosts.are_in_sync, "three equal replicas")
    leader = hosts.leader()
    others = [name for name in hosts.tservers() if name != leader]
    sent = hosts.sent_bytes(others)
    role = "tserver1" if leader == cluster.settings.host.name else f"{leader}.tserver1"
    hurt = cluster.pid(role)
    began_ns = clock.boot_ns()
    os.kill(hurt, fault)
    write_row(client, b"after%d" % number)
    took_ms = (clock.boot_ns() - began_ns) / 1e6
    moved = hosts.sent_bytes(others) - sent
    if fault is signal.SIGSTOP:
        with suppress(ProcessLookupError):  # the supervisor has ended it
            os.kill(hurt, signal.SIGCONT)
    cluster.wait_restarted(role, hurt)
    cluster.wait_until(lambda: len(hosts.tservers()) == 1 + len(FOLLOWERS), "three hosts")
    return took_ms, moved


def write_row(client: Client, row: bytes) -> None:
    """One acknowledged mutation."""
    with client.writer(TABLE) as writer:
        writer.add(Mutation(row).put(b"f", b"q", b"v"))


class ClusterHosts:
    """The tservers of a cluster's hosts, and the replicas of its one table there."""

    def __init__(self, cluster: Cluster) -> None:
        settings = cluster.settings
        self._cluster = cluster
        hello = Hello(PROTOCOL_VERSION, settings.instance.instance_id, settings.instance.name, "master")
        self._pool = RpcPool(hello, settings.rpc, None, process_credentials(settings))

    def tservers(self) -> dict[str, TServer]:
        """Calls to the tserver of each live host."""
        with closing(open_coordination(self._cluster.settings)) as coordination:
            sessions = coordination.sessions("tserver")
        return {one.host.name: self._pool.tserver(one.address) for one in sessions if one.alive and one.host}

    def _replicas(self) -> dict[str, HeldReplicaInfo]:
        return {name: one for name, host in self.tservers().items() for one in host.replicas("", False).replicas}

    def are_in_sync(self) -> bool:
        """Whether every host has the newest state, and one of them leads."""
        try:
            found = list(self._replicas().values())
        except TransientError:
            return False
        is_one = len({one.root for one in found}) == 1 and sum(one.is_leader for one in found) == 1
        return len(found) == 1 + len(FOLLOWERS) and is_one

    def leader(self) -> str:
        """The host that leads."""
        return next(name for name, one in self._replicas().items() if one.is_leader)

    def sent_bytes(self, names: Sequence[str]) -> int:
        """Payload that these hosts have sent to others."""
        tservers = self.tservers()
        return sum(int(tservers[name].status()["segment_bytes_sent"]) for name in names)
