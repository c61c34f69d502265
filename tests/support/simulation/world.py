"""Clusters of real processes in one thread: started, written to, broken, mended and judged.

Arrives: what a schedule wants. Leaves: a :class:`World` with its kernel, its ledger and its clusters. The laws and
the schedules are those of docs/design/rules.md.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from bookkeeper.config.file import new_settings
from bookkeeper.config.sections import Settings
from bookkeeper.master.gc.orphan_files import SCAN_INTERVAL_MS
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Column, Row
from bookkeeper.storage.volume.names import TABLES
from bookkeeper.storage.volume.volume_protocol import Volume
from tests.support.simulation.cells import SimTable
from tests.support.simulation.cluster import Cluster, Store
from tests.support.simulation.disk import Disk
from tests.support.simulation.host_disk import HostDisks
from tests.support.simulation.hosts import Host
from tests.support.simulation.imports import GIVEN, Newborns, named_in
from tests.support.simulation.kernel import STEPS_MAX, Kernel, Process, StuckError, Task
from tests.support.simulation.late_writes import FLIGHT_MS
from tests.support.simulation.ledger import Ledger
from tests.support.simulation.network import Net, Network
from tests.support.simulation.patches import simulated
from tests.support.simulation.primitives import Running
from tests.support.simulation.promises import Promises
from tests.support.simulation.replicas import ReplicaLaws
from tests.support.simulation.shown_lag import ToldOffsets, wrong_lags
from tests.support.simulation.tablets import Segments, shared_entries
from tests.support.simulation.tree import SimCoordination
from tests.support.simulation.users import Users, Write
from tests.support.simulation.waits import WaitWatch
from tests.support.simulation.wal import Watch
from tests.support.simulation.zookeeper import in_zookeeper
from tests.support.volumes import name_at, root_of

SETTINGS: dict[str, object] = {
    "coordination.session_lease_ms": 900,
    "coordination.session_renew_ms": 300,
    "coordination.session_margin_ms": 100,
    "rpc.timeout_ms": 3_000,
    "master.scan_interval_ms": 1_000,
    "master.gc_interval_ms": 800,
    "master.cycle_min_interval_ms": 10,
    "master.backoff_base_ms": 100,
    "master.backoff_max_ms": 800,
    "tserver.wal_roll_age_ms": 2_500,
    "tserver.wal_sync_interval_ms": 40,
    "tserver.needed_interval_ms": 10,
    "tserver.stream_idle_timeout_ms": 2_000,
    "replicas.repair_after_ms": 5_000,
    "replication.quarantine_tries": 2,
    "replay.message_bytes": 1,
    "replay.message_retries": 1,
    "replay.retry_base_ms": 50,
    "replay.retry_max_ms": 100,
    "replay.message_timeout_ms": 2_000,
    "replay.run_timeout_ms": 10_000,
    "replay.start_timeout_ms": 1,
}
"""Short times: a simulation's time costs nothing, its steps do."""


ASSIGNERS = ("sequential", "unordered")
"""Each has half of all seeds."""

MARKS_DUE_NS = 5_000_000_000
"""How long it takes to purge marks that are due."""


class LawBrokenError(AssertionError):
    """A law does not hold; the message says which, and how it came about."""


