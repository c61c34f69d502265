"""Keeps the processes of one cluster running: a master, its tservers, and the replay process.

Arrives: a cluster directory. Leaves: one operating-system process per role, restarted with backoff whenever it
ends, each with a log file and a ``run/<role>.json`` that names its pid. Survives a crash: everything, because the
supervisor decides nothing; killed with -9 it takes its children along (parent-death signal), and the next one
starts them anew. A lock on the directory refuses a second supervisor.
Source: design section 3 ("standalone runs one of each in one process tree").
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.errors import RefusedError

RESTART_DELAY_MIN_MS = 100
RESTART_DELAY_MAX_MS = 5_000
STABLE_AFTER_MS = 10_000
"""A process that lived this long starts over with the shortest restart delay."""


@dataclass(frozen=True, slots=True)
class Role:
    """One process to keep: its name (unique), and the module that ``python -m`` runs."""

    name: str
    module: str


def roles_of(tservers: int) -> list[Role]:
    """The processes of a standalone cluster: master, replay, and ``tservers`` tablet servers."""
    names = [f"tserver{n}" for n in range(1, tservers + 1)]
    return [
        Role("master", "bookkeeper.master"),
        *(Role(name, "bookkeeper.tserver") for name in names),
        Role("replay", "bookkeeper.replay"),
    ]


def restart_delay_ms(previous_ms: int, lived_ms: int) -> int:
    """How long to wait before the next start: doubles while a process keeps ending soon after its start."""
    if lived_ms >= STABLE_AFTER_MS:
        return RESTART_DELAY_MIN_MS
    return min(RESTART_DELAY_MAX_MS, max(RESTART_DELAY_MIN_MS, 2 * previous_ms))


@dataclass(slots=True)
class _Child:
    role: Role
    process: subprocess.Popen[bytes] | None = None
    pidfd: int = -1
    started_ns: int = 0
    delay_ms: int = 0
    start_at_ns: int = 0
    starts: int = 0


@dataclass(slots=True)
class Supervisor:
    """Runs until :meth:`stop` or a termination signal; see the module. One instance per process, main thread only."""

    directory: Path
    roles: list[Role]
    report: Callable[[str], None]
    stop_timeout_ms: int
    clock: Clock = field(default_factory=SystemClock)
    _children: list[_Child] = field(default_factory=list)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _stopping: bool = False
    _lock: IO[str] | None = None

    def run(self) -> None:
        """Start every role and keep it running until told to stop. Raises RefusedError if another one supervises."""
        self._lock = self._acquire()
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        previous_fd = signal.set_wakeup_fd(wake_write)
        previous = {s: signal.signal(s, self._on_signal) for s in (signal.SIGTERM, signal.SIGINT)}
        self._selector.register(wake_read, selectors.EVENT_READ)
        try:
            self._children = [_Child(role) for role in self.roles]
            while not self._stopping:
                self._start_due()
                self._wait(wake_read)
            self._stop_all(wake_read)
        finally:
            signal.set_wakeup_fd(previous_fd)
            for number, handler in previous.items():
                signal.signal(number, handler)
            os.close(wake_read)
            os.close(wake_write)
            self._lock.close()

    def stop(self) -> None:
        """End the loop after the current step."""
        self._stopping = True

    def _on_signal(self, _number: int, _frame: object) -> None:
        self.stop()

    def _acquire(self) -> IO[str]:
        run = self.directory / "run"
        run.mkdir(exist_ok=True)
        lock = (run / "standalone.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise RefusedError(
                f"{self.directory}: another standalone process runs this cluster; stop it first"
            ) from None
        return lock

    def _start_due(self) -> None:
        now = self.clock.boot_ns()
        for child in self._children:
            if child.process is None and child.start_at_ns <= now:
                self._start(child)

    def _log(self, role: Role) -> Path:
        return self.directory / "logs" / f"{role.name}.log"

    def _start(self, child: _Child) -> None:
        log = self._log(child.role)
        log.parent.mkdir(exist_ok=True)
        command = [sys.executable, "-m", child.role.module, str(self.directory)]
        with log.open("ab") as output:
            child.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        child.started_ns = self.clock.boot_ns()
        child.starts += 1
        child.pidfd = os.pidfd_open(child.process.pid)
        self._selector.register(child.pidfd, selectors.EVENT_READ, child)
        self._write_pid(child)

    def _write_pid(self, child: _Child) -> None:
        assert child.process is not None
        path = self.directory / "run" / f"{child.role.name}.json"
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps({"pid": child.process.pid, "starts": child.starts}))
        temporary.replace(path)

    def _wait(self, wake_read: int) -> None:
        now = self.clock.boot_ns()
        due = [c.start_at_ns for c in self._children if c.process is None]
        timeout = max(0.0, (min(due) - now) / 1e9) if due else None
        for key, _events in self._selector.select(timeout):
            if key.fd == wake_read:
                os.read(wake_read, 4096)
            else:
                self._ended(key.data)

    def _ended(self, child: _Child) -> None:
        assert child.process is not None
        _end_group(child.process.pid)
        code = child.process.wait()
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        now = self.clock.boot_ns()
        child.process = None
        child.delay_ms = restart_delay_ms(child.delay_ms, (now - child.started_ns) // 1_000_000)
        child.start_at_ns = now + child.delay_ms * 1_000_000
        if not self._stopping:
            text = f"{child.role.name} ended ({_describe(code)}), its log is {self._log(child.role)}"
            self.report(f"{text}; starting again in {child.delay_ms} ms")

    def _stop_all(self, wake_read: int) -> None:
        for child in self._children:
            if child.process is not None:
                child.process.terminate()
        deadline = self.clock.boot_ns() + self.stop_timeout_ms * 1_000_000
        while alive := [c for c in self._children if c.process is not None]:
            left = (deadline - self.clock.boot_ns()) / 1e9
            if left <= 0:
                for child in alive:
                    assert child.process is not None
                    self.report(f"{child.role.name} did not stop in {self.stop_timeout_ms} ms; killing it")
                    child.process.kill()
                deadline += self.stop_timeout_ms * 1_000_000
                continue
            for key, _events in self._selector.select(left):
                if key.fd == wake_read:
                    os.read(wake_read, 4096)
                else:
                    self._ended(key.data)


def _end_group(pid: int) -> None:
    """Kill what an ended process left in its group, such as a JVM; before it is reaped, so that the id is its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _describe(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
