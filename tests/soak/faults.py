"""The faults of a plan at a pair of clusters, and their healing.

The pair is whole again after :meth:`Faults.heal`. Signals go only to processes that the
pair's supervisors started, by the pids that they wrote down.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from bookkeeper.config.sections import Settings
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.errors import TransientError
from bookkeeper.storage.wal.writing.seal import read_seal
from tests.soak.plan import Fault, Step
from tests.soak.takeover import has_ended, session_of, take_over
from tests.soak.tearing import tear
from tests.soak.trace import Trace
from tests.support.cluster import Cluster
from tests.support.hbase_home import HBaseHome
from tests.support.strait import Strait
from tests.support.volumes import MACHINE, name_at
from tests.support.without_masters import masters_away
from tests.support.workloads_clusters import READY_S
from tests.support.workloads_pair import Pair, jvms_of

SPARE_MS = 1_000
SAYS_FULL = " is full: "


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
    cut: set[str] = field(default_factory=set)
    """Sides that nothing reaches."""
    cut_since_ns: int = 0
    is_full: bool = False

    def do(self, step: Step) -> None:
        """Write the batches before it, then do it."""
        if step.batches and not self._is_out("west"):
            self.pair.wait_written(step.batches)
        self.trace.say(f"{self.pair.written()}  {step}")
        acts: dict[Fault, Callable[[Step], None]] = {
            Fault.KILL: lambda step: self._signal(step, signal.SIGKILL),
            Fault.RESTART: lambda step: self._signal(step, signal.SIGTERM),
            Fault.KILL_JVM: self._kill_jvm,
            Fault.FREEZE: self._freeze,
            Fault.HICCUP: self._hiccup,
            Fault.CRASH: self._crash,
            Fault.FLUSH: self._flush,
            Fault.RESET: lambda step: self._strait(step).reset(),
            Fault.DELAY: lambda step: self._strait(step).delay(step.pause_ms),
            Fault.CUT: self._cut,
            Fault.TEAR: self._tear,
            Fault.FILL: self._fill,
            Fault.DEPOSE: self._depose,
            Fault.NO_MASTERS: self._keep_masters_away,
            Fault.KILL_HBASE: lambda _: self._home.kill_hbase(),
            Fault.RESTART_HBASE: lambda _: self._home.restart_hbase(),
            Fault.STOP_HBASE: lambda step: self._stop_for(self._home.stop_hbase, step.pause_ms),
            Fault.KILL_THRIFT: lambda _: self._home.kill_thrift(),
            Fault.STOP_THRIFT: lambda step: self._stop_for(self._home.stop_thrift, step.pause_ms),
        }
        acts[step.fault](step)

    def heal(self) -> None:
        """Let every process be there again: those that were stopped beyond their lease end when they go on."""
        if self.cut_since_ns:
            self._wait_out("west", self.cut_since_ns)
        self._mend()
        for frozen in self.frozen:
            self._wait_out(frozen.side, frozen.since_ns)
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
        """Let nothing stay stopped, cut or full after any failure."""
        self._mend()
        for frozen in self.frozen:
            _send(frozen.process, signal.SIGCONT)

    def _is_out(self, side: str) -> bool:
        """Whether load may stand still, because something of this side that writes need is stopped, cut or full."""
        if side == "west" and (self.is_full or "west" in self.cut):
            return True
        return any(frozen.side == side and frozen.role != "replay" for frozen in self.frozen)

    def _process(self, cluster: Cluster, role: str) -> psutil.Process | None:
        """The process that was written down for a role, unless it has ended."""
        try:
            process = psutil.Process(cluster.pid(role))
            return process if str(cluster.directory) in process.cmdline() else None
        except psutil.Error:
            return None

    def _signal(self, step: Step, number: int) -> None:
        process = self._process(self.pair.clusters[step.side], step.role)
        if process is not None:
            _send(process, number)

    def _kill_jvm(self, step: Step) -> None:
        for jvm in jvms_of(self.pair.clusters[step.side].pid(step.role)):
            _send(jvm, signal.SIGKILL)

    def _crash(self, step: Step) -> None:
        self.frozen = [frozen for frozen in self.frozen if frozen.side != step.side]
        self.pair.clusters[step.side].crash()
        self.pair.clusters[step.side].launch()

    def _freeze(self, step: Step) -> None:
        cluster = self.pair.clusters[step.side]
        process = self._process(cluster, step.role)
        if process is not None and not self._is_frozen(process):
            _send(process, signal.SIGSTOP)
            had_session = _has_session(process, cluster.settings)
            self.frozen.append(Frozen(step.side, step.role, process, self.pair.clock.boot_ns(), had_session))

    def _is_frozen(self, process: psutil.Process) -> bool:
        return process.pid in {frozen.process.pid for frozen in self.frozen}

    def _hiccup(self, step: Step) -> None:
        """The only wait by time: it is the length of the fault."""
        process = self._process(self.pair.clusters[step.side], step.role)
        if process is None or self._is_frozen(process):
            return
        _send(process, signal.SIGSTOP)
        try:
            self.pair.clock.wait(threading.Event(), step.pause_ms)
        finally:
            _send(process, signal.SIGCONT)

    def _keep_masters_away(self, step: Step) -> None:
        """The wait is the length of the fault."""
        if self.is_full and step.side != "east":
            self.trace.say("not kept away: on a full disk, no supervisor writes down which master it started")
            return
        clusters = [cluster for name, cluster in self.pair.clusters.items() if step.side in ("", name)]
        with masters_away(clusters, self.pair.clock):
            self.pair.clock.wait(threading.Event(), step.pause_ms)

    @property
    def _home(self) -> HBaseHome:
        assert self.pair.home is not None, "the books are in SQLite"
        return self.pair.home

    def _stop_for(self, stop: Callable[[], None], pause_ms: int) -> None:
        """As :meth:`_hiccup`, of the home of the books."""
        stop()
        try:
            self.pair.clock.wait(threading.Event(), pause_ms)
        finally:
            self._home.resume()

    def _flush(self, step: Step) -> None:
        if self._lacks_something(step.side):
            self.trace.say("not flushed: a process that it needs is stopped, or the disk is full")
            return
        for loader in self.pair.loaders:
            try:
                self.pair.clusters[step.side].client.tables.flush(loader.workload.table)
            except TransientError as error:
                self.trace.say(f"not flushed: {error.message}")

    def _lacks_something(self, side: str) -> bool:
        return (self.is_full and side == "west") or any(frozen.side == side for frozen in self.frozen)

    def _mend(self) -> None:
        """Open both straits, empty the disk."""
        for strait in (self.pair.to_west, self.pair.to_east):
            strait.mend()
        self.cut.clear()
        self.cut_since_ns = 0
        if self.is_full and self.pair.disk is not None:
            self.trace.say(f"the disk has room again: {self.pair.disk.free_bytes()} bytes were left")
            self.pair.disk.release()
        self.is_full = False

    def _strait(self, step: Step) -> Strait:
        """The strait in front of a side: the writes to west pass it, or the shipments of west to east."""
        return self.pair.to_west if step.side == "west" else self.pair.to_east

    def _cut(self, step: Step) -> None:
        self._strait(step).cut()
        self.cut.add(step.side)
        self.cut_since_ns = self.pair.clock.boot_ns()

    def _fill(self, step: Step) -> None:
        """Fill until a process refuses writes and logs it, and then to the last byte."""
        disk, west = self.pair.disk, self.pair.clusters[step.side]
        if disk is None or self.is_full:
            self.trace.say(f"not filled: {self.pair.no_disk or 'it is full'}")
            return
        said = west.log_text("standalone").count(SAYS_FULL)
        self.is_full = True
        disk.fill(west.settings.tserver.disk_reserve_bytes // 2)
        west.wait_until(lambda: west.log_text("standalone").count(SAYS_FULL) > said, "word of the full disk", READY_S)
        disk.fill()

    def _tear(self, step: Step) -> None:
        """Kill a tserver, and tear its log before the master can recover it: the master is stopped meanwhile."""
        cluster = self.pair.clusters[step.side]
        process, master = self._process(cluster, step.role), self._process(cluster, "master")
        if process is None or (self.is_full and step.side == "west"):
            return
        stopped = [] if master is None or self._is_frozen(master) else [master]
        for each in stopped:
            _send(each, signal.SIGSTOP)
        try:
            session = _session_of(cluster, process.pid)
            _send(process, signal.SIGKILL)
            cluster.wait_until(lambda: has_ended(process), "its end")
            logs = sorted((cluster.settings.wal_dir / session).glob("*.wal")) if session else []
            torn = [tear(log, random.Random(str(step))) for log in logs if read_seal(MACHINE, name_at(log)) is None]
            self.trace.say(f"torn: {torn} bytes behind the logs of {session}")
        finally:
            for each in stopped:
                _send(each, signal.SIGCONT)

    def _depose(self, step: Step) -> None:
        cluster = self.pair.clusters[step.side]
        if self._lacks_something(step.side):
            self.trace.say("not deposed: something that takes over is stopped, or its disk is full")
            return
        cluster.wait_ready(READY_S)
        problem = take_over(cluster, step.role)
        if problem is not None:
            raise InvariantError(f"{step.side}: {problem}")

    def _wait_out(self, side: str, since_ns: int) -> None:
        """Wait until the lease is over on every clock, counted from the stop: that is the length of the fault."""
        coordination = self.pair.clusters[side].settings.coordination
        over_ns = (coordination.session_lease_ms + coordination.session_margin_ms + SPARE_MS) * 1_000_000
        left_ms = (since_ns + over_ns - self.pair.clock.boot_ns()) / 1e6
        if left_ms > 0:
            self.pair.clock.wait(threading.Event(), left_ms)


def _session_of(cluster: Cluster, pid: int) -> str | None:
    coordination = EmbeddedCoordination(cluster.settings.directory / "coordination", cluster.settings.coordination)
    try:
        return session_of(coordination, pid)
    finally:
        coordination.close()


def _has_session(process: psutil.Process, settings: Settings) -> bool:
    """Whether the process holds a session of its cluster: it has the session's file open to renew it."""
    directory = f"{settings.directory}/coordination/sessions/"
    try:
        return any(file.path.startswith(directory) and file.mode == "r+" for file in process.open_files())
    except psutil.Error:
        return False


def _send(process: psutil.Process, number: int) -> None:
    """A signal to exactly this process; nothing when it has ended. psutil compares its start time first."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
