"""Two clusters of three hosts each that replicate their tablets, with workloads on one of them that the other one gets.

Arrives: a directory and a seed. Leaves: :class:`Trios`, and for each cluster :class:`HostedCluster`: kill, wipe, move
away, stop and fill a host while data is written, and say which replicas are not what the books name. Nothing outlives
the test: supervisors end with it.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import TransientError
from bookkeeper.master.status_report import NEEDS_HELP, WARNING
from bookkeeper.metadata import keys
from bookkeeper.rpc.contract.host_messages import ReplicaStanding, TabletReplicas
from bookkeeper.standalone.joining import join_cluster, local_directory
from tests.soak.takeover import has_ended
from tests.support.cluster import Cluster
from tests.support.small_disk import NoMountError, SmallDisk, small_disk
from tests.support.workloads import LinkedList, Mix, Workload
from tests.support.workloads_books import leftovers, look
from tests.support.workloads_clusters import READY_S, SETTINGS, TwoClusters
from tests.support.workloads_run import Loader

FIRST = "host1"
HOSTS = (FIRST, "host2", "host3")
MOVABLE = "host2"
"""The host whose directory may be renamed and destroyed."""
SMALL = "host3"
"""The host whose directory is a small disk, where this user may mount one."""
DISK_BYTES = 256 << 20
ROOM_LEFT_BYTES = 8 << 10
"""Less than a segment. A host that tries to write one frees as much again and again."""
LOCKED_S = 2.0
"""A running process has a lock of a store for less."""

PROPERTIES = {
    "table.flush.memtable_bytes": "32768",
    "table.compaction.segments_max": "4",
}
REPLICAS = {"links": 3, "mix": 2, "plain": 1}
"""Replicas of each table. With two, a drained or lost host is replaced by the third one."""
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
class HostedCluster:
    """The hosts of one cluster. ``replicas_of``: how many replicas each table has; ``disk``: that of :data:`SMALL`."""

    cluster: Cluster
    replicas_of: Mapping[str, int]
    disk: SmallDisk | None
    clock: Clock = field(default_factory=SystemClock)

    # ---- faults

    def leader(self) -> str:
        """A host that leads a tablet; the first host only if it leads them all."""
        found: set[str] = set()

        def is_led() -> bool:
            found.update(one.host for tablet in self.replicas() for one in tablet.replicas if one.leads)
            return bool(found)

        self.cluster.wait_until(is_led, "leader of a tablet", READY_S)
        return max(found)

    def home(self, host: str) -> Path:
        """The directory of a host."""
        return self.cluster.directory if host == FIRST else local_directory(self.cluster.settings, host)

    def homes(self) -> dict[str, Path]:
        """The directories of all hosts."""
        return {host: self.home(host) for host in HOSTS}

    def process(self, host: str) -> psutil.Process:
        """The tserver of a host."""
        return psutil.Process(self.cluster.pid(role_of(host)))

    def kill(self, host: str) -> None:
        """End a host's tserver as a crash would; the supervisor starts it again at once."""
        self.cluster.kill9(role_of(host))

    def kill_all(self) -> None:
        """As :meth:`kill`, of all hosts."""
        for host in HOSTS:
            self.kill(host)

    def kill_master(self) -> None:
        """As :meth:`kill`, of the master."""
        self.cluster.kill9("master")

    @contextmanager
    def away(self) -> Iterator[None]:
        """:data:`MOVABLE` crashes, and its directory is away while the block runs."""
        home = self.home(MOVABLE)
        elsewhere = home.with_name(f"{MOVABLE}-away")
        self._lose(MOVABLE, home, elsewhere)
        try:
            self.wait_live(set(HOSTS) - {MOVABLE})
            yield
        finally:
            elsewhere.rename(home)
        self.wait_live(set(HOSTS))

    @contextmanager
    def destroyed(self) -> Iterator[None]:
        """:data:`MOVABLE` crashes and loses its directory; after the block it is back with an empty disk."""
        home = self.home(MOVABLE)
        lost = home.with_name(f"{MOVABLE}-lost")
        self._lose(MOVABLE, home, lost)
        shutil.rmtree(lost)
        try:
            self.wait_live(set(HOSTS) - {MOVABLE})
            yield
        finally:
            overrides = {"standalone.processes": ["tserver"]}
            join_cluster(home, self.cluster.directory, MOVABLE, overrides=overrides)
        self.wait_live(set(HOSTS))

    def wipe(self, host: str) -> None:
        """A host crashes and loses all its replicas; the supervisor starts it again at once."""
        replicas = self.home(host) / "replicas"
        lost = replicas.with_name("replicas-lost")
        self._lose(host, replicas, lost)
        shutil.rmtree(lost)

    def _lose(self, host: str, directory: Path, elsewhere: Path) -> None:
        """Kill a host's tserver, which does nothing any more from the moment in which the directory is gone."""
        pid = self.cluster.pid(role_of(host))
        os.kill(pid, signal.SIGSTOP)
        directory.rename(elsewhere)
        os.kill(pid, signal.SIGKILL)

    @contextmanager
    def stopped(self, host: str) -> Iterator[None]:
        """A host's tserver stands still beyond its lease; after the block it goes on without a session, and ends. The
        supervisor stands still, too: it would kill the process first.
        """
        victim = self.process(host)
        supervisor = victim.parent()
        assert supervisor is not None
        supervisor.suspend()
        try:
            self._suspend(victim)
            self.wait_live(set(HOSTS) - {host})
            yield
            victim.resume()
            self.cluster.wait_until(lambda: has_ended(victim), f"end of {host} without a session", READY_S)
        finally:
            victim.resume()
            supervisor.resume()
        self.wait_live(set(HOSTS))

    def _suspend(self, victim: psutil.Process) -> None:
        """Stop a process that has no lock of a store: with one it would stop the cluster, until its supervisor, which
        stands still here, kills it.
        """
        settings = self.cluster.settings
        stores = (settings.directory / "metadata.db", settings.coordination_dir / "coordination.db")
        victim.suspend()
        while not all(map(_takes_writes, stores)):
            victim.resume()
            victim.suspend()

    @contextmanager
    def full(self) -> Iterator[None]:
        """Inside the block the disk of :data:`SMALL` has no room for a segment."""
        assert self.disk is not None, "there is no small disk"
        self.disk.fill(ROOM_LEFT_BYTES)
        try:
            yield
        finally:
            self.disk.release()

    @contextmanager
    def drained(self, host: str) -> Iterator[None]:
        """Inside the block a host leads nothing, and has only the replicas that no other host may get."""
        hosts = self.cluster.client.hosts
        hosts.drain(host, True)
        try:
            self.cluster.wait_until(lambda: self._is_drained(host), f"drained {host}", READY_S)
            yield
        finally:
            hosts.drain(host, False)

    def _is_drained(self, host: str) -> bool:
        ours = [(t, one) for t in self.replicas() for one in t.replicas if one.host == host]
        return bool(self.replicas()) and all(not one.leads and len(t.replicas) == len(HOSTS) for t, one in ours)

    # ---- waits

    def wait_live(self, hosts: set[str]) -> None:
        """Return when exactly these hosts have a session."""
        self.cluster.wait_until(lambda: self.live() == hosts, f"live hosts {sorted(hosts)}", READY_S)

    def live(self) -> set[str]:
        """The hosts with a live session."""
        with closing(open_coordination(self.cluster.settings)) as coordination:
            sessions = coordination.sessions("tserver")
        return {session.host.name for session in sessions if session.alive and session.host is not None}

    # ---- replicas

    def replicas(self) -> Sequence[TabletReplicas]:
        """The replicas of all tablets; none while the master changes."""
        client = self.cluster.client
        try:
            ids = [client.tables.get(table).table_id for table, count in self.replicas_of.items() if count > 1]
            return [tablet for table_id in ids for tablet in client.hosts.replicas(table_id)]
        except TransientError:
            return []

    def wait_voting(self) -> None:
        """Return when as many hosts vote for each tablet as its table wants, and each has something of it, also while
        data is written.
        """
        self.cluster.wait_until(self._is_voting, f"copies on all hosts of {self.cluster.directory.name}", READY_S)

    def _is_voting(self) -> bool:
        tablets = self.replicas()
        return bool(tablets) and all(
            len(voters) == self._wanted(tablet) and all(one.held is not None for one in voters)
            for tablet in tablets
            for voters in [_voters(tablet)]
        )

    def lacking(self) -> list[str]:
        """The tablets of which other hosts vote than their table wants, or of which a voter lacks a file of the named
        state or has a newer one; one line each. A replica that is to leave may stay for a while.
        """
        tablets = self.replicas()
        lines = [] if tablets else ["the master does not answer"]
        for tablet in tablets:
            wanted = self._wanted(tablet)
            voters = _voters(tablet)
            if len(voters) != wanted:
                lines.append(f"{tablet.extent}: {len(voters)} voters of {len(tablet.replicas)} replicas, not {wanted}")
            lines += [f"{tablet.extent}: {_said(one, tablet)}" for one in voters if not _is_equal(one, tablet.named)]
        return lines

    def _wanted(self, tablet: TabletReplicas) -> int:
        names = {self.cluster.client.tables.get(table).table_id: count for table, count in self.replicas_of.items()}
        return names[tablet.extent.table_id]

    def asked_of_people(self) -> list[str]:
        """Facts of the status that an operator has to act on, and ranges in quarantine."""
        client = self.cluster.client
        facts = client._master.call("status")
        lines = [f"{name} {text}" for name, text in facts.items() if name.startswith((WARNING, NEEDS_HELP))]
        for table in self.replicas_of:
            lines += [f"in quarantine: {found}" for found in client.replication.quarantine(table)]
        return lines


