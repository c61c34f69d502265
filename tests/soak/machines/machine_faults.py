"""The faults of a plan at clusters on machines; each is healed when its step ends.

What systemd would start again, the soak does: supervisors, ZooKeeper servers, HBase, and all of them after a boot.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.soak.machines.machine_plan import CLOCK_MS, MachineFault, MachineStep
from tests.soak.trace import Trace
from tests.support.clusters_on_machines import ClustersOnMachines

KILL_MS = 50
"""Between two looks for a master that was started."""


@dataclass(slots=True)
class MachineFaults:
    """Executes one step after the other."""

    clusters: ClustersOnMachines
    trace: Trace

    def do(self, step: MachineStep) -> None:
        """Write the batches before it, do it, and heal it. Raises BookkeeperError, AssertionError, OSError."""
        if step.before:
            self.clusters.wait_written(step.before)
        self.trace.say(f"{self.clusters.written()}  {step}")
        clusters, host = self.clusters, self.clusters.hosts[step.machine]
        momentary: dict[MachineFault, Callable[[], object]] = {
            MachineFault.KILL: lambda: host.signal(step.role, signal.SIGKILL),
            MachineFault.KILL_SUPERVISOR: lambda: clusters.restart_supervisor(step.machine),
            MachineFault.KILL_LEADER: lambda: clusters.restart_zookeeper(clusters.zookeeper_that("leader")),
            MachineFault.KILL_FOLLOWER: lambda: clusters.restart_zookeeper(clusters.zookeeper_that("follower")),
            MachineFault.KILL_BOOKS: clusters.restart_books,
            MachineFault.NO_MASTERS: lambda: self._keep_masters_away(step.lasts_ms),
            MachineFault.KILL_PEER: lambda: clusters.peer.signal(_of_peer(step.role), signal.SIGKILL),
        }
        if step.fault in momentary:
            momentary[step.fault]()
            return
        with self._lasting(step):
            self._pass(step.lasts_ms)
        self.trace.say(f"{self.clusters.written()}  over: {step}")

    @contextmanager
    def _lasting(self, step: MachineStep) -> Iterator[None]:
        clusters, host, machines = self.clusters, self.clusters.hosts[step.machine], self.clusters.machines
        if step.fault is MachineFault.POWER:
            clusters.wait_hosts()
            clusters.pull(step.machine)
            yield
            clusters.boot(step.machine)
        elif step.fault is MachineFault.STOP:
            pid = host.signal(step.role, signal.SIGSTOP)
            yield
            host.send(pid, signal.SIGCONT)
        elif step.fault is MachineFault.STOP_SUPERVISOR:
            with clusters.supervisor_stopped(step.machine):
                yield
        elif step.fault is MachineFault.STOP_MACHINE:
            with clusters.machine_stopped(step.machine):
                yield
        elif step.fault is MachineFault.STOP_BOOKS:
            with clusters.books_stopped():
                yield
        elif step.fault is MachineFault.STOP_LEADER:
            with clusters.zookeepers[clusters.zookeeper_that("leader")].stopped():
                yield
        elif step.fault is MachineFault.CUT_ZOOKEEPER:
            with clusters.cut_from_zookeeper(step.machine):
                yield
        elif step.fault in (MachineFault.CLOCK_AHEAD, MachineFault.CLOCK_BACK):
            host.set_clock(CLOCK_MS if step.fault is MachineFault.CLOCK_AHEAD else -CLOCK_MS)
            yield
            host.set_clock(0)
        else:
            self._cut(step)
            yield
            machines.join(host.machine)

    def _cut(self, step: MachineStep) -> None:
        machines, machine = self.clusters.machines, self.clusters.hosts[step.machine].machine
        if step.fault is MachineFault.CUT_PEER:
            machines.cut(machine, self.clusters.peer.machine)
        elif step.fault is MachineFault.CUT_BOOKS:
            assert self.clusters.books.machine is not None
            machines.cut(machine, self.clusters.books.machine)
        else:
            assert step.fault is MachineFault.CUT_ONE_WAY
            machines.cut_one_way(machine, machines.all[step.other])

    def _keep_masters_away(self, lasts_ms: int) -> None:
        clock, never = self.clusters.clock, threading.Event()
        end_ns = clock.boot_ns() + lasts_ms * 1_000_000
        while clock.boot_ns() < end_ns:
            for host in self.clusters.hosts:
                host.signal("master", signal.SIGKILL)
            clock.wait(never, KILL_MS)

    def _pass(self, ms: int) -> None:
        """Let time pass: it is the length of the fault."""
        self.clusters.clock.wait(threading.Event(), ms)


def _of_peer(role: str) -> str:
    """A process of the peer, which has one tserver, and nothing to replay."""
    return role if role == "master" else "tserver1"
