"""Two real clusters, west replicating to east, with workloads running on west: what failure tests do things to.

Arrives: a directory and a seed. Leaves: :class:`Pair`. What west sends to east passes a strait, and what the workloads
write to west another one; west lives on a small disk where this user may mount one. Survives a crash of the test:
nothing, the supervisors end with it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import Literal

import psutil

from bookkeeper.client import Client
from bookkeeper.security.secret_store import SecretStore
from tests.support.cluster import Cluster
from tests.support.hbase_home import HBaseHome
from tests.support.small_disk import NoMountError, SmallDisk, small_disk
from tests.support.strait import Strait, own_host
from tests.support.workloads import LinkedList, Mix, Workload
from tests.support.workloads_clusters import READY_S, SETTINGS, TwoClusters
from tests.support.workloads_run import Loader

Store = Literal["sqlite", "hbase"]

DISK_BYTES = 1 << 30


@dataclass(slots=True)
class Pair(TwoClusters):
    """Both clusters have two tservers each."""

    store: Store = "sqlite"
    """The store of both clusters' books: a SQLite file each, or one HBase."""
    home: HBaseHome | None = None
    """That HBase."""
    to_east: Strait = field(init=False)
    """The strait between west and the master and tservers of east."""
    to_west: Strait = field(init=False)
    """The strait between the workloads and west."""
    disk: SmallDisk | None = None
    """The disk that has all of west; None where no disk can be mounted, and :attr:`no_disk` says why."""
    no_disk: str = ""

    def _make(self) -> None:
        try:
            self.disk = self._cleanup.enter_context(small_disk(self.directory / "disk", DISK_BYTES))
            self._cleanup.callback(self._keep)
        except NoMountError as error:
            self.no_disk = str(error)
        self.to_east = self._cleanup.enter_context(Strait(own_host()))
        self.to_west = self._cleanup.enter_context(Strait())
        if self.store == "hbase":
            self.home = self._cleanup.enter_context(HBaseHome(self.directory / "books"))
        urls = {name: None if self.home is None else self.home.url(name) for name in ("west", "east")}
        home = self.directory if self.disk is None else self.disk.directory
        self.west = Cluster(home / "west", "west", 2, urls["west"], SETTINGS, self.to_east.passing)
        at_east = {"rpc.bind_host": self.to_east.real_host, "master.host": self.to_east.real_host}
        self.east = Cluster(self.directory / "east", "east", 2, urls["east"], {**SETTINGS, **at_east})

    def _keep(self) -> None:
        """The small disk goes: what people may want to look at stays, after a failure all of it."""
        if self.disk is not None:
            what = "west" if self.has_failed else "west/logs"
            if (self.disk.directory / what).is_dir():
                shutil.copytree(self.disk.directory / what, self.directory / what, dirs_exist_ok=True)

    def _connect(self) -> None:
        workloads: list[Workload] = [LinkedList(self.seed), Mix(self.seed)]
        for workload in workloads:
            for cluster in self.clusters.values():
                cluster.client.tables.create(workload.table, workload.splits, workload.groups)
        self.to_east.address(self.east.quorum)
        self._replicate(workloads)
        address, secret = self.to_west.address(self.west.quorum), SecretStore(self.west.directory).file_of("client")
        front = self._cleanup.enter_context(Client.connect(address, secret_file=secret))
        self.to_west.let_pass(front._pool)
        self.loaders = [Loader(front, workload, self.clock, self.pause_ms) for workload in workloads]

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
