"""Keeps the processes of a cluster's hosts on this machine running: a master, tservers, and the replay process.

Each role has one process, which the supervisor restarts after its end, at once or with backoff, a log file, and a
``run/<role>.json`` with the pid, both in the directory of its host. Each start gives the process a new token, with
which a supervisor of the host ends its session when it is gone (:mod:`bookkeeper.coordination.host_leases`). Processes
are forked from one that has imported their modules (``forked_starts``), so that a restart costs no import. When the
directory of a further host is lost, the supervisor ends the processes of that host and starts them again once the
directory is back. When the supervisor is killed, its children die with it (parent-death signal), and the next
supervisor starts them again. A lock on each directory refuses a second supervisor. When a full disk refuses to open a
log or to write a file, the supervisor reports that once and retries.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import signal
from collections.abc import Callable
from pathlib import Path
from typing import IO

from msgspec import Struct, field

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config.file import SETTINGS_FILE
from bookkeeper.config.sections import StandaloneSettings
from bookkeeper.coordination.host_leases import new_token
from bookkeeper.errors import BookkeeperError, RefusedError, unavailable
from bookkeeper.file_locks import SUPERVISOR_LOCK
from bookkeeper.standalone.children.forked_starts import (
    ForkedStarts,
    StaleServerError,
    adopt_orphans,
    restart_delay_ms,
    warm_modules,
)
from bookkeeper.standalone.children.log_end import last_words

RECORD_RETRY_MS = 500
HOST_CHECK_MS = 500
"""Time between two looks at the directories of further hosts."""


class Role(Struct, frozen=True):
    """One process of the cluster: its unique name, the module that ``python -m`` runs, and its host's directory."""

    name: str
    module: str
    directory: Path

    @property
    def file(self) -> str:
        """Its name without that of the host, for files in the host's directory."""
        return self.name.rpartition(".")[2]


def roles_of(standalone: StandaloneSettings, directory: Path, host: str = "") -> list[Role]:
    """The processes of one host; ``host`` stands in the names of those of a further host (``host2.tserver1``)."""
    names = {
        "master": ["master"],
        "tserver": [f"tserver{n}" for n in range(1, standalone.tservers + 1)],
        "replay": ["replay"],
    }
    prefix = f"{host}." if host else ""
    return [
        Role(prefix + name, f"bookkeeper.{kind}", directory)
        for kind in names
        if kind in standalone.processes
        for name in names[kind]
    ]


class _Child(Struct):
    role: Role
    pid: int | None = None
    """None while it does not run."""
    pidfd: int = -1
    started_ns: int = 0
    delay_ms: int | None = None
    """Of the last restart; None before the first."""
    start_at_ns: int = 0
    starts: int = 0
    is_unrecorded: bool = False
    """Whether its ``run/<role>.json`` is not written yet."""
    last_report: str = ""
    """The line that was reported last about it."""
    is_homeless: bool = False
    """Whether the directory of its host was lost."""


