"""Two real clusters, west replicating to east, with workloads running on west: what failure tests do things to.

Arrives: a directory and a seed. Leaves: :class:`Pair`. What west sends to east passes a strait, and what the workloads
write to west another one; west lives on a small disk where this user may mount one. Everything is waited for by
looking, with limits that suit a busy machine. Survives a crash of the test: nothing, the supervisors end with it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import psutil

from bookkeeper.client import Client
from bookkeeper.clock import SystemClock
from bookkeeper.security.secret_store import SecretStore
from tests.support.cluster import Cluster
from tests.support.hbase_home import HBaseHome
from tests.support.small_disk import NoMountError, SmallDisk, small_disk
from tests.support.strait import Strait, own_host
from tests.support.workloads import LinkedList, Mix, Workload
from tests.support.workloads_books import leftovers, look
from tests.support.workloads_run import Loader, check_workload

Store = Literal["sqlite", "hbase"]

DISK_BYTES = 1 << 30
READY_S = 240.0
PROGRESS_S = 240.0
REPLICATED_MS = 300_000
SETTLED_S = 240.0

SETTINGS: dict[str, object] = {
    "coordination.session_lease_ms": 6_000,
    "coordination.session_renew_ms": 1_000,
    "coordination.session_margin_ms": 500,
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
class Pair:
    """A context manager: both clusters run inside, tables are made and replicated, nothing is written yet."""

    directory: Path
    seed: int
    store: Store = "sqlite"
    """The store of both clusters' books: a SQLite file each, or one HBase."""
    home: HBaseHome | None = None
    """That HBase."""
    west: Cluster = field(init=False)
    east: Cluster = field(init=False)
    loaders: list[Loader] = field(default_factory=list)
    to_east: Strait = field(init=False)
    """The strait between west and the master and tservers of east."""
    to_west: Strait = field(init=False)
    """The strait between the workloads and west."""
    disk: SmallDisk | None = None
    """The disk that has all of west; None where no disk can be mounted, and :attr:`no_disk` says why."""
    no_disk: str = ""
    clock: SystemClock = field(default_factory=SystemClock)
    _cleanup: ExitStack = field(default_factory=ExitStack)
    _has_failed: bool = True

    def __enter__(self) -> Self:
        with ExitStack() as cleanup:
            try:
                self.disk = cleanup.enter_context(small_disk(self.directory / "disk", DISK_BYTES))
                cleanup.callback(self._keep)
            except NoMountError as error:
                self.no_disk = str(error)
            self.to_east = cleanup.enter_context(Strait(own_host()))
            self.to_west = cleanup.enter_context(Strait())
            if self.store == "hbase":
                self.home = cleanup.enter_context(HBaseHome(self.directory / "books"))
            urls = {name: None if self.home is None else self.home.url(name) for name in ("west", "east")}
            home = self.directory if self.disk is None else self.disk.directory
            self.west = Cluster(home / "west", "west", 2, urls["west"], SETTINGS, self.to_east.passing)
            at_east = {"rpc.bind_host": self.to_east.real_host, "master.host": self.to_east.real_host}
            self.east = Cluster(self.directory / "east", "east", 2, urls["east"], {**SETTINGS, **at_east})
            for cluster in (self.west, self.east):
                cleanup.callback(cluster.stop)
                cluster.launch()
            for cluster in (self.west, self.east):
                cluster.wait_ready(READY_S)
            self._connect(cleanup)
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._has_failed = error is not None
        self._cleanup.close()

    def _keep(self) -> None:
        """The small disk goes: what people may want to look at stays, after a failure all of it."""
        if self.disk is not None:
            what = "west" if self._has_failed else "west/logs"
            if (self.disk.directory / what).is_dir():
                shutil.copytree(self.disk.directory / what, self.directory / what, dirs_exist_ok=True)

    @property
    def clusters(self) -> dict[str, Cluster]:
        """By name."""
        return {"west": self.west, "east": self.east}

    def _connect(self, cleanup: ExitStack) -> None:
        workloads: list[Workload] = [LinkedList(self.seed), Mix(self.seed)]
        for workload in workloads:
            for cluster in self.clusters.values():
                cluster.client.tables.create(workload.table, workload.splits, workload.groups)
        self.to_east.address(self.east.quorum)
        self.west.client.replication.define_cluster("east", self.east.quorum)
        for workload in workloads:
            self.west.client.replication.enable(workload.table, "east")
        address, secret = self.to_west.address(self.west.quorum), SecretStore(self.west.directory).file_of("client")
        front = cleanup.enter_context(Client.connect(address, secret_file=secret))
        self.to_west.let_pass(front._pool)
        self.loaders = [Loader(front, workload, self.clock) for workload in workloads]

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

    def wait_written(self, batches: int) -> None:
        """Return when every workload has written so many batches more than now."""
        for loader, count in [(loader, loader.acknowledged + batches) for loader in self.loaders]:
            loader.wait_acknowledged(count, PROGRESS_S)

    def written(self) -> str:
        """How many batches are acknowledged, for people."""
        return ", ".join(f"{loader.workload.table} {loader.acknowledged}" for loader in self.loaders)

    # ---- processes

    def kill9(self, name: str, role: str) -> tuple[str, str, int]:
        """End a process as a crash would; for :meth:`wait_back`."""
        return name, role, self.clusters[name].kill9(role)

    def wait_back(self, killed: tuple[str, str, int]) -> None:
        """Return when a new process does the work of a killed one."""
        name, role, pid = killed
        self.clusters[name].wait_restarted(role, pid, READY_S)
        self.clusters[name].wait_ready(READY_S)

    def jvm(self) -> psutil.Process:
        """The JVM behind west's replay process, once it runs."""
        found: list[psutil.Process] = []

        def runs() -> bool:
            found[:] = jvms_of(self.west.pid("replay"))
            return bool(found)

        self.west.wait_until(runs, "JVM of the replay process", READY_S)
        return found[0]

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

    def leftovers(self) -> list[str]:
        """Cells and files of both clusters that no live process needs, after a flush of all tablets."""
        for cluster in self.clusters.values():
            for loader in self.loaders:
                cluster.client.tables.flush(loader.workload.table)
        return [line for cluster in self.clusters.values() for line in leftovers(look(cluster.settings))]

    def wait_settled(self) -> None:
        """Return when nothing is left behind; raises AssertionError naming what is. Nothing is being written."""
        lines: list[str] = []

        def is_settled() -> bool:
            lines[:] = self.leftovers()
            return not lines

        settled = self._in_time(is_settled, SETTLED_S)
        assert settled, f"left behind after {SETTLED_S:.0f} s:\n" + "\n".join(lines)

    def _in_time(self, condition: Callable[[], bool], limit_s: float) -> bool:
        deadline_ns = self.clock.boot_ns() + int(limit_s * 1e9)
        done: list[bool] = []

        def look_again() -> bool:
            done[:] = [condition()]
            return done[0] or self.clock.boot_ns() > deadline_ns

        self.west.wait_until(look_again, "end of the look", 2 * limit_s)
        return done[0]


def jvms_of(pid: int) -> list[psutil.Process]:
    """The Java processes below a process; none when it is gone."""
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [child for child in children if _name(child) == "java"]


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""
