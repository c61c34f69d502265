"""Hosts of one cluster as processes for a benchmark, which is their master; each has a disk, and all run here."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from bookkeeper.config.file import load_settings
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import ReplicaCell, ReplicaRole
from bookkeeper.standalone.joining import join_cluster
from tests.support.tservers import Ground, ProcessNode, records, wait_until

TABLE_ID = "1"
QUIET = {"table.replicas": "3", "table.compaction.segments_max": "1000", "table.compaction.ratio": "1000"}
"""No compaction but a requested one."""
BATCH_BYTES = 16 << 20
VALUE_BYTES = 16 << 10
LIMIT_S = 300.0


class HostProcesses:
    """One tablet, led by ``host1``, and the tservers of its hosts."""

    def __init__(self, ground: Ground, directory: Path) -> None:
        self.ground = ground
        self._directory = directory
        self._homes = {ground.settings.host.name: ground.settings.directory}
        self._nodes: dict[str, ProcessNode] = {}
        self._ranks = 0
        (self.extent,) = ground.create_table(TABLE_ID)
        ground.set_properties(TABLE_ID, QUIET)
        self.leader = ground.settings.host.name
        self.start(self.leader)
        self.place(self.leader)
        ground.assign(self._nodes[self.leader], self.extent)

    def start(self, name: str) -> None:
        """Start the tserver of a host, which joins the cluster with its first start."""
        if name not in self._homes:
            self._homes[name] = join_cluster(self._directory / name, self.ground.settings.directory, name).directory
        self._nodes[name] = self.ground.process(self._homes[name])

    def place(self, name: str, role: ReplicaRole = "voter") -> None:
        """The tablet's row gives a host a replica."""
        self._ranks += 1
        incarnation = (load_settings(self._homes[name]).replicas_dir / "incarnation").read_text()
        cell = ReplicaCell(f"p{self._ranks}", incarnation, role).encode()
        row = RowPut(keys.tablet_row(TABLE_ID, None), {keys.replica_column(name): cell})
        self.ground.metadata.put([row], keys.master_rank(1, self._ranks))

    # ---- data

    def write(self, first: int, count: int, value_bytes: int = 20) -> None:
        """Acknowledged rows whose values can't be compressed."""
        batch = [(b"%012d" % number, os.urandom(value_bytes)) for number in range(first, first + count)]
        assert self.ground.write(self._nodes[self.leader], self.extent, records(batch)) == ()

    def write_bytes(self, size: int) -> None:
        """About this many bytes, flushed."""
        rows = BATCH_BYTES // VALUE_BYTES
        for batch in range(size // BATCH_BYTES):
            self.write(batch * rows, rows, VALUE_BYTES)
        self.flush()

    def flush(self) -> None:
        """Write the leader's memory as a segment."""
        self.ground.tserver(self._nodes[self.leader]).flush_tablet(self.extent)

    def compact(self) -> None:
        """Merge all data of the tablet; returns when the leader has done it."""
        tserver, tickets = self.ground.tserver(self._nodes[self.leader]), [0]

        def is_done() -> bool:
            tickets.append(tserver.compact_tablet(self.extent, tickets[-1]))
            return tickets[-1] == 0

        wait_until(is_done, "a compaction", LIMIT_S)

    def files(self, name: str) -> dict[Path, int]:
        """The tablet's segment files on a host, with their bytes."""
        root = load_settings(self._homes[name]).replicas_dir / "tables"
        return {path.relative_to(root): path.stat().st_size for path in sorted(root.rglob("*.parquet"))}

    def path(self, name: str, file: Path) -> Path:
        """Where a segment file lies."""
        return load_settings(self._homes[name]).replicas_dir / "tables" / file

    # ---- facts

    def fact(self, name: str, key: str) -> int:
        """A number of a tserver's status."""
        return int(self.ground.tserver(self._nodes[name]).status()[key])

    def wait_same(self, *names: str) -> None:
        """Wait until hosts have acknowledged the leader's newest state, without calls while files are on their way."""
        wait_until(lambda: all(self.files(name) == self.files(self.leader) for name in names), "equal files", LIMIT_S)
        wait_until(lambda: self._acknowledged() >= set(names), "acknowledgements of all states")

    def _acknowledged(self) -> set[str]:
        """The hosts that have acknowledged everything."""
        (held,) = self.ground.tserver(self._nodes[self.leader]).replicas("", False).replicas
        return {lag.host for lag in held.lags if not lag.lacking}

    def process(self, name: str) -> psutil.Process:
        """The tserver of a host."""
        return psutil.Process(self._nodes[name].process.pid)


def cpu_seconds(*processes: psutil.Process) -> float:
    """The CPU time of these processes until now, in user and system mode."""
    times = [process.cpu_times() for process in processes]
    return float(sum(time.user + time.system for time in times))


def peak_mb(process: psutil.Process) -> float:
    """The most memory (RSS) that a process has had."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak) / 1e3


@contextmanager
def host_processes() -> Iterator[HostProcesses]:
    """The leader alone; the block starts the others."""
    with tempfile.TemporaryDirectory(prefix="bookkeeper-bench-") as name:
        ground = Ground(Path(name) / "west")
        try:
            yield HostProcesses(ground, Path(name))
        finally:
            ground.close()