@dataclass(slots=True)
class Trios(TwoClusters):
    """Both clusters have three hosts."""

    hosted: dict[str, HostedCluster] = field(default_factory=dict)
    """By the cluster's name."""
    no_disk: str = ""
    """The reason why no small disk can be mounted."""
    _disks: dict[str, SmallDisk] = field(default_factory=dict)

    def _make(self) -> None:
        self.west, self.east = (
            Cluster(self.directory / name, name, 1, overrides=HOST_SETTINGS) for name in ("west", "east")
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
                properties = {**PROPERTIES, "table.replicas": str(REPLICAS[workload.table])}
                cluster.client.tables.create(workload.table, workload.splits, workload.groups, properties)
        self._replicate(workloads)
        self.loaders = [Loader(self.west.client, workload, self.clock) for workload in workloads]
        for name, cluster in self.clusters.items():
            self.hosted[name] = HostedCluster(cluster, REPLICAS, self._disks.get(name))

    def wait_tidy(self) -> None:
        """Return when books and shared directories have nothing that is not needed, besides files that go after a time
        which is longer than a test; raises AssertionError that names it. Nothing is being written.
        """
        self.wait_none(self._untidy, "left behind")

    def _untidy(self) -> list[str]:
        self.flush()
        lines: list[str] = []
        for cluster in self.clusters.values():
            view = look(cluster.settings)
            going = [row.key.removeprefix(keys.DEL_PREFIX) for row in view.rows if row.key.startswith(keys.DEL_PREFIX)]
            names = [name.decode() for name in going]
            lines += [line for line in leftovers(view) if not any(name in line for name in names)]
        return lines

    def wait_equal(self) -> None:
        """Return when each replica has exactly the named state, after a flush; raises AssertionError that names the
        ones that do not get there. Nothing is being written.
        """
        self.flush()
        self.wait_none(lambda: [f"{n}: {line}" for n, one in self.hosted.items() for line in one.lacking()], "unequal")


def _takes_writes(store: Path) -> bool:
    with closing(sqlite3.connect(store, timeout=LOCKED_S)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
            database.rollback()
        except sqlite3.OperationalError:
            return False
    return True


def role_of(host: str) -> str:
    """The role of a host's tserver."""
    return "tserver1" if host == FIRST else f"{host}.tserver1"


def _voters(tablet: TabletReplicas) -> list[ReplicaStanding]:
    return [one for one in tablet.replicas if one.role == "voter"]


def _is_equal(one: ReplicaStanding, named: int) -> bool:
    if named == 0:
        return one.held is not None
    return one.held is not None and one.held.root == named and named in one.held.complete


def _said(one: ReplicaStanding, tablet: TabletReplicas) -> str:
    held = one.held
    if held is None:
        return f"{one.host} has no replica of placement {one.placement}: {one.problem}"
    return f"{one.host} has state {held.root} and all files of {list(held.complete)}, the books name {tablet.named}"
