"""Does to a pair of clusters what a plan says, and heals it again.

Arrives: steps. Leaves: a pair that is whole again after :meth:`Faults.heal`. Signals go only to processes that the
pair's supervisors started, by the pids that they wrote down.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from dataclasses import dataclass, field

import psutil

from bookkeeper.config import Settings
from bookkeeper.errors import TransientError
from tests.soak.plan import Fault, Step
from tests.soak.trace import Trace
from tests.support.cluster import Cluster
from tests.support.workloads_pair import READY_S, Pair, jvms_of

SPARE_MS = 1_000


class InvariantError(Exception):
    """Something that must never happen did."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """A stopped process, since when it is (boot clock), and whether it had a session: only then it has to end."""

    side: str
    role: str
    process: psutil.Process
    since_ns: int
    had_session: bool


@dataclass(slots=True)
class Faults:
    """Executes one step after the other."""

    pair: Pair
    trace: Trace
    frozen: list[Frozen] = field(default_factory=list)

    def do(self, step: Step) -> None:
        """Write the batches before it, then do it."""
        if step.batches and not self._is_out("west"):
            self.pair.wait_written(step.batches)
        self.trace.say(f"{self.pair.written()}  {step}")
        cluster = self.pair.clusters[step.side]
        match step.fault:
            case Fault.KILL:
                self._signal(cluster, step.role, signal.SIGKILL)
            case Fault.RESTART:
                self._signal(cluster, step.role, signal.SIGTERM)
            case Fault.KILL_JVM:
                for jvm in jvms_of(cluster.pid(step.role)):
                    _send(jvm, signal.SIGKILL)
            case Fault.FREEZE:
                self._freeze(step.side, step.role)
            case Fault.HICCUP:
                self._hiccup(cluster, step)
            case Fault.CRASH:
                self.frozen = [frozen for frozen in self.frozen if frozen.side != step.side]
                cluster.crash()
                cluster.launch()
            case Fault.FLUSH:
                self._flush(step.side)

    def heal(self) -> None:
        """Let every process be there again: those that were stopped beyond their lease end when they go on."""
        for frozen in self.frozen:
            self._wait_out(frozen)
            self.trace.say(f"continue: {frozen.side} {frozen.role}")
            _send(frozen.process, signal.SIGCONT)
        for frozen in self.frozen:
            if not frozen.had_session:
                continue
            try:
                frozen.process.wait(READY_S)
            except psutil.TimeoutExpired:
                text = f"{frozen.side} {frozen.role} (pid {frozen.process.pid}) lost its lease and did not end"
                raise InvariantError(text) from None
        self.frozen.clear()
        for cluster in self.pair.clusters.values():
            cluster.wait_ready(READY_S)

    def release(self) -> None:
        """Let nothing stay stopped, whatever happened."""
        for frozen in self.frozen:
            _send(frozen.process, signal.SIGCONT)

    def _is_out(self, side: str) -> bool:
        """Whether load may stand still, because a process of this side that writes need is stopped."""
        return any(frozen.side == side and frozen.role != "replay" for frozen in self.frozen)

    def _signal(self, cluster: Cluster, role: str, number: int) -> None:
        process = _process(cluster.pid(role))
        if process is not None:
            _send(process, number)

    def _freeze(self, side: str, role: str) -> None:
        process = _process(self.pair.clusters[side].pid(role))
        if process is not None and process.pid not in {frozen.process.pid for frozen in self.frozen}:
            _send(process, signal.SIGSTOP)
            had_session = _has_session(process, self.pair.clusters[side].settings)
            self.frozen.append(Frozen(side, role, process, self.pair.clock.boot_ns(), had_session))

    def _hiccup(self, cluster: Cluster, step: Step) -> None:
        """The only wait by time: it is the length of the fault."""
        process = _process(cluster.pid(step.role))
        if process is None or process.pid in {frozen.process.pid for frozen in self.frozen}:
            return
        _send(process, signal.SIGSTOP)
        try:
            self.pair.clock.wait(threading.Event(), step.pause_ms)
        finally:
            _send(process, signal.SIGCONT)

    def _flush(self, side: str) -> None:
        if any(frozen.side == side for frozen in self.frozen):
            self.trace.say("not flushed: a process that it needs is stopped")
            return
        for loader in self.pair.loaders:
            try:
                self.pair.clusters[side].client.tables.flush(loader.workload.table)
            except TransientError as error:
                self.trace.say(f"not flushed: {error.message}")

    def _wait_out(self, frozen: Frozen) -> None:
        """Wait until the lease is over for everybody, counted from the stop: that is the length of the fault."""
        coordination = self.pair.clusters[frozen.side].settings.coordination
        over_ns = (coordination.session_lease_ms + coordination.session_margin_ms + SPARE_MS) * 1_000_000
        left_ms = (frozen.since_ns + over_ns - self.pair.clock.boot_ns()) / 1e6
        if left_ms > 0:
            self.pair.clock.wait(threading.Event(), left_ms)


def _process(pid: int) -> psutil.Process | None:
    """The process, unless it has ended."""
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _has_session(process: psutil.Process, settings: Settings) -> bool:
    """Whether the process holds a session of its cluster: it has the session's file open to renew it."""
    directory = f"{settings.coordination_dir}/sessions/"
    try:
        return any(file.path.startswith(directory) and file.mode == "r+" for file in process.open_files())
    except psutil.Error:
        return False


def _send(process: psutil.Process, number: int) -> None:
    """A signal to exactly this process; nothing when it has ended. psutil compares its start time first."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
