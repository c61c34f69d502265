"""Two real clusters with workloads on one of them that the other one gets: the frame of failure tests.

Arrives: a directory and a seed; a subclass says how both clusters are made (:class:`TwoClusters`). Leaves: load that
goes on while faults strike, and afterwards the differences of both clusters from the acknowledged batches, and what is
left behind. Everything is waited for by looking, with limits that suit a busy machine. The supervisors end with the
test.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from bookkeeper.clock import SystemClock
from tests.support.cluster import Cluster
from tests.support.workloads import Workload
from tests.support.workloads_books import leftovers, look
from tests.support.workloads_run import Loader, check_workload

READY_S = 240.0
PROGRESS_S = 240.0
REPLICATED_MS = 300_000
SETTLED_S = 240.0
LOOK_PAUSE_MS = 1_000
"""Between two looks at all that clusters have: a look flushes all tablets."""

SETTINGS: dict[str, object] = {
    "coordination.session_lease_ms": 6_000,
    "coordination.session_renew_ms": 1_000,
    "coordination.session_margin_ms": 500,
    "metadata.region_session_ms": 20_000,
    "master.scan_interval_ms": 2_000,
    "master.gc_interval_ms": 500,
    "master.backoff_max_ms": 2_000,
    "tserver.wal_roll_bytes": 256 * 1024,
    "tserver.wal_roll_age_ms": 8_000,
    "tserver.memtable_flush_bytes": 256 * 1024,
    "tserver.stream_idle_timeout_ms": 4_000,
    "tserver.disk_reserve_bytes": 16 * 2**20,
    "replay.tasks_max": 2,
    "replay.message_timeout_ms": 10_000,
}
"""Logs roll and memtables are flushed every few seconds under load; what has a grace, has a short one."""


@dataclass(slots=True)
class TwoClusters(ABC):
    """A context manager: both clusters run inside, tables are made and replicated, nothing is written yet."""

    directory: Path
    seed: int
    pause_ms: float = field(default=100.0, kw_only=True)
    """The time between two batches of a workload: the clusters of other tests need the cores, too."""
    west: Cluster = field(init=False)
    east: Cluster = field(init=False)
    loaders: list[Loader] = field(default_factory=list)
    clock: SystemClock = field(default_factory=SystemClock)
    has_failed: bool = True
    """Whether an error ended the block, or it has not ended yet."""
    _cleanup: ExitStack = field(default_factory=ExitStack)

    @abstractmethod
    def _make(self) -> None:
        """Set both clusters; they do not run yet."""

    @abstractmethod
    def _connect(self) -> None:
        """Make the tables, replicate them, and set the loaders."""

    def __enter__(self) -> Self:
        try:
            self._make()
            for cluster in self.clusters.values():
                self._cleanup.callback(cluster.stop)
                cluster.launch()
            for cluster in self.clusters.values():
                cluster.wait_ready(READY_S)
            self._connect()
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.has_failed = error is not None
        self._cleanup.close()

    @property
    def clusters(self) -> dict[str, Cluster]:
        """By name."""
        return {"west": self.west, "east": self.east}

    def _replicate(self, workloads: Sequence[Workload]) -> None:
        """Let east have whatever these workloads write to west."""
        self.west.client.replication.define_cluster("east", self.east.quorum)
        for workload in workloads:
            self.west.client.replication.enable(workload.table, "east")

    # ---- load

    @contextmanager
    def load(self) -> Iterator[None]:
        """The workloads go on while the block runs; at its end everything that was sent is acknowledged."""
        for loader in self.loaders:
            loader.start()
        try:
            yield
        finally:
            with ExitStack() as stops:
                for loader in self.loaders:
                    stops.callback(loader.stop)

    def wait_written(self, batches: int, besides: Collection[str] = ()) -> None:
        """Return when every workload has written so many batches more than now, those of these tables excepted."""
        waited = [loader for loader in self.loaders if loader.workload.table not in besides]
        for loader, count in [(loader, loader.acknowledged + batches) for loader in waited]:
            loader.wait_acknowledged(count, PROGRESS_S)

    def written(self) -> str:
        """How many batches are acknowledged, for people."""
        return ", ".join(f"{loader.workload.table} {loader.acknowledged}" for loader in self.loaders)

    # ---- afterwards

    def wait_replicated(self) -> None:
        """Return when everything that was written before is on east; raises AssertionError with the status if not."""
        for loader in self.loaders:
            left = self.west.client.replication.wait(loader.workload.table, "east", timeout_ms=REPLICATED_MS)
            assert not left, f"not replicated after {REPLICATED_MS} ms: {left}"

    def differences(self) -> list[str]:
        """How both clusters differ from what was written, and from each other. Nothing is being written."""
        problems: list[str] = []
        for loader in self.loaders:
            problems += check_workload(loader, self.west.client, self.east.client)
        return problems

    def check(self) -> None:
        """Everything is on both clusters, cell by cell, and nothing else is."""
        self.wait_replicated()
        problems = self.differences()
        assert not problems, "\n".join(problems)

    def flush(self) -> None:
        """Flush all tablets of both clusters."""
        for cluster in self.clusters.values():
            for loader in self.loaders:
                cluster.client.tables.flush(loader.workload.table)

    def leftovers(self) -> list[str]:
        """Cells and files of both clusters that no live process needs, after a flush of all tablets."""
        self.flush()
        return [line for cluster in self.clusters.values() for line in leftovers(look(cluster.settings))]

    def wait_settled(self) -> None:
        """Return when nothing is left behind; raises AssertionError naming what is. Nothing is being written."""
        self.wait_none(self.leftovers, "left behind", SETTLED_S)

    def wait_none(self, lines: Callable[[], list[str]], what: str, limit_s: float = READY_S) -> None:
        """Return when ``lines`` finds none; raises AssertionError with the last ones after ``limit_s``."""
        never, deadline_ns = threading.Event(), self.clock.boot_ns() + int(limit_s * 1e9)
        found: list[str] = []

        def is_over() -> bool:
            found[:] = lines()
            return not found or self.clock.boot_ns() > deadline_ns or self.clock.wait(never, LOOK_PAUSE_MS)

        self.west.wait_until(is_over, "end of the look", 2 * limit_s)
        assert not found, f"{what} after {limit_s:.0f} s:\n" + "\n".join(found)