class Supervisor(Struct):
    """The supervisor of the cluster in ``directory``, until :meth:`stop` or a termination signal. One instance per
    process, main thread only.
    """

    directory: Path
    roles: list[Role]
    report: Callable[[str], None]
    stop_timeout_ms: int
    clock: Clock = field(default_factory=SystemClock)
    _children: list[_Child] = field(default_factory=list)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _starts: ForkedStarts | None = None
    _stopping: bool = False
    _locks: dict[Path, IO[str]] = field(default_factory=dict)

    def run(self) -> None:
        """Start every role and keep it running until the end. Raises as :meth:`acquire`."""
        self.acquire()
        adopt_orphans()
        warm = warm_modules(role.module for role in self.roles)
        starts = self._starts = ForkedStarts(warm, self.clock, self._selector)
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        previous_fd = signal.set_wakeup_fd(wake_write)
        previous = {s: signal.signal(s, self._on_signal) for s in (signal.SIGTERM, signal.SIGINT)}
        previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, _only_wake)
        self._selector.register(wake_read, selectors.EVENT_READ)
        try:
            self._children = [_Child(role) for role in self.roles]
            while not self._stopping:
                self._keep_server(starts)
                self._start_due(starts)
                self._wait(wake_read, starts)
            self._stop_all(wake_read)
        finally:
            starts.close()
            signal.set_wakeup_fd(previous_fd)
            for number, handler in previous.items():
                signal.signal(number, handler)
            os.close(wake_read)
            os.close(wake_write)
            self.release()

    def stop(self) -> None:
        """End the loop after the current step."""
        self._stopping = True

    def _on_signal(self, _number: int, _frame: object) -> None:
        self.stop()

    def acquire(self) -> None:
        """Lock the directory; idempotent. Raises RefusedError when another supervisor has the lock, NoSpaceError when
        there is no space for the lock's file, UnavailableError.
        """
        self._acquire(self.directory)

    def add_host(self, directory: Path, roles: list[Role]) -> None:
        """Lock the directory of a further host, and run its ``roles``, too; call it before :meth:`run`. Raises as
        :meth:`acquire`.
        """
        self._acquire(directory)
        self.roles = [*self.roles, *roles]

    def _acquire(self, directory: Path) -> None:
        if directory in self._locks:
            return
        run = directory / "run"
        try:
            run.mkdir(exist_ok=True)
            lock = (directory / SUPERVISOR_LOCK).open("w")
        except OSError as error:
            raise unavailable(f"{run} can't be written", error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise RefusedError(f"{directory}: another standalone process runs this cluster; stop it first") from None
        self._locks[directory] = lock

    def release(self) -> None:
        """Unlock the directories; idempotent."""
        while self._locks:
            self._locks.popitem()[1].close()

    def _keep_server(self, starts: ForkedStarts) -> None:
        """Keep a fork server running. Reports once why none can be started."""
        try:
            starts.keep_open()
        except OSError as error:
            reason = unavailable("no process can be started", error).message
            for child in self._children:
                self._report_once(child, f"{child.role.name} can't be started: {reason}")

    def _start_due(self, starts: ForkedStarts) -> None:
        for child in self._children:
            self._look_for_home(child)
            is_due = child.pid is None and child.start_at_ns <= self.clock.boot_ns() and not child.is_homeless
            if is_due and starts.is_ready:
                self._try_to_start(child, starts)
            if child.pid is not None and child.is_unrecorded:
                self._try_to_record(child)

    def _look_for_home(self, child: _Child) -> None:
        """End the process of a further host whose directory was lost, and report the loss once. The process may start
        again once the directory is back and locked.
        """
        is_lost = self._is_lost(child.role.directory)
        if is_lost and not child.is_homeless:
            self.report(
                f"{child.role.name} is stopped: the directory {child.role.directory} of its host was removed or "
                "emptied; it starts again when the directory is back; the next bookkeeper standalone makes a new one"
            )
            _send(child, signal.SIGTERM)
        child.is_homeless = is_lost or (child.is_homeless and not self._lock_again(child))

    def _lock_again(self, child: _Child) -> bool:
        """Lock a directory that is back; reports a failure once and returns False."""
        directory = child.role.directory
        try:
            lock = self._locks.get(directory)
            if lock is not None and os.fstat(lock.fileno()).st_nlink == 0:
                self._locks.pop(directory).close()
            self._acquire(directory)
        except BookkeeperError as error:
            self._report_once(child, f"{child.role.name} can't be started: {error.message}")
            return False
        return True

    def _is_lost(self, directory: Path) -> bool:
        """Whether the directory of a further host is away; one that can't be read counts as there."""
        try:
            return directory != self.directory and not (directory / SETTINGS_FILE).exists()
        except OSError:
            return False

    def _try_to_start(self, child: _Child, starts: ForkedStarts) -> None:
        try:
            self._start(child, starts)
        except StaleServerError:
            return  # the next fork server has the changed code; the child is due until then
        except OSError as error:
            child.delay_ms = restart_delay_ms(child.delay_ms, 0)
            child.start_at_ns = self.clock.boot_ns() + child.delay_ms * 1_000_000
            reason = unavailable(f"{child.role.name} can't be started", error).message
            self._report_once(child, f"{reason}; trying again in {child.delay_ms} ms")

    def _try_to_record(self, child: _Child) -> None:
        try:
            self._write_pid(child)
            child.is_unrecorded, child.last_report = False, ""
        except OSError as error:
            reason = unavailable(f"{self._record(child.role)} can't be written", error).message
            self._report_once(child, f"{child.role.name} runs, but {reason}")

    def _report_once(self, child: _Child, text: str) -> None:
        if text != child.last_report:
            self.report(text)
        child.last_report = text

    def _log(self, role: Role) -> Path:
        return role.directory / "logs" / f"{role.file}.log"

    def _record(self, role: Role) -> Path:
        return role.directory / "run" / f"{role.file}.json"

    def _start(self, child: _Child, starts: ForkedStarts) -> None:
        log = self._log(child.role)
        log.parent.mkdir(exist_ok=True)
        with log.open("ab") as output:
            child.pid = starts.start(child.role.module, [str(child.role.directory)], output.fileno(), new_token())
        child.started_ns = self.clock.boot_ns()
        child.starts += 1
        child.pidfd = os.pidfd_open(child.pid)
        self._selector.register(child.pidfd, selectors.EVENT_READ, child)
        child.is_unrecorded = True

    def _write_pid(self, child: _Child) -> None:
        path = self._record(child.role)
        temporary = path.with_suffix(".tmp")
        path.parent.mkdir(exist_ok=True)
        try:
            temporary.write_text(json.dumps({"pid": child.pid, "starts": child.starts}))
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def _wait(self, wake_read: int, starts: ForkedStarts) -> None:
        now = self.clock.boot_ns()
        due = [c.start_at_ns for c in self._children if c.pid is None and not c.is_homeless and starts.is_ready]
        due += [now + HOST_CHECK_MS * 1_000_000 for c in self._children if c.role.directory != self.directory]
        due += [now + RECORD_RETRY_MS * 1_000_000 for c in self._children if c.pid is not None and c.is_unrecorded]
        due += [] if starts.due_ns is None else [starts.due_ns]
        self._handle_events(max(0.0, (min(due) - now) / 1e9) if due else None, wake_read)

    def _handle_events(self, timeout_s: float | None, wake_read: int) -> None:
        for key, _events in self._selector.select(timeout_s):
            if key.fd == wake_read:
                os.read(wake_read, 4096)
            elif isinstance(key.data, ForkedStarts):
                key.data.receive()
            else:
                self._ended(key.data)
        self._reap_adopted()

    def _reap_adopted(self) -> None:
        """Take the exit codes of ended processes that only were adopted, such as the JVM of a process that was killed.
        Those of the roles and of the fork server stay until their own event.
        """
        own = {child.pid for child in self._children}
        own.add(None if self._starts is None else self._starts.pid)
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in own:
                    return
                os.waitpid(ended.si_pid, 0)

    def _ended(self, child: _Child) -> None:
        assert child.pid is not None
        _end_group(child.pid)
        _, status = os.waitpid(child.pid, 0)
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        now = self.clock.boot_ns()
        child.pid = None
        child.delay_ms = restart_delay_ms(child.delay_ms, (now - child.started_ns) // 1_000_000)
        child.start_at_ns = now + child.delay_ms * 1_000_000
        if not self._stopping and not child.is_homeless:
            code = _describe(os.waitstatus_to_exitcode(status))
            if os.WIFEXITED(status) and (words := last_words(self._log(child.role))):
                code += f": {words}"
            when = f"in {child.delay_ms} ms" if child.delay_ms else "at once"
            self.report(f"{child.role.name} ended ({code}), its log is {self._log(child.role)}; starting again {when}")

    def _stop_all(self, wake_read: int) -> None:
        for child in self._children:
            _send(child, signal.SIGTERM)
        deadline = self.clock.boot_ns() + self.stop_timeout_ms * 1_000_000
        while alive := [c for c in self._children if c.pid is not None]:
            left = (deadline - self.clock.boot_ns()) / 1e9
            if left <= 0:
                for child in alive:
                    self.report(f"{child.role.name} did not stop in {self.stop_timeout_ms} ms; killing it")
                    _send(child, signal.SIGKILL)
                deadline += self.stop_timeout_ms * 1_000_000
                continue
            self._handle_events(left, wake_read)


def _only_wake(_number: int, _frame: object) -> None:
    """A child has ended: the wakeup descriptor says so, and the loop looks which one."""


def _send(child: _Child, number: signal.Signals) -> None:
    """Send a signal to the process of a child, if one runs and is not reaped yet."""
    if child.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(child.pidfd, number)


def _end_group(pid: int) -> None:
    """Kill the remaining processes of an ended process's group, such as a JVM. Call it before the process is reaped,
    because its id may be reused afterwards.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _describe(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
