"""A standalone cluster as a child process, for the demo, tests and benchmarks.

A caller can kill each process by its role, and wait for the next one. The supervisor gets SIGTERM when the thread that
started it ends, and stops all processes of the cluster.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import NotFoundError, RefusedError, UnavailableError
from bookkeeper.standalone.children.log_end import log_end
from bookkeeper.standalone.children.parent_death import ended_with_parent
from bookkeeper.standalone.joining import HOSTS_DIR
from bookkeeper.standalone.readiness import Expected, answers

POLL_MS = 50
LOG_END_BYTES = 4_000


class RoleState(Struct, frozen=True):
    """The latest process of a role by the supervisor's file: its pid, and the number of starts of the role."""

    pid: int
    starts: int


def read_role(directory: Path, role: str) -> RoleState:
    """The latest process of ``role``: ``tserver1``, or ``host2.tserver1`` for one of a further host. Raises
    NotFoundError before its first start.
    """
    host, _, name = role.rpartition(".")
    home = directory / HOSTS_DIR / host if host else directory
    try:
        state = json.loads((home / "run" / f"{name}.json").read_text())
    except FileNotFoundError:
        text = f"{directory}: no process {role} was started; start the cluster: bookkeeper standalone {directory}"
        raise NotFoundError(text) from None
    return RoleState(state["pid"], state["starts"])


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a child has ended. ``Popen.poll`` takes a lock; an interrupt right behind that (Ctrl-C, SIGTERM of the
    demo) leaves it locked for ever, and then :meth:`ClusterProcess.stop` never returns.
    """
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class ClusterProcess(Struct):
    """A supervisor and its processes, for one thread. The cluster stops when that thread ends."""

    settings: Settings
    command: Sequence[str]
    """The command line; it must supervise ``settings.directory`` until SIGTERM."""
    clock: Clock = field(default_factory=SystemClock)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """Output of the supervisor; the roles have logs of their own beside it."""
        return self.settings.logs_dir / "standalone.log"

    def start(self) -> None:
        """Start the supervisor and return at once. Raises RefusedError if it runs."""
        if self._process is not None:
            raise RefusedError(f"{self.settings.directory} runs already")
        with open(self.log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
            self._process = subprocess.Popen(
                ended_with_parent(self.command, signal.SIGTERM),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self, timeout_s: float) -> None:
        """Stop all processes cleanly, after ``timeout_s`` by force; without a running supervisor do nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()  # its processes die with it (parent-death signal)
            process.wait()

    def crash(self) -> None:
        """Kill the supervisor with SIGKILL; its processes die with it (parent-death signal). :meth:`start` starts them
        again. Raises RefusedError if it does not run.
        """
        process, self._process = self._process, None
        if process is None:
            raise RefusedError(f"{self.settings.directory} does not run; start it first")
        process.kill()
        process.wait()

    def role(self, name: str) -> RoleState:
        """The latest process of a role (``master``, ``tserver1``, ``host2.tserver1``, ..., ``replay``); raises
        NotFoundError.
        """
        return read_role(self.settings.directory, name)

    def kill9(self, name: str) -> int:
        """Kill a role's process with SIGKILL; returns its pid. The supervisor starts the role again."""
        pid = self.role(name).pid
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_ready(self, timeout_s: float) -> None:
        """Return when the master answers and every tserver is registered. Raises as :meth:`wait_until`."""
        coordination = open_coordination(self.settings)
        try:
            wanted = Expected(self.settings.standalone.tservers + self.settings.standalone.hosts - 1)
            self.wait_until(lambda: answers(self.settings, coordination, wanted), "answering cluster", timeout_s)
        finally:
            coordination.close()

    def wait_restarted(self, name: str, old_pid: int, timeout_s: float) -> RoleState:
        """Wait for the process that replaces ``old_pid`` in a role, and return it. Raises as :meth:`wait_until`."""
        self.wait_until(lambda: self.role(name).pid != old_pid, f"a new process of {name}", timeout_s)
        return self.role(name)

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Poll until ``condition`` holds; ``what`` names it in the error. Raises UnavailableError with the end of the
        supervisor's log: after ``timeout_s``, or when the supervisor ends.
        """
        never, deadline_ns = threading.Event(), self.clock.boot_ns() + int(timeout_s * 1e9)
        while not condition():
            if self._process is not None and _has_ended(self._process):
                code = self._process.wait()
                end = log_end(self.log, LOG_END_BYTES)
                raise UnavailableError(f"{self.settings.directory}: standalone ended ({code}):\n{end}")
            if self.clock.boot_ns() > deadline_ns:
                reason = f"no {what} after {timeout_s:.0f} s; {self.log} ends with:"
                end = log_end(self.log, LOG_END_BYTES)
                raise UnavailableError(f"{self.settings.directory}: {reason}\n{end}")
            self.clock.wait(never, POLL_MS)
