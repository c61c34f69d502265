"""A cluster of three hosts whose hosts die, are away, wiped, stopped, filled and drained while data is written.

Arrives: a running cluster. Leaves: :class:`HostedCluster`: its faults, and the replicas that are not what the books
name.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import TransientError
from bookkeeper.master.status_report import NEEDS_HELP, WARNING
from bookkeeper.rpc.contract.messages import ReplicaStanding, TabletReplicas
from bookkeeper.standalone.joining import join_cluster, local_directory
from tests.soak.takeover import has_ended
from tests.support.cluster import Cluster
from tests.support.small_disk import SmallDisk
from tests.support.standstill import crash_without, stand_still
from tests.support.workloads_books import ClusterView, look
from tests.support.workloads_clusters import READY_S

FIRST = "host1"
HOSTS = (FIRST, "host2", "host3")
MOVABLE = "host2"
"""The host whose directory may be renamed and destroyed."""
SMALL = "host3"
"""The host whose directory is a small disk, where this user may mount one."""
AWAY = f"{MOVABLE}-away"
"""The name of a directory that is away."""
REPLICAS = "replicas"
"""The directory of a host's own disk in its directory."""
ROOM_LEFT_BYTES = 8 << 10
"""Less than a segment. A host that tries to write one frees as much again and again."""


