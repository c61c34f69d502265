"""One standalone cluster as a child process: for the demo, tests and benchmarks.

Arrives: the directory of a cluster, and the command that supervises it. Leaves: running processes that can be named
by role, killed and waited for. Survives a crash: nothing of this object; the supervisor gets a termination signal when
the thread that started it ends, however that happened, and takes its processes along.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config import Settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import NotFoundError, RefusedError, UnavailableError
from bookkeeper.standalone.parent_death import ended_with_parent
from bookkeeper.standalone.readiness import answers

POLL_MS = 50
LOG_TAIL_BYTES = 4_000


@dataclass(frozen=True, slots=True)
class RoleState:
    """What the supervisor wrote about a role: its process, and how often it was started."""

    pid: int
    starts: int


def read_role(directory: Path, role: str) -> RoleState:
    """The latest process of ``role``; raises NotFoundError before its first start."""
    try:
        state = json.loads((directory / "run" / f"{role}.json").read_text())
    except FileNotFoundError:
        text = f"{directory}: no process {role} was started; start the cluster: bookkeeper standalone {directory}"
        raise NotFoundError(text) from None
    return RoleState(state["pid"], state["starts"])


@dataclass(slots=True)
class ClusterProcess:
    """A supervisor and its processes. Not safe for several threads; start and use it in one that lives long."""

    settings: Settings
    command: Sequence[str]
    """What to run; it must supervise ``settings.directory`` until SIGTERM."""
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
        """Stop everything cleanly, after ``timeout_s`` by force; nothing to do if it does not run."""
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
        """End the supervisor with -9: its processes die with it (parent-death signal). :meth:`start` begins anew.

        Raises RefusedError if it does not run.
        """
        process, self._process = self._process, None
        if process is None:
            raise RefusedError(f"{self.settings.directory} does not run; start it first")
        process.kill()
        process.wait()

    def role(self, name: str) -> RoleState:
        """The latest process of a role (``master``, ``tserver1``, ..., ``replay``); raises NotFoundError."""
        return read_role(self.settings.directory, name)

    def kill9(self, name: str) -> int:
        """End a role's process at once, as a crash would; returns its pid. The supervisor starts it again."""
        pid = self.role(name).pid
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_ready(self, timeout_s: float) -> None:
        """Return when the master answers and every tserver is registered; raises UnavailableError when late."""
        coordination = open_coordination(self.settings)
        try:
            self.wait_until(lambda: answers(self.settings, coordination), "answering cluster", timeout_s)
        finally:
            coordination.close()

    def wait_restarted(self, name: str, old_pid: int, timeout_s: float) -> RoleState:
        """The process that follows ``old_pid`` in a role; raises UnavailableError when there is none in time."""
        self.wait_until(lambda: self.role(name).pid != old_pid, f"a new process of {name}", timeout_s)
        return self.role(name)

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Poll until ``condition`` holds; raises UnavailableError, with the supervisor's last words if it ended."""
        never, deadline_ns = threading.Event(), self.clock.boot_ns() + int(timeout_s * 1e9)
        while not condition():
            if self._process is not None and (code := self._process.poll()) is not None:
                raise UnavailableError(f"{self.settings.directory}: standalone ended ({code}):\n{self._log_tail()}")
            if self.clock.boot_ns() > deadline_ns:
                raise UnavailableError(f"{self.settings.directory}: no {what} after {timeout_s:.0f} s; see {self.log}")
            self.clock.wait(never, POLL_MS)

    def _log_tail(self) -> str:
        with self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace")
