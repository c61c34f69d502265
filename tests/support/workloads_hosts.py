"""Three hosts that replicate their tablets, with workloads on them and a peer cluster that gets everything.

Arrives: a directory and a seed. Leaves: :class:`Trio`: kill, wipe, move away and stop a host while data is written, and
say how hosts, books and peer differ from what was acknowledged. Nothing outlives the test: supervisors end with it.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from bookkeeper.clock import SystemClock
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import TransientError
from bookkeeper.metadata import keys
from bookkeeper.rpc.contract.host_messages import ReplicaStanding, TabletReplicas
from bookkeeper.standalone.joining import join_cluster, local_directory
from tests.soak.takeover import has_ended
from tests.support.cluster import Cluster
from tests.support.workloads import LinkedList, Mix, Workload
from tests.support.workloads_books import leftovers, look
from tests.support.workloads_pair import SETTINGS as PAIR_SETTINGS
from tests.support.workloads_run import Loader, check_workload

FIRST = "host1"
HOSTS = (FIRST, "host2", "host3")
LIMIT_S = 120.0
PROPERTIES = {
    "table.replicas": "3",
    "table.flush.memtable_bytes": "32768",
    "table.compaction.segments_max": "4",
}
SETTINGS: dict[str, object] = {
    **PAIR_SETTINGS,
    "master.scan_interval_ms": 500,
    "standalone.hosts": len(HOSTS),
    "replicas.repair_after_ms": 2_000,
}
"""States are made, merged and named all the time; a host that is away is replaced soon, if there is one."""


@dataclass(slots=True)
class Trio:
    """A context manager: the cluster ``west`` of three hosts and the peer ``east`` of one run inside, tables are made
    and replicated, nothing is written yet.
    """

    directory: Path
    seed: int
    west: Cluster = field(init=False)
    east: Cluster = field(init=False)
    loaders: list[Loader] = field(default_factory=list)
    _cleanup: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        with ExitStack() as cleanup:
            self.west = Cluster(self.directory / "west", "west", 1, overrides=SETTINGS)
            self.east = Cluster(self.directory / "east", "east", 1, overrides=PAIR_SETTINGS)
            for cluster in (self.west, self.east):
                cleanup.callback(cluster.stop)
                cluster.launch()
            for cluster in (self.west, self.east):
                cluster.wait_ready()
            self._make_tables()
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def _make_tables(self) -> None:
        workloads: list[Workload] = [LinkedList(self.seed, splits=(b"8",)), Mix(self.seed)]
        for workload in workloads:
            tables = self.west.client.tables
            tables.create(workload.table, workload.splits, workload.groups, PROPERTIES)
            self.east.client.tables.create(workload.table, workload.splits, workload.groups)
        self.west.client.replication.define_cluster("east", self.east.quorum)
        for workload in workloads:
            self.west.client.replication.enable(workload.table, "east")
        self.loaders = [Loader(self.west.client, workload, SystemClock()) for workload in workloads]

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
            loader.wait_acknowledged(count, LIMIT_S)

    # ---- hosts

    def leader(self) -> str:
        """A further host that leads a tablet; the first host is killed as long as it leads them all."""
        found: list[str] = []

        def is_another() -> bool:
            leaders = [one.host for tablet in self.replicas() for one in tablet.replicas if one.leads]
            found[:] = [host for host in leaders if host != FIRST]
            if leaders and not found:
                role = _role(FIRST)
                self.west.wait_restarted(role, self.west.kill9(role))
            return bool(found)

        self.west.wait_until(is_another, "leader on a further host", LIMIT_S)
        self.wait_live(set(HOSTS))
        return found[0]

    def kill(self, host: str) -> None:
        """End a host's tserver as a crash would; the supervisor starts it again at once."""
        self.west.kill9(_role(host))

    @contextmanager
    def away(self, host: str) -> Iterator[None]:
        """A further host crashes, and its directory is away while the block runs."""
        home = local_directory(self.west.settings, host)
        elsewhere = home.with_name(f"{host}-away")
        pid = self.west.pid(_role(host))
        os.kill(pid, signal.SIGSTOP)
        home.rename(elsewhere)
        os.kill(pid, signal.SIGKILL)
        try:
            self.wait_live(set(HOSTS) - {host})
            yield
        finally:
            elsewhere.rename(home)
        self.wait_live(set(HOSTS))

    @contextmanager
    def wiped(self, host: str) -> Iterator[None]:
        """A further host crashes and loses its directory; after the block it is back with an empty disk."""
        home = local_directory(self.west.settings, host)
        self.kill(host)
        shutil.rmtree(home.rename(home.with_name(f"{host}-lost")))  # at once: the process starts again soon
        self.wait_live(set(HOSTS) - {host})
        yield
        join_cluster(home, self.west.directory, host, overrides={"standalone.processes": ["tserver"]})
        self.wait_live(set(HOSTS))

    @contextmanager
    def stopped(self, host: str) -> Iterator[None]:
        """A host's tserver stands still beyond its lease; after the block it goes on without a session, and ends. The
        supervisor stands still, too: it would kill the process first.
        """
        victim = psutil.Process(self.west.pid(_role(host)))
        supervisor = victim.parent()
        assert supervisor is not None
        supervisor.suspend()
        try:
            victim.suspend()
            self.wait_live(set(HOSTS) - {host})
            yield
            victim.resume()
            self.west.wait_until(lambda: has_ended(victim), f"end of {host} without a session", LIMIT_S)
        finally:
            supervisor.resume()
        self.wait_live(set(HOSTS))

    def wait_live(self, hosts: set[str]) -> None:
        """Return when exactly these hosts have a session."""
        self.west.wait_until(lambda: self.live() == hosts, f"live hosts {sorted(hosts)}", LIMIT_S)

    def live(self) -> set[str]:
        """The hosts with a live session."""
        with closing(open_coordination(self.west.settings)) as coordination:
            sessions = coordination.sessions("tserver")
        return {session.host.name for session in sessions if session.alive and session.host is not None}

    # ---- replicas

    def replicas(self) -> Sequence[TabletReplicas]:
        """The replicas of all tablets; none while the master changes."""
        client = self.west.client
        try:
            ids = [client.tables.get(loader.workload.table).table_id for loader in self.loaders]
            return [tablet for table_id in ids for tablet in client.hosts.replicas(table_id)]
        except TransientError:
            return []

    def wait_voting(self) -> None:
        """Return when each host votes for each tablet and holds something of it, also while data is written; raises
        AssertionError that names what was not repaired.
        """
        self._wait_none(lambda: self._lacking(lambda one, _: one.held is not None), "not repaired")

    def wait_whole(self) -> None:
        """Return when each host votes for each tablet and holds all files of the named state; raises AssertionError
        that names which one does not.
        """
        self._wait_none(lambda: self._lacking(_has_named), "not copied")

    def _lacking(self, suffices: Callable[[ReplicaStanding, int], bool]) -> list[str]:
        tablets = self.replicas()
        lines = [] if tablets else ["the master does not answer"]
        for tablet in tablets:
            voters = {one.host for one in tablet.replicas if one.role == "voter" and suffices(one, tablet.named)}
            lines += [f"{tablet}: not on {host}" for host in HOSTS if host not in voters]
        return lines

    # ---- afterwards

    def check(self) -> None:
        """Everything is on both clusters, cell by cell, and nothing else is."""
        for loader in self.loaders:
            left = self.west.client.replication.wait(loader.workload.table, "east", timeout_ms=int(LIMIT_S * 1_000))
            assert not left, f"not replicated after {LIMIT_S:.0f} s: {left}"
        clients = (self.west.client, self.east.client)
        problems = [line for loader in self.loaders for line in check_workload(loader, *clients)]
        assert not problems, "\n".join(problems)

    def wait_settled(self) -> None:
        """Return when books and shared directories have nothing that is not needed; raises AssertionError if not. What
        the books have for deletion goes after a time that is longer than a test.
        """
        self._wait_none(self._leftovers, "left behind")

    def _leftovers(self) -> list[str]:
        lines: list[str] = []
        for cluster in (self.west, self.east):
            for loader in self.loaders:
                cluster.client.tables.flush(loader.workload.table)
            view = look(cluster.settings)
            going = [row.key.removeprefix(keys.DEL_PREFIX) for row in view.rows if row.key.startswith(keys.DEL_PREFIX)]
            names = [name.decode() for name in going]
            lines += [line for line in leftovers(view) if not any(name in line for name in names)]
        return lines

    def _wait_none(self, lines: Callable[[], list[str]], what: str) -> None:
        clock = SystemClock()
        deadline_ns = clock.boot_ns() + int(LIMIT_S * 1e9)
        found: list[str] = []

        def is_over() -> bool:
            found[:] = lines()
            return not found or clock.boot_ns() > deadline_ns

        self.west.wait_until(is_over, "end of the look", 2 * LIMIT_S)
        assert not found, f"{what} after {LIMIT_S:.0f} s:\n" + "\n".join(found)


def _role(host: str) -> str:
    return "tserver1" if host == FIRST else f"{host}.tserver1"


def _has_named(one: ReplicaStanding, named: int) -> bool:
    return one.held is not None and (named == 0 or named in one.held.complete)