@dataclass(eq=False)
class World(Users):
    """Everything. Made by :func:`simulation`."""

    directory: Path
    kernel: Kernel
    ledger: Ledger
    assigner: str = "sequential"
    clusters: dict[str, Cluster] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    promises: dict[str, Promises] = field(default_factory=dict)
    caretaker: Callable[[], None] = lambda: None
    """Acts of operators after all else, as long as the clusters are not at rest."""
    waits: WaitWatch = field(default_factory=WaitWatch)
    told: ToldOffsets = field(default_factory=ToldOffsets)
    make_store: Callable[[World, Settings], Store] = lambda world, settings: SimCoordination(
        world.kernel, settings.instance.name
    )
    """The coordination store of a new cluster: embedded, or :func:`zookeeper_store`."""
    _clients: int = 0
    _marks_due_ns: int = 0

    # ---- making

    def add_cluster(self, name: str, overrides: Mapping[str, object] | None = None) -> Cluster:
        """A cluster without processes."""
        settings = new_settings(
            self.directory / name,
            name,
            instance_id=f"id-{name}",
            master_port=10_000 + 100 * len(self.clusters),
            overrides={
                **SETTINGS,
                "master.assigner": self.assigner,
                "files.roots": [str(self.directory / GIVEN)],
                **(overrides or {}),
            },
        )
        for path in (settings.wal_dir, settings.tables_dir):
            path.mkdir(parents=True)
        cluster = Cluster(self, name, settings, SimTable(self.kernel), self.make_store(self, settings))
        cluster.table.owned_by(settings.instance.instance_id)
        cluster.table.on_put = self._judge_put
        cluster.table.on_row = lambda key, columns: self._judge_row(cluster, key, columns)
        self.clusters[name] = cluster
        self.promises[name] = Promises()
        return cluster

    def boot(self, cluster: Cluster, tservers: int = 2, masters: int = 1, replays: int = 1) -> None:
        """Start processes, a tserver on each host where there are hosts, and wait until every tablet is served."""
        for _ in range(masters):
            cluster.start_master()
            self.until(lambda: cluster.leader() is not None, f"a master leads {cluster.name}")
        for host in cluster.hosts:
            host.start()
        for _ in range(0 if cluster.hosts else tservers):
            cluster.start_tserver()
        for _ in range(replays):
            cluster.start_replay()
        self.until(
            lambda: cluster.is_served() and len(cluster.booted(cluster.tservers)) == len(cluster.tservers),
            f"cluster {cluster.name} serves its tablets",
        )

    # ---- running

    def until(
        self,
        condition: Callable[[], bool],
        what: str,
        limit_s: float = 120.0,
        look_every: int = 1,
        steps_max: int = STEPS_MAX,
    ) -> None:
        """Run all tasks until the condition holds. Raises StuckError, LawBrokenError."""
        self.kernel.run_until(condition, what, limit_s, steps_max, look_every)
        self.judge()

    def let_pass(self, milliseconds: int) -> None:
        """Let time pass at once; each live process renews its lease meanwhile."""
        until_ns = self.kernel.now_ns + milliseconds * 1_000_000
        for cluster in self.clusters.values():
            cluster.coordination.outlast(until_ns)
        self.kernel.advance(until_ns)

    def judge(self) -> None:
        """Raise LawBrokenError when a law was broken that can be judged at once."""
        broken = [*self.ledger.broken, *self.kernel.failures]
        for cluster in self.clusters.values():
            broken += cluster.table.broken_laws
            broken += self.waits.broken(cluster)
        if broken:
            raise LawBrokenError("\n".join(broken[:5]))

    def judge_lag(self) -> None:
        """Raise LawBrokenError when a leader shows a lag that is not so, two processes serve one tablet, or another
        law was broken.
        """
        with self.kernel.aside():
            for cluster in self.clusters.values():
                for law in wrong_lags(cluster, self.ledger, self.told, self.kernel.now_ns):
                    self.ledger.break_law(law)
                for law in cluster.served_twice():
                    self.ledger.break_law(law)
        self.judge()

    @contextmanager
    def held(self, *words: str, process: Process | None = None) -> Iterator[None]:
        """While in here, no task goes on whose next step is described by all of these words (and is of the process)."""
        number = self.hold(*words, process=process)
        try:
            yield
        finally:
            self.kernel.release(number)

    def hold(self, *words: str, process: Process | None = None) -> int:
        """As :meth:`held`, until the kernel releases it."""
        return self.kernel.hold(
            lambda task: (process is None or task.process is process) and all(word in task.next_step for word in words)
        )

    def waiting_at(self, *words: str, process: Process | None = None) -> Task | None:
        """A task whose next step is described by all of these words."""
        for task in self.kernel.tasks:
            if (process is None or task.process is process) and all(word in task.next_step for word in words):
                return task
        return None

    def until_at(self, *words: str, process: Process | None = None, limit_s: float = 60.0) -> Task:
        """Run all tasks until one is about to do this step; the caller's own hold stops it."""
        self.until(lambda: self.waiting_at(*words, process=process) is not None, f"a task at {words}", limit_s)
        task = self.waiting_at(*words, process=process)
        assert task is not None
        return task

    # ---- rest

    def mend(self) -> None:
        """No more faults: what is suspended goes on, what is cut is joined, what died is started again."""
        self.kernel.holds.clear()
        self.kernel.traps.clear()
        Net.now.calm()
        for cluster in self.clusters.values():
            cluster.coordination.calm()
            cluster.table.refuse = nobody
            cluster.table.way.calm()
            for node in [*cluster.masters, *cluster.tservers, *cluster.replays]:
                self.kernel.resume(node.process)
            for host in cluster.hosts:
                host.make_room()
            supervise(cluster)

    def rest(self, limit_s: float = 300.0, steps_max: int = STEPS_MAX) -> None:
        """Mend everything and run until nothing is left to do; logs end by their age. Raises StuckError with what is
        left, LawBrokenError.
        """
        try:
            self.until(self._is_mended, "all is served", 60.0, look_every=50)
            self.until(self._is_at_rest, "rest", limit_s, look_every=50, steps_max=steps_max)
        except StuckError as error:
            for cluster in self.clusters.values():
                for line in cluster.unrest()[:20]:
                    error.add_note(f"left over in {cluster.name}: {line}")
            raise

    def _is_mended(self) -> bool:
        """As a supervisor does: what died is started again."""
        self.mend()
        return all(c.leader() is not None and c.is_served() for c in self.clusters.values())

    def _is_at_rest(self) -> bool:
        """All but marks and unnamed files go within a moment. Marks outlive their files for a while, and the collector
        looks for unnamed files seldom.
        """
        self.caretaker()
        for cluster in self.clusters.values():
            supervise(cluster)
        if any(cluster.is_busy() or cluster.table.way.under_way for cluster in self.clusters.values()):
            return False
        unnamed = any(cluster.replicas.unnamed_files() for cluster in self.clusters.values())
        if unnamed or any(cluster.marks() for cluster in self.clusters.values()):
            if self.kernel.now_ns > self._marks_due_ns:
                late_ms = SCAN_INTERVAL_MS if unnamed else FLIGHT_MS
                self.let_pass(late_ms)
                self._marks_due_ns = self.kernel.now_ns + MARKS_DUE_NS
            return False
        return True

    # ---- laws at the books

    def _judge_put(self, key: bytes, column: Column, rank: int) -> None:
        """A worker says how far a target is, or a master that it may pass a range, or that a log is given up."""
        self.told.put(key, column, rank, self.kernel.now_ns)
        if keys.is_lost(column):
            self.ledger.note_given_up(keys.parse_tablet_row(key), keys.parse_lost(column))
        if column.family == "quar":
            self.ledger.set_aside.put(key, column)
        if column.family == "done":
            target = keys.parse_target(column.qualifier)
            peer = self.clusters.get(target.cluster)
            if peer is not None:
                self.ledger.finished(keys.parse_repl_row(key), target, peer.instance, rank - 1)

    def _judge_row(self, cluster: Cluster, key: bytes, columns: Collection[Column]) -> None:
        """A row of the books was written."""
        cluster.replicas.row_put(key, columns)
        named_in(cluster, key, columns)

    def judge_deletion(self, volume: Volume, file: str) -> None:
        """A log or a segment goes now."""
        cluster = self.cluster_at(root_of(volume))
        if Segments.files.pop(file, None) is not None or (cluster.hosts and file.startswith(TABLES)):
            cluster.replicas.shared_file_goes(file)
        if not cluster.has(file):
            return
        self.ledger.deleting(file, cluster.targets())
        logged, instance = self.ledger.files.get(file), cluster.instance
        cluster.replicas.log_goes(
            file,
            [] if logged is None else logged.blocks,
            lambda block, entry: self._lies_in(instance, block.tablet, entry.row),
        )
        for row in cluster.table.rows(b"", ("log", "segment", keys.REPLICA_FAMILY)):
            if row.family(keys.REPLICA_FAMILY):
                continue
            if keys.log_column(file) in row.cells and (lost := self._only_in(cluster, file, row)):
                self.ledger.break_law(f"deleted early: {file} goes and tablet {row.key!r} needs {lost} of it")
        for node in cluster.alive(cluster.tservers):
            if cluster.counts(node) and node.part.parts.writing.path.wal_name == file:
                self.ledger.break_law(f"deleted alive: {file} goes and {node.name} writes it")

    def _only_in(self, cluster: Cluster, log: str, row: Row) -> list[bytes]:
        """The records that a tablet has in a log and not in its segments. A first use without
        records after it names nothing, nor do rows that are in another tablet since.
        """
        file = self.ledger.files.get(log)
        stored = {entry.value for entry in shared_entries(cluster.volume, row)}
        return [
            entry.value
            for block in ([] if file is None else file.blocks)
            if keys.tablet_row(*block.tablet) == row.key
            for entry in block.entries
            if entry.value not in stored and self._lies_in(cluster.instance, block.tablet, entry.row)
        ]

    def of_host(self, path: Path, judge: Callable[[ReplicaLaws, Host], None]) -> None:
        """Judge what happens at a path, where it is on the disk of a host."""
        for cluster in self.clusters.values():
            for host in cluster.hosts:
                if path.is_relative_to(host.settings.replicas_dir):
                    judge(cluster.replicas, host)

    def cluster_at(self, path: Path) -> Cluster:
        """The cluster whose directory, or whose host's, has a path."""
        for cluster in self.clusters.values():
            places = [cluster.settings.directory, *(host.settings.directory for host in cluster.hosts)]
            if any(path.is_relative_to(place.absolute()) for place in places):
                return cluster
        raise AssertionError(f"no cluster owns {path}")

    def _instance_of(self, volume: Volume) -> str:
        return self.cluster_at(root_of(volume)).instance

    def _machine_of(self, volume: Volume, log: str) -> str:
        return f"{self.cluster_at(root_of(volume)).name}/{log.rsplit('/', 2)[1]}"

    def _synced(self, path: str) -> None:
        roots = self.cluster_at(Path(path)).roots()
        self.ledger.synced(
            name_at(Path(path), next(root for root in roots if Path(path).is_relative_to(root.absolute())))
        )

    def _lies_in(self, instance: str, tablet: tuple[str, bytes | None], row: bytes) -> bool:
        for cluster in self.clusters.values():
            if cluster.instance == instance:
                return any(extent.contains(row) for extent in cluster.extents(tablet[0]) if extent.end_row == tablet[1])
        return True


