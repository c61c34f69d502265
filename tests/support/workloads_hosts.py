"""Two clusters of three hosts each that replicate their tablets, with workloads on one of them that the other one gets.

Arrives: a directory, a seed, and the kind of the turn. Leaves: :class:`Trios`, and a
:class:`~tests.support.hosted_cluster.HostedCluster` for each cluster. Nothing outlives the test: supervisors end with
it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bookkeeper.metadata import keys
from bookkeeper.standalone.joining import local_directory
from tests.support.cluster import Cluster
from tests.support.host_turns import Turn
from tests.support.hosted_cluster import HOSTS, SMALL, HostedCluster
from tests.support.small_disk import NoMountError, SmallDisk, small_disk
from tests.support.workloads import LinkedList, Mix, Workload
from tests.support.workloads_books import leftovers
from tests.support.workloads_clusters import SETTINGS, TwoClusters
from tests.support.workloads_run import Loader

DISK_BYTES = 256 << 20
PROPERTIES = {
    "table.flush.memtable_bytes": "32768",
    "table.compaction.segments_max": "4",
}
REPLICAS_OF = {"links": 3, "mix": 2, "plain": 1}
"""Replicas of each table at first. With two, a drained or lost host is replaced by the third one."""
HOST_SETTINGS: dict[str, object] = {
    **SETTINGS,
    "master.scan_interval_ms": 500,
    "standalone.hosts": len(HOSTS),
    "replicas.repair_after_ms": 2_000,
    "replicas.check_interval_ms": 1_000,
}
"""States are made, merged and named all the time; a host that is away is replaced soon, if there is one, and damaged
files are found soon.
"""


@dataclass(slots=True)
class Trios(TwoClusters):
    """Both clusters have three hosts."""

    turn: Turn = field(default_factory=Turn)
    hosted: dict[str, HostedCluster] = field(default_factory=dict)
    """By the cluster's name."""
    no_disk: str = ""
    """The reason why no small disk can be mounted."""
    _disks: dict[str, SmallDisk] = field(default_factory=dict)

    @property
    def tables(self) -> frozenset[str]:
        """The tables with load."""
        return frozenset(REPLICAS_OF)

    def _make(self) -> None:
        self.west, self.east = (
            Cluster(self.directory / name, name, 1, overrides={**HOST_SETTINGS, **self.turn.settings})
            for name in ("west", "east")
        )
        for name, cluster in self.clusters.items():
            home = local_directory(cluster.settings, SMALL)
            try:
                self._disks[name] = self._cleanup.enter_context(small_disk(home, DISK_BYTES))
                self._cleanup.callback(self._keep, home, self.directory / f"{name}-{SMALL}")
            except NoMountError as error:
                self.no_disk = str(error)

    def _keep(self, home: Path, elsewhere: Path) -> None:
        """The small disk goes: after a failure all of it stays, else its logs."""
        if self.has_failed:
            shutil.copytree(home, elsewhere, dirs_exist_ok=True)
        elif (home / "logs").is_dir():
            shutil.copytree(home / "logs", elsewhere / "logs", dirs_exist_ok=True)

    def _connect(self) -> None:
        workloads: list[Workload] = [
            LinkedList(self.seed, splits=(b"8",)),
            Mix(self.seed, splits=(b"row-0075",)),
            LinkedList(self.seed + 1, 20, "plain", ()),
        ]
        for workload in workloads:
            for cluster in self.clusters.values():
                table = workload.table
                own = {**self.turn.properties(table), "table.replicas": str(REPLICAS_OF[table])}
                cluster.client.tables.create(table, workload.splits, workload.groups, {**PROPERTIES, **own})
        self._replicate(workloads)
        self.loaders = [Loader(self.west.client, workload, self.clock, self.pause_ms) for workload in workloads]
        for name, cluster in self.clusters.items():
            self.hosted[name] = HostedCluster(cluster, tuple(REPLICAS_OF), self._disks.get(name))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside :meth:`load`: nothing is written while the block runs, and everything that was is acknowledged."""
        for loader in self.loaders:
            loader.stop()
        with ExitStack() as starts:
            for loader in self.loaders:
                starts.callback(loader.start)
            yield

    def wait_tidy(self) -> None:
        """Return when books and shared directories have nothing that is not needed, besides files that go after a time
        which is longer than a test; raises AssertionError that names it. Nothing is being written.
        """
        self.wait_none(self._untidy, "left behind")

    def _untidy(self) -> list[str]:
        self.flush()
        lines: list[str] = []
        for hosted in self.hosted.values():
            view = hosted.look()
            going = [row.key.removeprefix(keys.DEL_PREFIX) for row in view.rows if row.key.startswith(keys.DEL_PREFIX)]
            names = [name.decode() for name in going]
            lines += [line for line in leftovers(view) if not any(name in line for name in names)]
        return lines

    def wait_equal(self) -> None:
        """Return when each replica has exactly the named state, after a flush, and no tablet lacks a log; raises
        AssertionError that names the ones that do not get there. Nothing is being written.
        """
        self.flush()
        self.wait_none(self._unequal, "unequal")

    def _unequal(self) -> list[str]:
        lines = [f"{name}: {line}" for name, hosted in self.hosted.items() for line in hosted.lacking()]
        if lines and self.turn.are_logs_on_hosts:
            self.flush()  # what came from a log that was given up is in memory alone
        return lines