@dataclass(slots=True)
class HostedCluster:
    """The hosts of one cluster. ``tables``: those with load; ``disk``: that of :data:`SMALL`."""

    cluster: Cluster
    tables: Sequence[str]
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

    def roots(self) -> list[Path]:
        """The directories that segments lie below: of the cluster's Volume, and of each host's own disk."""
        return [self.cluster.directory, *(home / REPLICAS for home in self.homes().values())]

    def has(self, log: str) -> bool:
        """Whether a log is on the Volume or on the disk of a host, also of one that is away."""
        away = self.home(MOVABLE).with_name(AWAY) / REPLICAS
        twice = 2 * [*self.roots(), away]  # a directory that comes back meanwhile is found by the second look
        return any((root / log).exists() for root in twice)

    def process(self, host: str) -> psutil.Process:
        """The tserver of a host."""
        return psutil.Process(self.cluster.pid(role_of(host)))

    def kill(self, host: str) -> None:
        """End a host's tserver as a crash would; the supervisor starts it again at once."""
        self._signal(role_of(host), signal.SIGKILL)

    def kill_all(self) -> None:
        """As :meth:`kill`, of all hosts."""
        for host in HOSTS:
            self.kill(host)

    def kill_master(self) -> None:
        """As :meth:`kill`, of the master."""
        self._signal("master", signal.SIGKILL)

    def _signal(self, role: str, number: signal.Signals) -> int:
        """Signal the process of a role, once there is one again after a kill before; its pid."""
        pid = 0

        def is_sent() -> bool:
            nonlocal pid
            pid = self.cluster.pid(role)
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                return False
            return True

        self.cluster.wait_until(is_sent, f"process of {role}", READY_S)
        return pid

    @contextmanager
    def away(self) -> Iterator[None]:
        """:data:`MOVABLE` crashes, and its directory is away while the block runs."""
        home = self.home(MOVABLE)
        elsewhere = home.with_name(AWAY)
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
        """A host crashes and loses all replicas and logs on its disk; the supervisor starts it again at once."""
        replicas = self.home(host) / REPLICAS
        lost = replicas.with_name(f"{REPLICAS}-lost")
        self._lose(host, replicas, lost)
        shutil.rmtree(lost)

    def forget(self, host: str, incarnation: str) -> None:
        """Accept that the logs on a disk that is gone are lost; they have nothing that anybody needs."""
        self.cluster.wait_until(
            lambda: self.incarnations().get(host) != incarnation, f"end of the session of {host}", READY_S
        )
        self.cluster.client.hosts.forget(host)

    def _lose(self, host: str, directory: Path, elsewhere: Path) -> None:
        crash_without(self._signal(role_of(host), signal.SIGSTOP), directory, elsewhere)

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
            stand_still(victim.pid, self.cluster.settings)
            self.wait_live(set(HOSTS) - {host})
            yield
            victim.resume()
            self.cluster.wait_until(lambda: has_ended(victim), f"end of {host} without a session", READY_S)
        finally:
            victim.resume()
            supervisor.resume()
        self.wait_live(set(HOSTS))

    @contextmanager
    def halted(self, *hosts: str) -> Iterator[None]:
        """Tservers of hosts stand still while the block runs, which takes less than their lease, and then go on."""
        victims = [self.process(host) for host in hosts]
        try:
            for victim in victims:
                stand_still(victim.pid, self.cluster.settings)
            yield
        finally:
            for victim in victims:
                victim.resume()

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
        tablets = self.replicas()
        ours = [(t, one) for t in tablets for one in t.replicas if one.host == host]
        return bool(tablets) and all(not one.leads and len(t.replicas) == len(HOSTS) for t, one in ours)

    # ---- waits

    def wait_live(self, hosts: set[str]) -> None:
        """Return when exactly these hosts have a session."""
        self.cluster.wait_until(lambda: self.live() == hosts, f"live hosts {sorted(hosts)}", READY_S)

    def live(self) -> set[str]:
        """The hosts with a live session."""
        return set(self.incarnations())

    def incarnations(self) -> dict[str, str]:
        """The hosts with a live session, and the incarnations of their disks."""
        with closing(open_coordination(self.cluster.settings)) as coordination:
            sessions = coordination.sessions("tserver")
        live = [session.host for session in sessions if session.alive and session.host is not None]
        return {host.name: host.incarnation for host in live}

    def reign(self) -> int:
        """The epoch of the leading master; 0 while none leads."""
        with closing(open_coordination(self.cluster.settings)) as coordination:
            leader = coordination.leader()
        return 0 if leader is None else leader.epoch

    # ---- replicas

    def replicas(self) -> Sequence[TabletReplicas]:
        """The replicas of all tablets; none while the master changes."""
        client = self.cluster.client
        try:
            ids = [client.tables.get(table).table_id for table in self.tables]
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
            len(voters) == _wanted(tablet) and all(one.held is not None for one in voters)
            for tablet in tablets
            for voters in [_voters(tablet)]
        )

    def lacking(self) -> list[str]:
        """The tablets of which other hosts vote than their table wants, of which a voter lacks a file of the named
        state or has a newer one, or that are served without a log; one line each. A replica that is to leave may stay
        for a while.
        """
        tablets = self.replicas()
        lines = [] if tablets else ["the master does not answer"]
        for tablet in tablets:
            wanted, voters = _wanted(tablet), _voters(tablet)
            if len(voters) != wanted:
                lines.append(f"{tablet.extent}: {len(voters)} voters of {len(tablet.replicas)} replicas, not {wanted}")
            lines += [f"{tablet.extent}: {_said(one, tablet)}" for one in voters if not _is_equal(one, tablet.named)]
            lines += [f"{tablet.extent} is served without {log}" for log in tablet.lost_logs]
        return lines

    def look(self) -> ClusterView:
        """The books, and the files of the cluster and of all hosts' logs."""
        return look(self.cluster.settings, [home / REPLICAS for home in self.homes().values()])

    def asked_of_people(self) -> list[str]:
        """Facts of the status that an operator has to act on, and ranges in quarantine."""
        client = self.cluster.client
        facts = client._master.call("status")
        lines = [f"{name} {text}" for name, text in facts.items() if name.startswith((WARNING, NEEDS_HELP))]
        for table in self.tables:
            lines += [f"in quarantine: {found}" for found in client.replication.quarantine(table)]
        return lines


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


def _wanted(tablet: TabletReplicas) -> int:
    """How many hosts are to vote; none for a tablet whose segments lie on the cluster's Volume."""
    return tablet.wanted if tablet.wanted > 1 else 0