def zookeeper_store(world: World, settings: Settings) -> Store:
    """A coordination store in ZooKeeper."""
    return in_zookeeper(world.kernel, settings, world.ledger.break_law)


def supervise(cluster: Cluster) -> None:
    """Supervisors end overdue processes, and start what died, or found its session to be over."""
    cluster.coordination.end_overdue()
    for host in cluster.hosts:
        if not host.is_up:
            host.start()
    cluster.start_missing(cluster.valid)


def nobody(_process: str) -> bool:
    """The books answer all callers."""
    return False


@contextmanager
def simulation(directory: Path, seed: int = 0) -> Iterator[World]:
    """A world with simulated edges; what is left of it is removed."""
    rng = Random(seed)
    kernel = Kernel(rng)
    world = World(directory, kernel, Ledger(), ASSIGNERS[seed % 2])
    Running.kernel, Net.now = kernel, Network()
    Segments.files, Segments.parsed, Segments.made, Newborns.blocks = {}, {}, 0, {}
    Disk.clear()
    HostDisks.clear()
    HostDisks.saved = lambda path: world.of_host(path, lambda laws, host: laws.saved(host, path))
    HostDisks.published = lambda path: world.cluster_at(path).replicas.published(path)
    HostDisks.deleting = lambda root, names: world.of_host(root, lambda laws, host: laws.deleting(host, names))
    HostDisks.removing = lambda root, key: world.of_host(root, lambda laws, host: laws.removing(host, key))
    Disk.synced = world._synced
    Watch.ledger, Watch.deleting = world.ledger, world.judge_deletion
    Watch.instance_of, Watch.machine_of = world._instance_of, world._machine_of
    world.ledger.lies_in = world._lies_in
    kernel.observe = world.judge
    logging.disable(logging.CRITICAL)
    try:
        with simulated():
            try:
                yield world
            finally:
                kernel.close()
                Running.kernel = None
                Disk.clear()
    finally:
        logging.disable(logging.NOTSET)
        shutil.rmtree(directory, ignore_errors=True)
